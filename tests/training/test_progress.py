import pytest

from bitprint.training import progress
from bitprint.training.progress import EpochBar


def train_two_epochs(enabled, finished=0):
    with EpochBar(2, finished, enabled=enabled) as bar:
        for epoch in range(finished, 2):
            for _ in range(4):
                bar.advance(0.25)
            bar.finish_epoch(epoch + 1, 1.5 / (epoch + 1), 12_345.6)


def test_silent_when_not_enabled(capfd):
    train_two_epochs(enabled=False)
    assert tuple(capfd.readouterr()) == ("", "")


@pytest.mark.parametrize("finished", [0, 1])
def test_shows_epochs_loss_and_speed_on_stderr(capfd, monkeypatch, finished):
    monkeypatch.setenv("COLUMNS", "160")
    train_two_epochs(enabled=True, finished=finished)
    out, err = capfd.readouterr()
    assert out == ""
    for text in ("2/2", "loss 0.7500", "12,346 images/s"):
        assert text in err


def test_where_there_is_no_terminal_lines_come_now_and_then(capfd, monkeypatch):
    train_two_epochs(enabled=True)
    assert "epochs" not in capfd.readouterr().err
    monkeypatch.setattr(progress, "_PAUSE", 0.0)
    train_two_epochs(enabled=True)
    out, err = capfd.readouterr()
    assert out == ""
    lines = err.splitlines()
    assert lines[0] == "training: 0.2 of 2 epochs"
    assert lines[7] == "training: 2.0 of 2 epochs, loss 1.5000, 12,346 images/s"


def test_lines_begin_with_their_title_and_are_not_broken(capfd, monkeypatch):
    monkeypatch.setattr(progress, "_PAUSE", 0.0)
    title = "dsdh [lr=0.001], " + "mu=500 " * 20
    with EpochBar(2, 0, enabled=True, title=title) as bar:
        bar.advance(0.5)
    assert capfd.readouterr().err.splitlines()[0] == f"{title}: 0.5 of 2 epochs"


def test_lines_keep_their_distance(monkeypatch):
    now, written = [100.0], []
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    lines = progress.PlainLines(written.append)
    for now[0] in range(100, 200):
        lines.offer(f"at {now[0]}")
    assert written == ["at 130", "at 160", "at 190"]


def test_an_error_passes_through(capfd):
    with pytest.raises(ArithmeticError, match="boom"), EpochBar(2, 0, enabled=True):
        raise ArithmeticError("boom")
    assert capfd.readouterr().out == ""


def test_pace_is_that_since_the_first_report():
    """Items that were done before, or with the slow start, do not count."""
    now = [5.0]
    pace = progress.Pace(clock=lambda: now[0])
    assert pace(40, 100) == ""
    assert pace(50, 100) == ""  # no time has passed
    now[0] = 9.0
    assert pace(40, 100) == ""  # nothing is done
    assert pace(60, 100) == ", 5.0/s, 8 s left"
    now[0] = 12.0
    assert pace(100, 100) == ", 8.6/s, 0 s left"
