import os
import signal
import threading

import pytest

from bitprint.utils.locking import locked


@pytest.fixture
def path(tmp_path):
    (tmp_path / "log").touch()
    return tmp_path / "log"


def is_free(path):
    try:
        with locked(path, timeout=0):
            return True
    except TimeoutError:
        return False


def test_lock_excludes_other_descriptors_until_released(path):
    with locked(path, timeout=0) as found:
        assert found.st_ino == path.stat().st_ino
        assert not is_free(path)
    assert is_free(path)


def test_lock_is_released_after_an_error(path):
    with pytest.raises(KeyError), locked(path, timeout=0):
        raise KeyError
    assert is_free(path)


def test_lock_waits_for_another_thread(path):
    taken, order = threading.Event(), []

    def wait():
        taken.wait()
        with locked(path, timeout=30):
            order.append("second")

    thread = threading.Thread(target=wait)
    thread.start()
    with locked(path, timeout=0):
        taken.set()
        thread.join(0.05)
        order.append("first")
    thread.join()
    assert order == ["first", "second"]


def test_lock_ends_with_its_process(path):
    receiving, sending = os.pipe()
    child = os.fork()
    if child == 0:
        with locked(path, timeout=0):
            os.write(sending, b".")
            signal.pause()
    os.read(receiving, 1)
    free = is_free(path)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    assert not free
    assert is_free(path)
    os.close(receiving)
    os.close(sending)


def test_lock_is_not_inherited_by_a_forked_process(path):
    with locked(path, timeout=0):
        child = os.fork()
        if child == 0:
            signal.pause()
    free = is_free(path)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    assert free


def test_lock_on_a_missing_file_creates_nothing(tmp_path):
    with pytest.raises(FileNotFoundError), locked(tmp_path / "log", timeout=0):
        pass
    assert list(tmp_path.iterdir()) == []
