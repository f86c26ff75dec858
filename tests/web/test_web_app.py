import errno
import io
import os
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from fastapi.testclient import TestClient
from PIL import Image
from web_pictures import as_file

from bitprint.codes import Codes
from bitprint.photos import Photos
from bitprint.web import Collection, Limits, create_app
from bitprint.web.collection import SearchRequest, key_of


def by_picture(client, data, name="a.png", **options):
    return client.post("/api/search", data=options, files={"picture": (name, data)})


def ranking(collection, code):
    """Return all (distance, key) pairs of the collection, computed by a stable sort."""
    ids = collection.index.ids()
    distances = collection.index.codes(ids).hamming(code)[:, 0]
    order = np.argsort(distances, kind="stable")
    return [(int(distances[row]), key_of(ids[row])) for row in order]


def test_a_picture_finds_itself_and_the_order_is_that_of_a_full_sort(client, collection, scenes):
    for number in (0, 4, 17):
        answer = by_picture(client, as_file(scenes[number]), k="12").json()
        code = collection.encoder.encode([scenes[number]])
        assert answer["code"] == code.packed.tobytes().hex()
        found = [(result["distance"], result["id"]) for result in answer["results"]]
        assert found == ranking(collection, code)[:12]
        assert found[0][0] == 0
        assert answer["collection"] == 40
        assert answer["truncated"] is False


def test_searching_by_id_by_code_and_by_picture_agree(client, scenes):
    first = by_picture(client, as_file(scenes[9]), k="5").json()
    by_code = client.post("/api/search", json={"code": first["code"], "k": 5}).json()
    by_id = client.post("/api/search", json={"id": first["results"][0]["id"], "k": 5}).json()
    assert first["results"] == by_code["results"] == by_id["results"]
    assert first["code"] == by_code["code"] == by_id["code"]


def test_radius_label_and_k(client, collection, scenes):
    code = collection.encoder.encode([scenes[3]])
    everything = ranking(collection, code)
    radius = everything[30][0]
    hexadecimal = code.packed.tobytes().hex()

    def found(**options):
        answer = client.post("/api/search", json={"code": hexadecimal, **options}).json()
        return [(one["distance"], one["id"]) for one in answer["results"]], answer["truncated"]

    near = [pair for pair in everything if pair[0] <= radius]
    assert found(radius=radius) == (near, False)
    assert found(radius=radius, k=3) == (near[:3], True)
    assert found() == (everything[:24], False)
    assert found(k=1000) == (everything, False)
    labelled = {result["id"] for result in by_label(client, hexadecimal, "odd")}
    assert found(k=1000, label="odd")[0] == [pair for pair in everything if pair[1] in labelled]
    assert found(label="no such label") == ([], False)


def by_label(client, code, label):
    answer = client.post("/api/search", json={"code": code, "k": 1000, "label": label}).json()
    assert all(result["labels"] == [label] for result in answer["results"])
    assert len(answer["results"]) > 10
    return answer["results"]


def test_pictures_of_any_name_are_shown_as_they_are(client, folder, collection):
    answer = client.post("/api/search", json={"code": "00" * 8, "k": 1000}).json()
    names = {}
    for result in answer["results"]:
        assert result["has_picture"]
        response = client.get(f"/api/picture/{result['id']}")
        assert response.status_code == 200
        assert response.headers["content-type"] == "image/png"
        thumbnail = client.get(f"/api/thumbnail/{result['id']}")
        assert thumbnail.headers["content-type"] == "image/jpeg"
        assert Image.open(io.BytesIO(thumbnail.content)).size == (24, 24)
        names[result["name"]] = response.content
    files = list(folder.rglob("*.png"))
    assert len(names) == len(files) == 40
    for path in files:
        shown = os.fspath(path.relative_to(folder.parent))
        shown = shown.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
        assert names[shown] == path.read_bytes()


def test_a_known_thumbnail_is_not_sent_again(client):
    [result] = client.post("/api/search", json={"code": "00" * 8, "k": 1}).json()["results"]
    first = client.get(f"/api/thumbnail/{result['id']}")
    assert "no-cache" in first.headers["cache-control"]
    headers = {"If-None-Match": first.headers["etag"]}
    again = client.get(f"/api/thumbnail/{result['id']}", headers=headers)
    assert (again.status_code, again.content) == (304, b"")
    other = client.get(f"/api/thumbnail/{result['id']}", headers={"If-None-Match": '"x"'})
    assert other.content == first.content


@pytest.mark.parametrize("kind", ["thumbnail", "picture"])
@pytest.mark.parametrize(
    "key",
    [
        key_of("/etc/passwd"),
        key_of("../../etc/passwd"),
        key_of("a\0b"),
        key_of(""),
        "n1",
        "n9999999999999999999",
        "../../etc/passwd",
        "..%2f..%2fetc%2fpasswd",
        "s%00",
        "s",
        "x",
        "%ff",
        "s" + "A" * 20_000,
    ],
)
def test_nothing_but_indexed_pictures_is_served(client, kind, key):
    response = client.get(f"/api/{kind}/{key}")
    assert response.status_code in (404, 422)
    assert "root:" not in response.text


def test_indexed_paths_that_lead_outside_or_changed_are_not_served(tmp_path, scenes):
    from bitprint.search.index import Index

    root = tmp_path / "root"
    root.mkdir()
    (tmp_path / "secret.png").write_bytes(as_file(scenes[0]))
    (root / "link.png").symlink_to(tmp_path / "secret.png")
    (root / "page.png").write_text("<script>alert(1)</script>")
    paths = [f"{root}/link.png", f"{root}/../secret.png", f"{root}/page.png", f"{root}/gone.png"]
    with Index.create(tmp_path / "a.bp", bits=8) as index:
        index.add(paths, Codes(np.zeros((4, 1), np.uint8), 8), paths=paths)
        app = create_app(Collection(index, roots=[root]))
        with TestClient(app, base_url="http://127.0.0.1") as client:
            for path in paths:
                for kind in ("picture", "thumbnail"):
                    response = client.get(f"/api/{kind}/{key_of(path)}")
                    assert response.status_code == 404
                    assert response.json() == {"detail": "there is no such photo"}


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({}, "either an id or a code"),
        ({"id": "n1", "code": "00" * 8}, "either an id or a code"),
        ({"code": "00"}, "16 hexadecimal digits"),
        ({"code": "zz" * 8}, "16 hexadecimal digits"),
        ({"code": 5}, "code: "),
        ({"id": "../x"}, "id: "),
        ({"code": "00" * 8, "k": 0}, "k: "),
        ({"code": "00" * 8, "k": 1001}, "k: "),
        ({"code": "00" * 8, "k": "5"}, "k: "),
        ({"code": "00" * 8, "k": True}, "k: "),
        ({"code": "00" * 8, "k": None}, "k: "),
        ({"code": "00" * 8, "radius": -1}, "radius: "),
        ({"code": "00" * 8, "label": "x" * 1001}, "label: "),
        ({"code": "00" * 8, "verbose": 1}, "verbose: "),
        ([], ""),
    ],
)
def test_search_invalid_query_returns_422(client, body, message):
    response = client.post("/api/search", json=body)
    assert response.status_code == 422
    assert message in response.json()["detail"]
    assert "\n" not in response.json()["detail"]


def test_search_accepts_integral_floats(client):
    spelt = b'{"code": "0000000000000000", "k": 5.0}'
    headers = {"Content-Type": "application/json"}
    answer = client.post("/api/search", content=spelt, headers=headers)
    assert len(answer.json()["results"]) == 5
    assert client.post("/api/search", json={"code": "00" * 8, "k": 5.5}).status_code == 422


def test_unknown_ids(client):
    response = client.post("/api/search", json={"id": key_of("/nowhere.png")})
    assert (response.status_code, set(response.json())) == (404, {"detail"})


@pytest.mark.parametrize(
    ("content_type", "body", "status"),
    [
        ("application/json", b"{", 422),
        ("application/json", b"[" * 65_536, 422),
        ("application/json", b"[" * 65_537, 413),
        ("application/json", b'{"code": "\\ud800"}', 422),
        ("application/json", b"\xff\xfe", 422),
        ("text/plain", b"{}", 415),
        ("", b"{}", 415),
        ("application/x-www-form-urlencoded", b"picture=1", 415),
        ("multipart/form-data", b"", 400),
        ("multipart/form-data; boundary=x", b"", 422),
        ("multipart/form-data; boundary=x", b"--x\r\nnonsense", 422),
        ("multipart/form-data; boundary=" + "x" * 1000, b"--", 400),
    ],
)
def test_broken_bodies(client, content_type, body, status):
    response = client.post("/api/search", content=body, headers={"Content-Type": content_type})
    assert response.status_code == status
    assert isinstance(response.json()["detail"], str)


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"", 415),
        (b"<svg xmlns='http://www.w3.org/2000/svg'><script>alert(1)</script></svg>", 415),
        (b"PK\x03\x04" + bytes(5000), 415),
        (as_file(np.zeros((1001, 1000, 3), np.uint8)), 415),
        (as_file(np.zeros((50, 50, 3), np.uint8))[:60], 415),
        (bytes(250_000), 413),
    ],
)
@pytest.mark.parametrize("name", ["a.png", "../../etc/passwd", "a\u202egnp.exe", "<b>.svg"])
def test_hostile_uploads(client, data, status, name):
    response = by_picture(client, data, name=name)
    assert response.status_code == status
    assert isinstance(response.json()["detail"], str)
    assert "Traceback" not in response.text


def test_a_form_needs_one_picture_and_valid_options(client, scenes):
    data = as_file(scenes[0])
    assert client.post("/api/search", files={"k": (None, "5")}).status_code == 422
    assert client.post("/api/search", files={"picture": (None, "text")}).status_code == 422
    two = [("picture", ("a.png", data)), ("picture", ("b.png", data))]
    assert client.post("/api/search", files=two).status_code == 400
    assert by_picture(client, data, k="many").status_code == 422
    assert by_picture(client, data, verbose="1").status_code == 422
    assert by_picture(client, data, k="3", radius="64", label="odd").status_code == 200


def test_concurrent_uploads_are_encoded_together_and_each_gets_its_own(collection, scenes):
    sizes = []

    class Counting:
        size = collection.encoder.size

        def describe(self):
            return "counting"

        def encode(self, pictures):
            sizes.append(len(pictures))
            return collection.encoder.encode(pictures)

    counting = Collection(collection.index, Counting(), collection.roots)
    with TestClient(create_app(counting), base_url="http://127.0.0.1") as client:
        sizes.clear()
        with ThreadPoolExecutor(12) as pool:
            rows = [number % 40 for number in range(72)]
            answers = list(pool.map(lambda row: by_picture(client, as_file(scenes[row])), rows))
    expected = collection.encoder.encode(list(scenes)).packed
    for row, answer in zip(rows, answers, strict=True):
        assert answer.json()["code"] == expected[row].tobytes().hex()
    assert sum(sizes) == 72
    assert max(sizes) > 1


def test_info_health_and_metrics(client, collection):
    info = client.get("/api/info").json()
    assert info["name"] == "photos.bp"
    assert (info["codes"], info["bits"], info["labels"]) == (40, 64, ["even", "odd"])
    assert info["model"] == collection.encoder.describe()
    assert info["uploads"] == {"bytes": 200_000, "pixels": 1_000_000}
    assert client.get("/health").json() == {"status": "ok", "codes": 40}

    def searches():
        response = client.get("/metrics")
        assert response.headers["content-type"].startswith("text/plain; version=0.0.4")
        start = 'bitprint_requests_total{route="/api/search",status="200"} '
        [line] = [line for line in response.text.splitlines() if line.startswith(start)]
        return int(line.removeprefix(start))

    client.post("/api/search", json={"code": "00" * 8})
    before = searches()
    client.post("/api/search", json={"code": "00" * 8})
    assert searches() == before + 1


def test_codes_alone_are_served_without_pictures(codes_file):
    collection = Collection.open(codes_file)
    with TestClient(create_app(collection), base_url="http://127.0.0.1") as client:
        info = client.get("/api/info").json()
        assert (info["model"], info["uploads"], info["labels"]) == (None, None, [])
        answer = client.post("/api/search", json={"code": "ABC0", "k": 50}).json()
        query = Codes(np.array([[0xAB, 0xC0]], np.uint8), 12)
        found = [(result["distance"], result["id"]) for result in answer["results"]]
        assert found == ranking(collection, query)
        assert not any(result["has_picture"] for result in answer["results"])
        again = client.post("/api/search", json={"id": "n7", "k": 1}).json()
        assert again["results"][0]["distance"] == 0
        assert client.post("/api/search", json={"code": "ABC1"}).status_code == 422
        upload = by_picture(client, as_file(np.zeros((8, 8, 3), np.uint8)))
        assert upload.status_code == 415
        assert "no model" in upload.json()["detail"]
        assert client.get("/api/picture/n7").status_code == 404
    collection.index.close()


def test_what_is_added_while_the_server_runs_is_found(codes_file):
    from bitprint.search.index import Index

    collection = Collection.open(codes_file)
    with TestClient(create_app(collection), base_url="http://127.0.0.1") as client:
        with Index.open(codes_file) as other:
            other.add([1000], Codes(np.array([[0x12, 0x30]], np.uint8), 12))
        answer = client.post("/api/search", json={"code": "1230", "k": 50, "radius": 0}).json()
        assert "n1000" in [result["id"] for result in answer["results"]]
        assert answer["collection"] == 51
    collection.index.close()


def pictures_in(folder, scenes):
    folder.mkdir()
    for number, pixels in enumerate(scenes):
        (folder / f"{number}.png").write_bytes(as_file(pixels))
    return folder


@pytest.mark.parametrize("ask_first", [True, False])
def test_folders_that_are_added_while_the_server_runs_are_shown(
    ask_first, tmp_path, scenes, collection
):
    a, b = (pictures_in(tmp_path / name, scenes[:3]) for name in "ab")
    with Photos.create(tmp_path / "x.bp", collection.encoder) as photos:
        photos.add(a)
        served = Collection.open(tmp_path / "x.bp")
        with served.index, TestClient(create_app(served), base_url="http://127.0.0.1") as client:
            photos.add(b)
            key = key_of(str(b / "1.png"))
            if ask_first:
                answer = client.post("/api/search", json={"id": key, "k": 2, "radius": 0}).json()
                found = {result["name"]: result["has_picture"] for result in answer["results"]}
                assert found == {"a/1.png": True, "b/1.png": True}
            assert client.get(f"/api/thumbnail/{key}").status_code == 200
            assert client.get(f"/api/picture/{key}").content == (b / "1.png").read_bytes()


def test_folders_are_read_again_only_where_a_path_lies_in_none(tmp_path, scenes, collection):
    root = pictures_in(tmp_path / "a", scenes[:3])
    with Photos.create(tmp_path / "x.bp", collection.encoder) as photos:
        photos.add(root)
        asked = []
        served = Collection(
            photos.index, None, photos.roots, lambda: asked.append(1) or photos.roots
        )
        search = SearchRequest(served.code_of(key_of(str(root / "1.png"))), 5, 64, "")
        assert len(served.search([search])[0]) == 3
        assert not asked
        photos.add(pictures_in(tmp_path / "b", scenes[:3]))
        assert len(served.search([search, search])[0]) == 5
        assert len(asked) == 1


def test_has_picture_only_inside_a_root(tmp_path, scenes):
    from bitprint.search.index import Index

    real = pictures_in(tmp_path / "real", scenes[:1])
    (tmp_path / "link").symlink_to(real)
    paths = [f"{tmp_path}/link/0.png", f"{real}/0.png", f"{tmp_path}/real-not/0.png", None]
    with Index.create(tmp_path / "a.bp", bits=8) as index:
        index.add(range(4), Codes(np.zeros((4, 1), np.uint8), 8), paths=paths)
        served = Collection(index, roots=[tmp_path / "link"])
        [found] = served.search([SearchRequest(bytes(1), 4, 8, "")])
        with TestClient(create_app(served), base_url="http://127.0.0.1") as client:
            statuses = [client.get(f"/api/thumbnail/n{key}").status_code for key in range(4)]
    assert [one.name for one in found] == ["link/0.png", "real/0.png", paths[2], "3"]
    assert [one.has_picture for one in found] == [True, True, False, False]
    assert statuses == [200, 200, 404, 404]


def test_upload_over_the_pixel_limit_is_rejected(collection, scenes):
    limits = Limits(pixels=24 * 24 - 1)
    app = create_app(collection, limits=limits)
    with TestClient(app, base_url="http://127.0.0.1") as client:
        assert by_picture(client, as_file(scenes[0])).status_code == 415


def exhausted(*_arguments, **_options):
    raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))


@pytest.mark.parametrize("kind", ["picture", "thumbnail", "static"])
def test_too_many_open_files_return_503(client, collection, monkeypatch, caplog, kind):
    """Files of the page are opened after the start of the response, which is not sent yet."""
    path = "/static/app.js"
    if kind == "static":
        monkeypatch.setattr("anyio.open_file", exhausted)
    else:
        path = f"/api/{kind}/{key_of(collection.index.ids()[0])}"
        monkeypatch.setattr("bitprint.web.pictures.os.open", exhausted)
    response = client.get(path)
    assert response.status_code == 503
    assert response.headers["retry-after"] == "1"
    assert "overloaded" in response.json()["detail"]
    assert "too many open files; raise the limit (ulimit -n)" in caplog.text
    assert "Traceback" not in caplog.text
