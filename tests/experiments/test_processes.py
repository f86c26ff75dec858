"""Processes that run cells: they end with the command, and run methods of one's own."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

ENDLESS = """
import signal
from pathlib import Path
from bitprint.cli import main
from bitprint.methods import METHODS, FeatureHasher

class Endless(FeatureHasher):
    name, supervision = "endless", "none"

    def __init__(self, bits):
        self.bits = bits

    def _fit(self, features, labels):
        Path("started").touch()
        while True:
            features @ features.T

    def _project(self, features):
        return features

METHODS["endless"] = Endless

if __name__ == "__main__":
    # What a shell has started in the background ignores it, and so would this.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    main()
"""


def start(folder, *arguments):
    """Start a script with a method of its own in a process group of its own."""
    return subprocess.Popen(
        [sys.executable, "script.py", "reproduce", *arguments],
        cwd=folder,
        env=os.environ | {"BITPRINT_DATA": str(folder / "home")},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def alive(group):
    """Processes of a group that have not ended."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, its_group = path.read_text().rpartition(")")[2].split()[:3]
        except OSError:  # ended meanwhile
            continue
        if int(its_group) == group and state != "Z":
            found.append(path.parent.name)
    return found


def wait_for(condition, seconds):
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        time.sleep(0.05)
    return condition()


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL, signal.SIGINT])
def test_workers_end_with_the_command(number, tmp_path):
    (tmp_path / "script.py").write_text(ENDLESS)
    table = ["table3", "--dataset", "digits", "--features", "pixels", "--bits", "8"]
    process = start(tmp_path, *table, "--methods", "endless", "--splits", "1")
    try:
        assert wait_for((tmp_path / "started").exists, 60), process.stderr.read()
        assert len(alive(process.pid)) > 1
        process.send_signal(number)
        _, said = process.communicate(timeout=20)
        assert wait_for(lambda: not alive(process.pid), 10)
        if number != signal.SIGKILL:
            assert process.returncode == 130
            assert said == "interrupted; run the same command again to resume\n"
    finally:
        if alive(process.pid):
            os.killpg(process.pid, signal.SIGKILL)


def test_a_method_of_ones_own_stands_beside_the_others(tmp_path):
    """The script is what the page puts together."""
    page = (Path(__file__).parents[2] / "docs" / "add_a_method.md").read_text()
    blocks = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    (method,) = (block for block in blocks if "class SKLSH" in block)
    (command,) = (block for block in blocks if "main()" in block)
    (tmp_path / "script.py").write_text(method + command)
    process = start(tmp_path, "table1", "--quick", "--methods", "itq,sklsh", "--bits", "12")
    printed, said = process.communicate(timeout=120)
    assert process.returncode == 0, said
    assert re.search(r"sklsh +\S gist +\S 0\.\d{3}", printed)
    assert "gamma=1.0" in (tmp_path / "results" / "table1_digits_quick.csv").read_text()


def test_a_script_without_its_guard_is_told_so(tmp_path):
    (tmp_path / "script.py").write_text(ENDLESS.replace('if __name__ == "__main__":', "if True:"))
    process = start(tmp_path, "table1", "--quick", "--methods", "lsh", "--bits", "8")
    _, said = process.communicate(timeout=120)
    assert process.returncode == 1
    assert "Traceback" not in said
    first, second = said.splitlines()
    assert first.endswith('this must stand under `if __name__ == "__main__":`')
    assert second.startswith("bitprint: a process that runs cells ended before its cell was done")
