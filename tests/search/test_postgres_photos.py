import json
import shutil

import pytest

psycopg = pytest.importorskip("psycopg", reason="PostgreSQL needs pip install .[postgres]")

from bitprint.photos import Photos, encoding  # noqa: E402
from bitprint.photos.encoder import Encoder  # noqa: E402
from bitprint.search.stores.postgres_connection import Connections, parse_address  # noqa: E402


@pytest.fixture
def album(tmp_path, monkeypatch):
    """Draw eight images in a folder, and save a model for them next to it."""
    from PIL import Image

    from bitprint.data import draw_shapes
    from bitprint.methods import create as create_method

    monkeypatch.setenv("BITPRINT_DATA", str(tmp_path / "home"))
    scenes = draw_shapes(40, size=16)
    create_method("itq", bits=16).fit(scenes).save(tmp_path / "run", features="pixels")
    for number, pixels in enumerate(scenes.pixels[:8]):
        folder = tmp_path / "album" / ["cats", "dogs"][number % 2]
        folder.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(folder / f"{number}.png")
    return tmp_path / "album"


def test_photographs_from_the_command_line(postgres_places, album):
    from typer.testing import CliRunner

    from bitprint.cli import app

    def run(*arguments):
        result = CliRunner().invoke(app, [str(argument) for argument in arguments])
        assert result.exit_code == 0, result.output + repr(result.exception)
        return json.loads(result.stdout)

    place, model = postgres_places(), album.parent / "run"
    about = run("index", "add", place, album, "--model", model, "--json")
    assert (about["new"], about["held"]) == (8, 8)
    found = run("search", place, album / "cats" / "2.png", "-k", 3, "--label", "cats", "--json")
    assert [hit["labels"] for hit in found["results"]] == [["cats"]] * 3
    assert found["results"][0]["path"] == str(album / "cats" / "2.png")
    (album / "dogs" / "1.png").rename(album / "cats" / "1.png")
    (album / "dogs" / "3.png").unlink()
    about = run("index", "sync", place, "--json")
    assert (len(about["moved"]), len(about["removed"]), about["held"]) == (1, 1, 7)
    assert run("index", "remove", place, album / "dogs", "--json")["held"] == 5
    about = run("index", "compact", place, "--json")
    assert (about["held"], about["labels"], "bytes" in about) == (5, ["cats"], False)
    shutil.copy(album / "cats" / "1.png", album / "cats" / "copy.png")
    assert run("index", "add", place, album / "cats", "--json")["new"] == 1
    groups = run("duplicates", place, "-r", 0, "--json")
    twins = {str(album / "cats" / name) for name in ("1.png", "copy.png")}
    assert any(twins <= set(group["ids"]) for group in groups)


def test_features_that_were_kept_are_used_and_discarded(postgres_places, album, monkeypatch):
    """Their folder does not depend on the password."""
    place = postgres_places().replace("postgres:@", "postgres:sesame@")
    with Photos.learn(place, album, bits=8, features="pixels") as photos:
        waiting = list((album.parent / "home").rglob("*.npz"))
        assert len(waiting) == 1
        with monkeypatch.context() as patch:
            patch.setattr(encoding, "compute_ahead", lambda paths, *_: iter(paths))
            assert photos.add(album) == (8, 0, [], [], 0)
    assert not waiting[0].parent.exists()
    with pytest.raises(FileExistsError, match="already exists") as refused:
        Photos.learn(place, album)
    assert str(refused.value).startswith(f"{photos.index.path}: ")
    assert "sesame" not in str(refused.value)


def test_the_web_server_serves_from_postgres(postgres_places, album, monkeypatch, end_connections):
    pytest.importorskip("fastapi", reason="the server needs pip install .[serve]")
    from fastapi.testclient import TestClient

    from bitprint.web import Collection, create_app

    place = postgres_places()
    with Photos.create(place, Encoder.load(album.parent / "run")) as photos:
        photos.add(album)
    with pytest.raises(FileExistsError, match="already exists"):
        Photos.learn(place, album)
    collection = Collection.open(place)
    picture = (album / "dogs" / "5.png").read_bytes()

    def ask(client, **options):
        return client.post("/api/search", data=options, files={"picture": ("a.png", picture)})

    app = create_app(collection)
    with collection.index, TestClient(app, base_url="http://127.0.0.1") as client:
        info = client.get("/api/info").json()
        assert (info["name"], info["codes"]) == (parse_address(place).index, 8)
        assert info["labels"] == ["cats", "dogs"]
        answer = ask(client, k="3", label="dogs").json()
        best = answer["results"][0]
        assert (best["name"], best["distance"]) == ("album/dogs/5.png", 0)
        assert [found["labels"] for found in answer["results"]] == [["dogs"]] * 3
        assert answer["collection"] == 8
        thumbnail = client.get(f"/api/thumbnail/{best['id']}")
        assert thumbnail.headers["content-type"] == "image/jpeg"
        end_connections()
        assert ask(client, k="3", label="dogs").json()["results"] == answer["results"]
        end_connections()
        with monkeypatch.context() as patch:
            patch.setattr(Connections, "_connect", lose_connection)
            lost = ask(client)
            assert (lost.status_code, lost.json()["detail"][:27]) == (
                503,
                "the index cannot be reached",
            )
        assert client.get("/health").json() == {"status": "ok", "codes": 8}


def lose_connection(*_):
    raise ConnectionError("gone")
