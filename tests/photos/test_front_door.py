"""The basic calls of Photos: `open_or_create`, `add`, `search`."""

import json

import numpy as np
import pytest
from PIL import Image

import bitprint as bp
from bitprint.data import decode_image, draw_shapes
from bitprint.photos import Hit, Photos, choosing
from bitprint.photos.encoder import Encoder
from bitprint.photos.files import Listing, Picture
from bitprint.photos.searching import CANDIDATES, find_hits

SCENES = draw_shapes(150, size=32)


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "home" / "Pictures").mkdir(parents=True)
    return tmp_path / "home"


def draw(home, count):
    for number in range(count):
        Image.fromarray(SCENES.pixels[number]).save(home / "Pictures" / f"{number}.png")


def paths_by_brute_force(photos, outputs, k):
    """Return the k best paths and their Hamming distances; all codes are candidates."""
    ids = photos.index.ids().tolist()
    signs = photos.index.codes(ids).signs()
    distances = ((signs > 0) != (outputs >= 0)).sum(axis=1)
    nearest = np.argsort(distances, kind="stable")[:CANDIDATES]
    order = nearest[np.argsort(-(signs[nearest] @ outputs.astype(float)), kind="stable")][:k]
    return [(ids[row], int(distances[row])) for row in order]


@pytest.mark.parametrize(
    ("count", "model"),
    [(5, "ITQ, 256 bits, on efficientnet-lite0"), (150, "ITQ, 256 bits, on pixels")],
)
def test_four_lines_work_with_few_images_and_with_many(home, count, model, monkeypatch):
    monkeypatch.setattr(choosing, "FEATURES", "pixels")  # quick to compute
    monkeypatch.setattr(choosing, "FEW", 100)
    monkeypatch.setattr("bitprint.photos.encoder._FOLDER_SIZE", 16)
    draw(home, count)
    Image.fromarray(SCENES.pixels[3]).save("cat.jpg", quality=95)

    photos = bp.Photos.open_or_create("photos.bp")
    photos.add("~/Pictures")
    hits = photos.search("cat.jpg", k=4)
    for hit in hits:
        assert hit.distance >= 0
        assert hit.path.endswith(".png")

    assert len(photos) == count
    assert photos.encoder.describe().startswith(model)
    outputs = photos.encoder.project([decode_image("cat.jpg", photos.encoder.size)])
    assert [(hit.id, hit.distance) for hit in hits] == paths_by_brute_force(photos, outputs[0], 4)
    photos.close()
    with bp.Photos.open_or_create("~/../photos.bp") as again:
        assert len(again) == count
        assert again.add("~/Pictures").new == 0
        assert again.search("cat.jpg", k=4) == hits


def test_a_folder_without_images_is_an_error_and_makes_nothing(tmp_path):
    photos = Photos.open_or_create("photos.bp")
    with pytest.raises(ValueError, match="Pictures: no images found"):
        photos.add("~/Pictures")
    assert len(photos) == 0
    for use in (lambda: photos.search("cat.jpg"), photos.sync, lambda: photos.index):
        with pytest.raises(ValueError, match=r"^photos\.bp: no images yet; first use photos\.add"):
            use()
    photos.close()
    assert [path.name for path in tmp_path.iterdir()] == ["home"]


def test_500_images_are_enough_to_learn_from(monkeypatch):
    learned = Encoder(bp.create("itq", bits=16).fit(SCENES))
    monkeypatch.setattr("bitprint.photos.learning.learn_encoder", lambda *_, **__: learned)
    pictures = [Picture(f"/{number}.png", 1, 1) for number in range(500)]
    wanted = choosing.Wanted("photos.bp", None, None, None)
    for count, origin in ((1, "ready-made"), (499, "ready-made"), (500, "learned")):
        listing = Listing(pictures[:count], [], [], [], [])
        assert choosing.choose_encoder(wanted, listing)[1].origin == origin


def test_choose_model_returns_model_and_listing(home, monkeypatch):
    draw(home, 6)
    with Photos.open_or_create("photos.bp") as photos:
        chosen = photos.choose_model("~/Pictures")
        assert (chosen.origin, chosen.images) == ("ready-made", 6)
        assert photos.add(chosen.listing).new == 6
        assert photos.choose_model("~/Pictures") is None
        assert not photos.has_outgrown_model()
    with Photos.open_or_create("learned.bp", bits=16, features="gist") as photos:
        progress = []
        chosen = photos.choose_model("~/Pictures", progress=lambda *done: progress.append(done))
        assert (chosen.origin, chosen.images) == ("learned", 6)
        assert progress[-1] == (6, 6)
        photos.add(chosen.listing)
        assert photos.encoder.describe() == "ITQ, 16 bits, on gist features"
        assert not photos.has_outgrown_model()
        monkeypatch.setattr(choosing, "FEW", 6)
        assert not photos.has_outgrown_model()  # learned from enough images
        monkeypatch.setattr(choosing, "FEW", 7)
        draw(home, 8)
        photos.add("~/Pictures")
        assert photos.has_outgrown_model()


@pytest.mark.parametrize("kind", ["hasher", "encoder", "folder"])
def test_a_model_may_be_given(home, tmp_path, kind):
    draw(home, 6)
    hasher = bp.create("itq", bits=16).fit(SCENES)
    hasher.save(tmp_path / "run", features="pixels")
    model = {"hasher": hasher, "encoder": Encoder(hasher), "folder": tmp_path / "run"}[kind]
    with Photos.open_or_create("photos.bp", model=model) as photos:
        photos.add("~/Pictures")
        assert photos.index.codes(photos.index.ids()[:1]).bits == 16
    with Photos.open_or_create("photos.bp", model=model) as photos:
        assert len(photos) == 6


def test_an_existing_collection_is_checked(home):
    draw(home, 3)
    hasher = bp.create("itq", bits=16).fit(SCENES)
    with Photos.open_or_create("photos.bp", model=hasher) as photos:
        photos.add("~/Pictures")
    other = bp.create("itq", bits=16, seed=1).fit(SCENES)
    with pytest.raises(ValueError, match="cannot be compared with those of"):
        Photos.open_or_create("photos.bp", model=other)
    with pytest.raises(ValueError, match="has codes of 16 bits, not 48"):
        Photos.open_or_create("photos.bp", bits=48)
    with pytest.raises(ValueError, match="on pixels features, not on gist features"):
        Photos.open_or_create("photos.bp", features="gist")
    with pytest.raises(ValueError, match="a model already has bits and features"):
        Photos.open_or_create("photos.bp", model=hasher, bits=16)
    Photos.open_or_create("photos.bp", bits=16, features="pixels").close()
    with pytest.raises(FileNotFoundError, match="not a model folder"):
        Photos.open_or_create("new.bp", model="nowhere")


@pytest.fixture
def photos(home):
    for name in ("cats", "dogs"):
        (home / "Pictures" / name).mkdir()
    for number in range(12):
        folder = home / "Pictures" / ("cats" if number % 3 else "dogs")
        Image.fromarray(SCENES.pixels[number]).save(folder / f"{number}.png")
    hasher = bp.create("itq", bits=32).fit(SCENES)
    with Photos.open_or_create("photos.bp", model=hasher) as photos:
        photos.add("~/Pictures")
        yield photos


def test_all_kinds_of_queries_give_the_same_hits(photos, home):
    path = home / "Pictures" / "cats" / "4.png"
    pixels = SCENES.pixels[4]
    expected = photos.search(path)
    assert expected[0] == Hit(str(path), str(path), 0, ("cats",))
    assert len(expected) == 10
    for query in (
        str(path),
        "~/Pictures/cats/4.png",
        Image.open(path),
        Image.fromarray(pixels).convert("RGBA"),
        pixels,
    ):
        assert photos.search(query) == expected
    by_code = photos.search(photos.encoder.encode([pixels]))
    assert by_code[0] == expected[0]
    assert [hit.distance for hit in by_code] == sorted(hit.distance for hit in expected)


def test_a_jpeg_has_the_same_hits_by_path_and_opened(photos, tmp_path):
    large = Image.fromarray(SCENES.pixels[4]).resize((300, 200))
    large.save(tmp_path / "large.jpg")
    assert photos.search("large.jpg") == photos.search(Image.open("large.jpg"))


def test_a_label_and_a_number_limit_the_hits(photos):
    hits = photos.search(SCENES.pixels[0], 100, label="dogs")
    assert len(hits) == 4
    assert {hit.labels for hit in hits} == {("dogs",)}
    assert photos.search(SCENES.pixels[0], k=10**12, label="nothing") == []
    assert [hit.distance for hit in photos.search(SCENES.pixels[0], k=1)] == [0]


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("~/Pictures", "Pictures: is a folder; give one image file"),
        ("", "is empty"),
        (["a.jpg", "b.jpg"], "search expects one image .* got list"),
        (np.zeros((8, 8), np.uint8), r"uint8 array of shape \(height, width, 3\)"),
        (np.zeros((8, 8, 3)), r"got float64 of shape \(8, 8, 3\)"),
        (bp.Codes.from_signs(np.ones((2, 32))), "one image or one code, got 2 codes"),
        (bp.Codes.from_signs(np.ones((1, 16))), "16"),
    ],
)
def test_search_invalid_query_raises(photos, query, message):
    with pytest.raises(ValueError, match=message) as caught:
        photos.search(query)
    assert len(str(caught.value).splitlines()) == 1


def test_a_hit_that_is_removed_meanwhile_is_not_found(photos):
    search, ids = photos.index.search, photos.index.ids().tolist()

    def search_and_remove(*arguments):
        found = search(*arguments)
        if len(photos) > 9:
            with bp.Index.open("photos.bp") as other:
                other.remove([found.ids[0, 0]])
        return found

    photos.index.search = search_and_remove
    with pytest.raises(ValueError, match="no id"):  # a hit is removed in each of three attempts
        photos.search(SCENES.pixels[0])
    hits = photos.search(SCENES.pixels[0], k=12)
    assert len(hits) == len(photos) == 9
    assert {hit.id for hit in hits} < set(ids)


def test_hits_of_several_codes_equal_those_of_each(photos):
    codes = photos.encoder.encode(list(SCENES.pixels[:5]))
    assert find_hits(photos.index, codes, 3) == [photos.search(code, 3) for code in codes]


def test_opening_a_collection_loads_no_model(photos, monkeypatch):
    monkeypatch.setattr(Encoder, "from_files", lambda files: 1 / 0)
    with Photos.open("photos.bp") as opened:
        assert len(opened) == 12
        assert opened.search(photos.encoder.encode([SCENES.pixels[0]]), k=1)[0].distance == 0


def test_a_model_that_was_trained_on_features_keeps_them(photos, home):
    images = bp.open_images(home / "Pictures")
    hasher = bp.train(images, bits=8, method="sdh", features="gist")
    with Photos.open_or_create("trained.bp", model=hasher) as trained:
        trained.add("~/Pictures")
        assert trained.encoder.describe() == "SDH, 8 bits, on gist features"
        assert trained.search(home / "Pictures" / "cats" / "4.png", k=1)[0].distance == 0
        about = json.loads(trained.index.attachments("model/")["model/model.json"])["about"]
        assert about == {"features": "gist", "size": 256, "pictures": None}
