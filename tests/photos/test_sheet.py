import base64
import io
import os
from html.parser import HTMLParser
from urllib.parse import unquote_to_bytes

import numpy as np
import pytest
from PIL import Image

from bitprint.photos.sheet import Tile, contact_sheet


class Reader(HTMLParser):
    """Parse the elements, attributes and text of a page."""

    def __init__(self, page):
        super().__init__()
        self.elements = []
        self.text = ""
        self.feed(page)

    def handle_starttag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))

    def handle_data(self, data):
        self.text += data

    def all(self, tag):
        return [attributes for name, attributes in self.elements if name == tag]


def test_thumbnails_are_inside_and_keep_their_aspect(tmp_path):
    pixels = np.full((300, 900, 3), (200, 30, 30), np.uint8)
    Image.fromarray(pixels).save(tmp_path / "wide.png")
    page = Reader(contact_sheet("Found", [Tile(str(tmp_path / "wide.png"), "3 bits")]))
    [image] = page.all("img")
    kind, _, data = image["src"].partition(";base64,")
    assert kind == "data:image/jpeg"
    thumbnail = Image.open(io.BytesIO(base64.b64decode(data)))
    assert thumbnail.size == (320, 107)
    assert np.abs(np.asarray(thumbnail).astype(int) - (200, 30, 30)).max() < 6
    assert "3 bits" in page.text
    assert "wide.png" in page.text


@pytest.mark.parametrize(
    "name", [b"<script>alert(1)<", b'" onload="x', b"'&amp;", b"\xff\xfe", b"new\nline", b"{} %20"]
)
def test_names_cannot_become_markup(tmp_path, name):
    name += b".png"
    path = os.fsdecode(os.fsencode(tmp_path) + b"/" + name)
    Image.new("RGB", (4, 4)).save(tmp_path / "plain.png")
    (tmp_path / "plain.png").rename(path)
    plain = Reader(contact_sheet("x", [Tile(str(tmp_path / "no.png"), "x")] * 2))
    page = contact_sheet(os.fsdecode(name), [Tile(path, os.fsdecode(name))] * 2)
    read = Reader(page.encode().decode())
    swap = {"div": "img"}  # the reference page has no image
    assert [tag for tag, _ in read.elements] == [swap.get(tag, tag) for tag, _ in plain.elements]
    for tag, attributes in read.elements:
        assert not any(key.startswith("on") for key in attributes), tag
    assert "script" not in [tag for tag, _ in read.elements]
    [link, _] = read.all("a")
    assert unquote_to_bytes(link["href"].removeprefix("file://")) == os.fsencode(path)


def test_a_file_that_is_gone_is_shown_as_such(tmp_path):
    page = Reader(contact_sheet("Found", [Tile(str(tmp_path / "gone.jpg"), "0 bits")]))
    assert page.all("img") == []
    assert "cannot be read" in page.text
    assert "gone.jpg" in page.text
