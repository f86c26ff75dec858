import pytest

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


def test_an_error_passes_through(capfd):
    with pytest.raises(ArithmeticError, match="boom"), EpochBar(2, 0, enabled=True):
        raise ArithmeticError("boom")
    assert capfd.readouterr().out == ""
