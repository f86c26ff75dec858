"""Worker processes: they end with the command, and can run registered methods."""

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
    # A process started in the background of a shell ignores SIGINT, and so would this one.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    main()
"""


def start(folder, *arguments):
    """Start a script that registers a method, in a new process group."""
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
    """Running processes of a group."""
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
        assert wait_for((tmp_path / "started").exists, 300), process.stderr.read()
        assert len(alive(process.pid)) > 1
        process.send_signal(number)
        _, errors = process.communicate(timeout=300)
        assert wait_for(lambda: not alive(process.pid), 300)
        if number != signal.SIGKILL:
            assert process.returncode == 130
            assert errors == "interrupted; run the same command again to resume\n"
    finally:
        if alive(process.pid):
            os.killpg(process.pid, signal.SIGKILL)


def test_a_registered_method_is_compared_with_others(tmp_path):
    """The script consists of the examples in the documentation."""
    page = (Path(__file__).parents[2] / "docs" / "add_a_method.md").read_text()
    blocks = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    (method,) = (block for block in blocks if "class SKLSH" in block)
    (command,) = (block for block in blocks if "main()" in block)
    (tmp_path / "script.py").write_text(method + command)
    process = start(tmp_path, "table1", "--quick", "--methods", "itq,sklsh", "--bits", "12")
    printed, errors = process.communicate(timeout=300)
    assert process.returncode == 0, errors
    assert re.search(r"sklsh +\S gist +\S 0\.\d{3}", printed)
    assert "gamma=1.0" in (tmp_path / "results" / "table1_digits_quick.csv").read_text()


def test_a_script_without_main_guard_is_refused(tmp_path):
    (tmp_path / "script.py").write_text(ENDLESS.replace('if __name__ == "__main__":', "if True:"))
    process = start(tmp_path, "table1", "--quick", "--methods", "lsh", "--bits", "8")
    _, errors = process.communicate(timeout=300)
    assert process.returncode == 1
    assert "Traceback" not in errors
    first, second = errors.splitlines()
    assert first.endswith('put this call under `if __name__ == "__main__":`')
    assert second.startswith("bitprint: a worker process ended before its cell was complete")
