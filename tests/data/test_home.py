from bitprint.data import data_home


def test_data_home(monkeypatch, tmp_path):
    monkeypatch.setenv("BITPRINT_DATA", str(tmp_path))
    assert data_home() == tmp_path
    monkeypatch.delenv("BITPRINT_DATA")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert data_home() == tmp_path / ".cache" / "bitprint"
