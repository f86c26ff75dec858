import os

from bitprint.utils.text import printable


def test_printable_escapes_control_characters():
    assert printable("plain ü 日本.jpg") == "plain ü 日本.jpg"
    assert printable(os.fsdecode(b"\xff\n\x1b.jpg")) == "\\udcff\\n\\x1b.jpg"
