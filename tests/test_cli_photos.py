import errno
import json
import os
import webbrowser
from pathlib import Path

import pytest
from PIL import Image
from typer.testing import CliRunner

import bitprint as bp
from bitprint import cli
from bitprint.cli import _adding
from bitprint.cli._codes import is_codes, read_ids, write_codes
from bitprint.data import draw_shapes
from bitprint.photos import Photos, choosing

SCENES = draw_shapes(24, size=16)


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("BITPRINT_DATA", str(tmp_path / "home"))


@pytest.fixture
def model(tmp_path):
    """A run folder as written by `bitprint train`, of a fast method."""
    bp.create("itq", bits=32).fit(SCENES).save(tmp_path / "run", features="pixels")
    return tmp_path / "run"


@pytest.fixture
def album(tmp_path):
    root = tmp_path / "album"
    for number, pixels in enumerate(SCENES.pixels[:6]):
        folder = root / ["cats", "dogs"][number % 2]
        folder.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(folder / f"{number}.png")
    return root


def call(*arguments, given=None):
    return CliRunner().invoke(cli.app, [str(argument) for argument in arguments], input=given)


def run(*arguments, given=None):
    """Run a command that must succeed; return its standard output."""
    result = call(*arguments, given=given)
    assert result.exit_code == 0, result.output + repr(result.exception)
    return result.stdout


def refused(*arguments, given=None):
    """Run a command that must fail; return its error, which is one line."""
    result = call(*arguments, given=given)
    assert isinstance(result.exception, ValueError | OSError), result.output
    assert len(str(result.exception).splitlines()) == 1
    return str(result.exception)


def found(*arguments):
    return [Path(hit["path"]).name for hit in json.loads(run(*arguments, "--json"))["results"]]


def test_a_folder_is_indexed_searched_and_synced(album, model):
    (album / "text.jpg").write_text("no picture")
    result = call("index", "add", "photos.bp", album, "--model", model)
    assert result.exit_code == 0
    assert "6 new, 0 unchanged, 1 skipped, 6 in the index" in result.stdout
    assert "model: ITQ, 32 bits, on pixels features (" in result.stdout
    assert "text.jpg: unsupported format" in result.stderr
    assert "0 new, 6 unchanged" in run("index", "add", "photos.bp", album)

    lines = run("search", "photos.bp", album / "cats" / "2.png", "-k", 3).splitlines()
    assert len(lines) == 3
    assert lines[0].split() == ["0", str((album / "cats" / "2.png").resolve())]
    assert found("search", "photos.bp", album / "cats" / "2.png", "-k", 100)[0] == "2.png"
    cats = found("search", "photos.bp", album / "cats" / "2.png", "--label", "cats")
    assert sorted(cats) == ["0.png", "2.png", "4.png"]

    (album / "cats" / "2.png").rename(album / "dogs" / "moved.png")
    (album / "cats" / "4.png").unlink()
    (album / "text.jpg").unlink()
    result = call("index", "sync", "photos.bp")
    assert "0 new, 4 unchanged, 0 skipped, 1 moved, 1 removed, 5 in the index" in result.stdout
    assert "removed" in result.stderr
    about = json.loads(run("index", "remove", "photos.bp", album / "cats", "--json"))
    assert (about["removed"], about["held"]) == (1, 4)
    about = json.loads(run("index", "info", "photos.bp", "--json"))
    assert about["folders"] == [str(album.resolve())]
    assert (about["held"], about["bits"], about["labels"]) == (4, 32, ["dogs"])
    assert about["bytes"] == Path("photos.bp").stat().st_size
    assert "4 in the index" in run("index", "compact", "photos.bp")


def test_unsupported_formats_are_reported_in_one_line(album, model):
    for name in ("a.dng", "cats/b.dng", "c.jxl"):
        (album / name).write_bytes(b"...")
    result = call("index", "add", "photos.bp", album, "--model", model)
    line = "3 images in unsupported formats left out (2 .dng, 1 .jxl)"
    assert result.stderr.splitlines().count(line) == 1
    assert line in call("index", "sync", "photos.bp").stderr
    about = json.loads(run("index", "sync", "photos.bp", "--json"))
    assert [Path(name).name for name in about["left_out"]] == ["a.dng", "c.jxl", "b.dng"]
    (album / "a.dng").unlink()
    (album / "cats" / "b.dng").unlink()
    assert "1 image in an unsupported format left out (1 .jxl)" in (
        call("index", "sync", "photos.bp").stderr
    )


def test_a_linked_folder_is_reported_until_it_is_added(album, model, tmp_path):
    (album / "dogs").rename(tmp_path / "disk")
    (album / "dogs").symlink_to(tmp_path / "disk")
    line = f"1 linked folder left out ({album}/dogs); add it by its path"
    for command in (["add", album, "--model", model], ["sync"], ["sync", album]):
        result = call("index", command[0], "photos.bp", *command[1:])
        assert "3 in the index" in result.stdout
        assert line in result.stderr.splitlines()
    assert json.loads(run("index", "sync", "photos.bp", "--json"))["left_out"] == [f"{album}/dogs/"]
    run("index", "add", "photos.bp", album / "dogs")
    for command in (["add", album], ["sync"], ["sync", album]):
        result = call("index", command[0], "photos.bp", *command[1:])
        assert "6 in the index" in result.stdout
        assert "linked" not in result.stderr


def test_an_empty_name_is_not_the_working_directory(album, model, monkeypatch):
    run("index", "add", "photos.bp", album, "--model", model)
    monkeypatch.chdir(album)
    Image.new("RGB", (16, 16)).save("new.png")
    for action in ("add", "sync", "remove"):
        for names in ([""], ["cats", ""]):
            assert "is empty; use . for" in refused("index", action, "../photos.bp", *names)
    assert "is empty" in refused("index", "add", "other.bp", "", "--model", model)
    assert not Path("other.bp").exists()
    assert "6 in the index" in run("index", "info", "../photos.bp")


def test_encode_json_prints_the_counts(album, tmp_path):
    bp.create("itq", bits=32).fit(SCENES).save(tmp_path / "small", features="pixels", size=16)
    about = json.loads(run("encode", "small", album, "--out", "codes", "--json"))
    assert about == {"out": "codes", "codes": 6, "bits": 32}
    assert len(bp.Codes.load("codes")) == 6


def test_a_csv_without_labels_is_reported(album, model):
    table = Path("list.csv")
    table.write_text("file,tags\nalbum/cats/0.png,tom\n")
    line = "list.csv: no column named label, so its images get no labels"
    for _ in range(2):
        result = call("index", "add", "photos.bp", table, "--model", model)
        assert result.stderr.splitlines().count(line) == 1
    table.write_text("file,Label\nalbum/cats/0.png,tom\n")
    result = call("index", "add", "photos.bp", table)
    assert "no column" not in result.stderr
    assert "1 relabeled" in result.stdout


def test_a_model_is_learned_if_none_is_given(album):
    result = call("index", "add", "photos.bp", album, "--bits", 16)
    assert "6 new" in result.stdout
    assert "model: ITQ, 16 bits, on efficientnet-lite0 features (" in result.stdout
    assert "learned a model from 6 images" in result.stderr
    assert found("search", "photos.bp", album / "dogs" / "3.png", "-k", 1) == ["3.png"]


def test_few_images_use_the_included_model(album):
    result = call("index", "add", "photos.bp", album)
    assert "6 images: too few to learn a model, using photos-256" in result.stderr
    assert "model: ITQ, 256 bits, on efficientnet-lite0 features (" in result.stdout
    assert found("search", "photos.bp", album / "dogs" / "3.png", "-k", 1) == ["3.png"]


def test_enough_images_learn_a_model(album, monkeypatch):
    monkeypatch.setattr(choosing, "FEW", 6)
    result = call("index", "add", "photos.bp", album)
    assert "model: ITQ, 256 bits, on efficientnet-lite0 features (" in result.stdout
    assert "learned a model from 6 images" in result.stderr


def test_a_model_learned_from_few_images_is_reported(album, monkeypatch):
    monkeypatch.setattr(choosing, "FEW", 6)
    first = call("index", "add", "photos.bp", album / "cats", "--bits", 16)
    assert "too few" not in first.stderr
    second = call("index", "add", "photos.bp", album / "dogs")
    assert "was learned from 3 images, too few for its 6 images" in second.stderr
    again = call("index", "add", "photos.bp", album / "dogs")
    assert "too few" not in again.stderr


@pytest.mark.parametrize("separator", ["\n", "\0", "\r\n"])
def test_names_on_standard_input(album, model, separator):
    names = [str(path) for path in sorted(album.rglob("*.png"))[:2]] + ["gone.png"]
    given = separator.join(names) + separator
    about = json.loads(
        run("index", "add", "photos.bp", "-", "--model", model, "--json", given=given)
    )
    assert (about["new"], about["held"]) == (2, 2)
    assert [reason for _, reason in about["skipped"]] == ["no such file"]


def test_several_folders_and_files_at_once(album, model, tmp_path):
    single = tmp_path / "single.png"
    Image.fromarray(SCENES.pixels[10]).save(single)
    names = (album / "cats", single, album / "dogs", album / "cats" / "0.png")
    about = json.loads(run("index", "add", "photos.bp", *names, "--model", model, "--json"))
    assert (about["new"], about["held"]) == (7, 7)
    assert "0 new, 7 unchanged" in run("index", "add", "photos.bp", *names)
    folders = json.loads(run("index", "info", "photos.bp", "--json"))["folders"]
    assert folders == [str(path.resolve()) for path in (album / "cats", album / "dogs", tmp_path)]
    for name in ("cats/0.png", "dogs/1.png"):
        (album / name).unlink()
    places = (album / "cats", album / "dogs")
    assert "2 removed, 5 in the index" in run("index", "sync", "photos.bp", *places)
    with pytest.raises(FileNotFoundError, match="no such folder or file"):
        Photos.open("photos.bp").add(album, tmp_path / "gone")


def test_folders_learn_one_model_together(album):
    result = call("index", "add", "photos.bp", album / "cats", album / "dogs", "--bits", 8)
    assert "learned a model from 6 images" in result.stderr
    assert "6 new, 0 unchanged, 0 skipped, 6 in the index" in result.stdout


def test_codes_are_not_added_together_with_others(album):
    save_codes(bp.create("lsh", bits=24).fit(SCENES).encode(SCENES)[:2], ["a", "b"])
    result = call("index", "add", "codes.bp", album, "codes")
    assert result.exit_code == 2
    assert "codes contains codes; add it in a separate command" in " ".join(
        result.stderr.replace("│", " ").split()
    )


def test_a_csv(album, model):
    Path("list.csv").write_text("file,label\nalbum/cats/0.png,tom\n")
    run("index", "add", "photos.bp", "list.csv", "--model", model)
    assert json.loads(run("index", "info", "photos.bp", "--json"))["labels"] == ["tom"]


def test_unusual_names_are_exact_in_json_and_escaped_in_text(album, model):
    name = os.fsdecode(b"\xff \x1b[2J\n[red]<script>.png")
    (album / "cats" / "0.png").rename(album / name)
    run("index", "add", "photos.bp", album, "--model", model)
    assert name in found("search", "photos.bp", album / name, "-k", 1)
    text = run("search", "photos.bp", album / name, "-k", 1)
    assert text.splitlines()[0].endswith("\\udcff \\x1b[2J\\n[red]<script>.png")
    assert "\x1b" not in text


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full here")
def test_a_full_disk_is_reported_with_the_name_of_the_sheet(album, model):
    run("index", "add", "photos.bp", album, "--model", model)
    Path("sheet.html").symlink_to("/dev/full")
    query = album / "cats" / "2.png"
    error = refused("search", "photos.bp", query, "--sheet", "sheet.html")
    assert error.startswith("sheet.html: no space left on this disk")


def test_a_contact_sheet_is_written_and_opened(album, model, monkeypatch, tmp_path):
    opened = []
    monkeypatch.setattr(webbrowser, "open", opened.append)
    run("index", "add", "photos.bp", album, "--model", model)
    query = album / "cats" / "2.png"
    run("search", "photos.bp", query, "-k", 3, "--sheet", "sheet.html")
    page = Path("sheet.html").read_text("utf-8")
    assert page.count("<img ") == 4
    assert "0 bits" in page
    assert opened == []
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    run("search", "photos.bp", query, "-k", 3, "--open")
    [address] = opened
    assert Path(address.removeprefix("file://")).read_text("utf-8") == page


def test_duplicates(album, model):
    copy = album / "copy.png"
    copy.write_bytes((album / "cats" / "2.png").read_bytes())
    run("index", "add", "photos.bp", album, "--model", model)
    [group] = json.loads(run("duplicates", "photos.bp", "--radius", 0, "--json"))
    expected = sorted(str(path.resolve()) for path in (copy, album / "cats" / "2.png"))
    assert (sorted(group["ids"]), group["distance"]) == (expected, 0)
    result = call("duplicates", "photos.bp", "-r", 1)
    assert "1 group within 1 bit\n" in result.stderr
    lines = run("duplicates", "photos.bp", "-r", 0).splitlines()
    assert lines[0] == "group of 2, at most 0 bits apart"
    assert sorted(line.strip() for line in lines[1:]) == expected


def one_code_for_all(album):
    """An index of images that all have the same code."""
    paths = sorted(str(path) for path in album.rglob("*.*"))
    with bp.Index.create("photos.bp", bits=8) as index:
        index.add(paths, bp.Codes.from_signs([[1] * 8] * len(paths)), paths=paths)
    return paths


def test_different_images_with_equal_codes_are_not_duplicates(album):
    again = album / "again.jpg"
    Image.open(album / "cats" / "2.png").resize((64, 64)).save(again, quality=60)
    one_code_for_all(album)
    result = call("duplicates", "photos.bp")
    assert [line.strip() for line in result.stdout.splitlines()] == [
        "group of 2, at most 0 bits apart",
        str(again),
        str(album / "cats" / "2.png"),
    ]
    assert result.stderr == "1 group within 2 bits\n"
    Image.fromarray(SCENES.pixels[9]).save(again)
    result = call("duplicates", "photos.bp")
    assert result.stdout == ""
    assert result.stderr == "0 groups within 2 bits; 1 by codes alone\n"


def test_the_default_radius_depends_on_the_code_length(album):
    paths = sorted(str(path) for path in album.rglob("*.*"))
    with bp.Index.create("photos.bp", bits=256) as index:
        index.add(paths, bp.Codes.from_signs([[1] * 256] * len(paths)), paths=paths)
    assert "within 48 bits" in call("duplicates", "photos.bp").stderr
    assert "within 16 bits" in call("duplicates", "photos.bp", "--codes-alone").stderr
    assert "within 5 bits" in call("duplicates", "photos.bp", "-r", 5).stderr


def test_duplicates_by_codes_alone(album):
    paths = one_code_for_all(album)
    [group] = json.loads(run("duplicates", "photos.bp", "--codes-alone", "--json"))
    assert group == {"ids": paths, "distance": 0}
    for path in paths:
        Path(path).unlink()
    result = call("duplicates", "photos.bp", "--codes-alone")
    assert result.stdout.count("\n") == 7
    assert result.stderr == "1 group within 2 bits\n"
    result = call("duplicates", "photos.bp", "--json")
    assert json.loads(result.stdout) == []
    for path in paths:
        assert f"skipped {path}: no such file\n" in result.stderr
    assert "6 images skipped; --codes-alone compares codes without images\n" in result.stderr


def test_a_log_reports_the_number_of_compared_images(album, monkeypatch):
    monkeypatch.setattr("bitprint.training.progress._PAUSE", 0.0)
    one_code_for_all(album)
    assert "comparing images: 6 of 6\n" in call("duplicates", "photos.bp").stderr


def test_help_of_duplicates_explains_the_comparison():
    text = " ".join(call("duplicates", "--help").stdout.replace("│", " ").split())
    assert "confirmed by comparing pixels" in text
    assert "groups can contain different images with similar content" in text
    assert "--codes-alone" in text


def save_codes(codes, ids, name="codes"):
    codes.save(name)
    Path(f"{name}.ids.txt").write_text("".join(f"{line}\n" for line in ids))


def test_ids_that_are_not_utf8_are_kept():
    codes, names = bp.Codes.from_signs([[1, 1], [1, -1]]), ["caf\udce9.png", "b.png"]
    file = Path("sub", "codes")
    write_codes(codes, names, file)
    assert is_codes(file)
    assert bp.Codes.load(file) == codes
    assert Path("sub", "codes.ids.txt").read_bytes() == b"caf\xe9.png\nb.png\n"
    assert read_ids(file, 2) == names


def test_a_full_disk_is_reported_with_the_name_of_the_codes(monkeypatch):
    def disk_full(descriptor):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", disk_full)
    with pytest.raises(OSError, match=r"^codes: no space left on this disk"):
        write_codes(bp.Codes.from_signs([[1, 1]]), ["a"], Path("codes"))
    assert list(Path().iterdir()) == []


@pytest.mark.parametrize("height", [123, 379, 635, 891])
def test_a_gif_of_any_height_is_not_a_codes_file(height):
    Image.new("L", (5, height)).save("tall.gif")
    assert Path("tall.gif").read_bytes()[8:9] == b"{"
    assert not is_codes(Path("tall.gif"))


@pytest.mark.parametrize("k", [10**12, 10**20])
def test_k_above_the_size_returns_all(k):
    codes = bp.Codes.from_signs([[1, 1], [1, -1], [-1, -1]])
    save_codes(codes, ["a", "b", "c"])
    run("index", "add", "a.bp", "codes")
    save_codes(codes[:1], ["first"], "queries")
    found = json.loads(run("search", "a.bp", "queries", "-k", k, "--json"))
    assert [hit["id"] for hit in found[0]["results"]] == ["a", "b", "c"]
    with bp.Index.open("a.bp") as index, pytest.raises(ValueError, match="k is at most"):
        index.search(codes, k)


def test_ids_with_line_breaks_are_kept():
    names = ["a\r.png", "b\n.png", "\n\r\n", "c\\n.png"]
    codes = bp.Codes.from_signs([[1, 1]] * 4)
    write_codes(codes, names, Path("codes"))
    assert read_ids(Path("codes"), 4) == names
    assert Path("codes.ids.txt").read_bytes().count(b"\n") == 4
    run("index", "add", "a.bp", "codes")
    with bp.Index.open("a.bp") as index:
        assert index.ids().tolist() == names


def test_ids_can_end_with_crlf():
    write_codes(bp.Codes.from_signs([[1, 1]] * 2), ["a", "b"], Path("codes"))
    Path("codes.ids.txt").write_bytes(b"a\r\nb\r\n")
    assert read_ids(Path("codes"), 2) == ["a", "b"]


def test_codes_of_any_hasher(tmp_path):
    codes = bp.create("lsh", bits=24).fit(SCENES).encode(SCENES)
    save_codes(codes, [f"img/{number}" for number in range(24)])
    assert run("index", "add", "codes.bp", "codes").splitlines() == ["24 new, 24 in the index"]
    save_codes(codes[5:7], ["first", "second"], "queries")
    results = json.loads(run("search", "codes.bp", "queries", "-k", 2, "--json"))
    assert [result["query"] for result in results] == ["first", "second"]
    with bp.Index.open("codes.bp") as index:
        ids, distances = index.search(codes[5:7], k=2)
    for row, result in enumerate(results):
        assert [hit["id"] for hit in result["results"]] == ids[row].tolist()
        assert [hit["distance"] for hit in result["results"]] == distances[row].tolist()
    assert run("search", "codes.bp", "queries", "-k", 1).splitlines()[:2] == [
        "first:",
        f"   0  {ids[0, 0]}",
    ]
    assert run("index", "remove", "codes.bp", "img/5", "img/6").splitlines() == [
        "2 removed, 22 in the index"
    ]
    assert "no id 'img/5'" in refused("index", "remove", "codes.bp", "img/5")
    save_codes(codes[7:8], ["again"], "twin")
    run("index", "add", "codes.bp", "twin")
    result = call("duplicates", "codes.bp", "-r", 0, "--json")
    assert {"ids": ["img/7", "again"], "distance": 0} in json.loads(result.stdout)
    assert " codes without an image file, compared by codes alone\n" in result.stderr


def test_models_do_not_mix(album, model, tmp_path):
    run("index", "add", "photos.bp", album, "--model", model)
    run("index", "add", "photos.bp", album, "--model", model)
    other = tmp_path / "other"
    bp.create("itq", bits=32, seed=1).fit(SCENES).save(other)
    assert "cannot be compared" in refused("index", "add", "photos.bp", album, "--model", other)
    assert "32 bits, not 48" in refused("index", "add", "photos.bp", album, "--bits", 48)
    save_codes(bp.Codes.from_signs([[1] * 32]), ["a"])
    assert "does not record its model" in refused("index", "add", "photos.bp", "codes")
    run("index", "add", "codes.bp", "codes")
    assert "without a model" in refused("index", "add", "codes.bp", album)
    assert "without a model" in refused("search", "codes.bp", album / "cats" / "0.png")


def test_errors_name_what_is_missing(album, model):
    assert "nowhere: no such folder or file" in refused("index", "add", "a.bp", "nowhere")
    assert "no such index" in refused("index", "info", "a.bp")
    assert "no such index" in refused("search", "a.bp", album / "cats" / "0.png")
    assert "not a model folder" in refused("index", "add", "a.bp", album, "--model", "nowhere")
    assert not Path("a.bp").exists()
    run("index", "add", "a.bp", album, "--model", model)
    assert "no such image file" in refused("search", "a.bp", "nowhere.jpg")
    assert f"{album}: is a folder; give one image file" in refused("search", "a.bp", album)
    Path("empty").mkdir()
    assert "empty: no images found" in refused("index", "add", "b.bp", "empty", "--model", model)
    assert "empty: no images found" in refused("index", "add", "b.bp", "empty")
    assert not Path("b.bp").exists()
    bp.Codes.from_signs([[1] * 32]).save("codes")
    assert json.loads(run("search", "a.bp", "codes", "-k", 1, "--json"))[0]["query"] == "0"
    assert "codes.ids.txt: no such file" in refused("index", "add", "b.bp", "codes")
    Path("codes.ids.txt").write_text("a\nb\n")
    assert "2 ids for 1 code;" in refused("index", "add", "b.bp", "codes")


def test_images_of_a_new_index_are_listed_once(album, model, monkeypatch):
    listed = []

    def walk(top, **options):
        listed.append(top)
        return os_walk(top, **options)

    os_walk = os.walk
    monkeypatch.setattr(os, "walk", walk)
    assert "6 new" in run("index", "add", "photos.bp", album, "--model", model)
    assert listed == [album.resolve()]


@pytest.mark.parametrize("options", [(), ("--model", "run")])
def test_without_a_readable_image_no_index_is_created(model, options):
    error = refused("index", "add", "new.bp", "-", *options, given="nowhere.jpg\n")
    missing = Path("nowhere.jpg").resolve()
    assert error == f"the list: no image can be read; the first, {missing}: no such file"
    assert not Path("new.bp").exists()


@pytest.mark.parametrize(
    "arguments",
    [
        ("index",),
        ("index", "a.bp"),
        ("index", "frobnicate", "a.bp"),
        ("index", "a.bp", "info"),
        ("index", "add", "a.bp"),
        ("index", "copy", "a.bp"),
        ("index", "copy", "a.bp", "b.bp", "c.bp"),
        ("index", "remove", "a.bp"),
        ("index", "info", "a.bp", "extra"),
        ("index", "info", "a.bp", "--bits", "8"),
        ("index", "sync", "a.bp", "--model", "run"),
        ("index", "add", "a.bp", ".", "--bits", "0"),
        ("index", "add", "a.bp", ".", "--bits", "8", "--model", "run"),
        ("search", "a.bp"),
        ("duplicates",),
    ],
)
def test_usage_errors_exit_with_2(arguments):
    assert call(*arguments).exit_code == 2


def test_an_unknown_label_is_reported(album, model):
    run("index", "add", "photos.bp", album, "--model", model)
    query = album / "cats" / "0.png"
    result = call("search", "photos.bp", query, "--label", "unicorn")
    assert (result.exit_code, result.stdout) == (0, "")
    assert "no image has the label unicorn" in result.stderr
    assert found("search", "photos.bp", query, "--label", "unicorn") == []
    assert "no image" not in call("search", "photos.bp", query, "--label", "cats").stderr


@pytest.mark.parametrize(("action", "missing"), [("remove", "NAMES"), ("copy", "TARGET")])
def test_index_action_without_an_argument_names_it(action, missing):
    assert f"Missing argument '{missing}'" in call("index", action, "a.bp").stderr


@pytest.mark.parametrize(
    ("typed", "answer"),
    [
        (("a.bp", "add", "my photos"), "add a.bp 'my photos'"),
        (("a.bp", "add", ".", "--bits", "8"), "add a.bp . --bits 8"),
        (("a.bp", "copy", "b.bp"), "copy a.bp b.bp"),
        (("a.bp", "info"), "info a.bp"),
    ],
)
def test_index_with_the_action_second_names_the_command(typed, answer):
    result = call("index", *typed)
    assert result.exit_code == 2
    printed = " ".join(result.stderr.replace("│", " ").split())
    assert f"the action comes first: bitprint index {answer} " in printed
    assert list(Path().iterdir()) == []


def test_index_file_named_like_an_action_is_an_index():
    bp.Index.create("copy", bits=12).close()
    assert run("index", "info", "copy").startswith("0 in the index\n")
    run("index", "copy", "copy", "info")
    assert run("index", "info", "info").startswith("0 in the index\n")


def test_interrupted_command_prints_how_to_resume(album, model, monkeypatch):
    def interrupt(*arguments, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr(Photos, "add", interrupt)
    result = call("index", "add", "photos.bp", album, "--model", model)
    assert result.exit_code == 130
    assert "run the same command again" in result.stderr


def test_changed_labels_are_reported(album, model):
    names = [f"cats/{number}.png" for number in (0, 2)]
    Path("list.csv").write_text("file,label\n" + "".join(f"{album}/{name},tom\n" for name in names))
    run("index", "add", "photos.bp", album, "--model", model)
    assert "0 new, 2 unchanged, 2 relabeled, 0 skipped, 6 in the index" in (
        run("index", "add", "photos.bp", "list.csv")
    )
    assert "0 new, 2 unchanged, 0 skipped" in run("index", "add", "photos.bp", "list.csv")
    assert json.loads(run("index", "add", "photos.bp", "list.csv", "--json"))["relabelled"] == 0


def test_the_defaults_in_the_help_are_those_of_photos():
    assert (_adding.BITS, _adding.FEW) == (choosing.BITS, choosing.FEW)


def test_a_hit_that_is_removed_meanwhile_is_searched_for_again(album, model, monkeypatch):
    run("index", "add", "photos.bp", album, "--model", model)
    search, gone = bp.Index.search, str((album / "cats" / "2.png").resolve())

    def search_and_remove(self, *arguments):
        found = search(self, *arguments)
        if gone in self.ids():
            with bp.Index.open("photos.bp") as other:
                other.remove([gone])
        return found

    monkeypatch.setattr(bp.Index, "search", search_and_remove)
    names = found("search", "photos.bp", gone, "-k", 6)
    assert len(names) == 5
    assert "2.png" not in names
