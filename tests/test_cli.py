import io
import json
import os
import re
import shutil
import subprocess
import sys
import time
import warnings

import numpy as np
import pytest
from PIL import Image, ImageOps
from rich.console import Console
from typer.testing import CliRunner

import bitprint as bp
from bitprint import cli
from bitprint.cli import _shared
from bitprint.cli._codes import read_ids
from bitprint.data import ImageSet
from bitprint.experiments.cells import KEY
from bitprint.experiments.tables import experiment_cells
from bitprint.training.progress import EpochBar

FAST = ["--set", "epochs=2", "--set", "optimizer=adamw", "--set", "lr=0.002"]


def run(*arguments, expect=0):
    """Run a command in this process; return its standard output."""
    result = CliRunner().invoke(cli.app, [str(argument) for argument in arguments])
    assert result.exit_code == expect, result.output
    return result.stdout


def fails(monkeypatch, capsys, *arguments):
    """Run a command that must fail with exit code 1; return its error line."""
    monkeypatch.setattr(sys, "argv", ["bitprint", *map(str, arguments)])
    with pytest.raises(SystemExit) as stop:
        cli.main()
    assert stop.value.code == 1
    sentence = capsys.readouterr().err.strip().splitlines()[-1]
    assert sentence.startswith("bitprint: ")
    return sentence


@pytest.fixture
def photos(tmp_path):
    """A folder with two classes of ten images each, and one file that is not an image."""
    rng = np.random.default_rng(0)
    for name, colour in (("red", (220, 30, 30)), ("blue", (30, 30, 220))):
        (tmp_path / "photos" / name).mkdir(parents=True)
        for i in range(10):
            noise = rng.integers(-30, 30, (24, 24, 3))
            pixels = np.clip(np.array(colour) + noise, 0, 255).astype(np.uint8)
            Image.fromarray(pixels).save(tmp_path / "photos" / name / f"{i}.png")
    (tmp_path / "photos" / "red" / "broken.jpg").write_bytes(b"not a picture")
    return tmp_path / "photos"


@pytest.fixture(autouse=True)
def own_home(tmp_path, monkeypatch):
    monkeypatch.setenv("BITPRINT_DATA", str(tmp_path / "home"))


def test_the_version_is_printed():
    assert run("--version") == f"bitprint {bp.__version__}\n"


def test_methods_lists_the_registry():
    names = [row["name"] for row in json.loads(run("methods", "--json"))]
    assert names == bp.list_methods()
    assert "dsdh" in run("methods")


def test_data_describes_an_embedded_set():
    about = json.loads(run("data", "digits", "--json"))
    assert about["images"] == 1797
    assert about["classes"] == list("0123456789")
    assert "1797 images of 8 x 8" in run("data", "digits")


def test_data_lists_unreadable_files(photos):
    result = CliRunner().invoke(cli.app, ["data", str(photos), "--json"])
    about = json.loads(result.stdout)
    assert about["images"] == 20
    assert [file for file, _ in about["skipped"]] == ["red/broken.jpg"]
    assert "skipped red/broken.jpg" in result.stderr
    assert "1 file skipped, 20 images read" in result.stderr


def test_unsupported_formats_are_reported_by_every_command(photos, tmp_path):
    for name in ("red/a.dng", "blue/b.DNG", "c.jxl", ".hidden.dng"):
        (photos / name).write_bytes(b"...")
    line = "3 images in unsupported formats left out (2 .dng, 1 .jxl)"
    model = tmp_path / "itq"
    learn = ["train", photos, "--method", "itq", "--bits", 8, "--features", "pixels"]
    for command in (
        ["data", photos],
        [*learn, "--out", model],
        ["encode", model, photos, tmp_path / "codes"],
        ["evaluate", model, photos, "--protocol", 1],
    ):
        result = CliRunner().invoke(cli.app, [str(word) for word in command])
        assert result.stderr.splitlines().count(line) == 1, command
    about = json.loads(run("data", photos, "--json"))
    assert about["left_out"] == ["blue/b.DNG", "c.jxl", "red/a.dng"]


def test_a_log_has_lines_of_progress(photos, monkeypatch):
    monkeypatch.setattr("bitprint.training.progress._PAUSE", 0.0)
    result = CliRunner().invoke(cli.app, ["data", str(photos), "--json"])
    assert json.loads(result.stdout)["images"] == 20
    assert f"reading {photos}: 21 of 21" in result.stderr


def test_control_characters_in_skipped_names_are_escaped(photos):
    (photos / "red" / "a\x1b[2J.jpg").write_text("no picture")
    result = CliRunner().invoke(cli.app, ["data", str(photos), "--json"])
    assert r"skipped red/a\x1b[2J.jpg" in result.stderr
    assert "\x1b" not in result.stderr


def test_train_evaluate_encode(tmp_path):
    out = tmp_path / "run"
    run("train", "digits", "--bits", 12, "--backbone", "small", "--out", out, *FAST)
    assert (out / "metrics.csv").read_text().count("\n") == 3
    report = json.loads(run("evaluate", out, "digits", "--json"))
    assert report["queries"] == 185
    assert 0.1 < report["map"] <= 1
    assert "MAP" in run("evaluate", out, "digits", "--plots", tmp_path / "plots")
    assert list((tmp_path / "plots").glob("*.png"))
    run("encode", out, "digits", "--out", tmp_path / "codes")
    codes = bp.Codes.load(tmp_path / "codes")
    assert (len(codes), codes.bits) == (1797, 12)
    assert (tmp_path / "codes.ids.txt").read_text().splitlines() == [str(i) for i in range(1797)]


def test_names_that_are_not_utf8_are_trained_on_and_encoded(photos, tmp_path):
    strange = photos / os.fsdecode(b"caf\xe9")
    (photos / "red").rename(strange)
    (strange / "0.png").rename(strange / os.fsdecode(b"\xff\r\n.png"))
    out, codes = tmp_path / "run", tmp_path / "codes"
    run("train", photos, "--bits", 4, "--backbone", "small", "--out", out, *FAST)
    run("encode", out, photos, codes)
    run("encode", out, strange, tmp_path / "others")
    ids = read_ids(codes, 20)
    assert len(bp.Codes.load(codes)) == 20
    assert os.fsdecode(b"caf\xe9/\xff\r\n.png") in ids


def test_interrupted_training_prints_how_to_resume(tmp_path, monkeypatch):
    out = tmp_path / "run"
    command = ["train", "digits", "--bits", "8", "--backbone", "small", "--out", str(out), *FAST]
    with monkeypatch.context() as patch:
        patch.setattr(EpochBar, "finish_epoch", interrupt_at_the_second_epoch)
        result = CliRunner().invoke(cli.app, command)
    assert result.exit_code == 130
    assert "interrupted; run the same command again" in result.stderr
    unfinished = "its training is not finished; run the same `bitprint train` to resume"
    for arguments in (["evaluate", out, "digits"], ["encode", out, "digits", "codes"]):
        result = CliRunner().invoke(cli.app, [str(argument) for argument in arguments])
        assert f"{out}: {unfinished}" in str(result.exception)
    run(*command)
    assert "MAP" in run("evaluate", out, "digits")


def interrupt_at_the_second_epoch(bar, epochs, loss, speed):
    if epochs == 2:
        raise KeyboardInterrupt


def test_train_without_a_network(tmp_path):
    run("train", "digits", "--method", "lsh", "--bits", 24, "--out", tmp_path / "lsh")
    report = json.loads(run("evaluate", tmp_path / "lsh", "digits", "--json"))
    assert report["map"] > 0.2


def test_the_conventions_of_evaluate_are_options(tmp_path, photos):
    out = tmp_path / "lsh"
    train = ["train", photos, "--method", "lsh", "--bits", 8, "--features", "pixels"]
    run(*train, "--labels", split_without_answers(photos), "--out", out)
    evaluate = ["evaluate", out, photos, "--labels", photos / "labels.csv", "--json"]
    plain = json.loads(run(*evaluate))
    assert (plain["empty"], plain["radius"], plain["precision_at"]) == ("skip", 2, {})
    options = ["--empty", "zero", "--radius", 0, "--cutoffs", "4,2,400"]
    report = json.loads(run(*evaluate, *options))
    assert (report["empty"], report["radius"]) == ("zero", 0)
    assert list(report["precision_at"]) == list(report["recall_at"]) == ["2", "4"]
    assert report["empty_queries"] == plain["empty_queries"] == 2
    assert report["map"] == pytest.approx(plain["map"] / 2)
    assert report["precision_radius"] == report["pr_lookup"]["precision"][0]
    summary = run(*evaluate[:-1], *options)
    assert "precision, radius 0" in summary
    assert "2 queries without a relevant item, counted as 0" in summary
    assert "@2      @4" in summary


def split_without_answers(photos):
    """A CSV of labels and a split: two of four queries are of a class without other images."""
    rows = ["file,label,split"]
    for colour in ("red", "blue"):
        for i in range(10):
            split = "query" if i < 2 else "train"
            label = "green" if colour == "red" and i < 2 else colour
            rows.append(f"{colour}/{i}.png,{label},{split}")
    path = photos / "labels.csv"
    path.write_text("\n".join(rows) + "\n")
    return path


def test_train_on_gist(tmp_path):
    out = tmp_path / "run"
    run("train", "digits", "--method", "itq", "--features", "gist", "--bits", 12, "--out", out)
    report = json.loads(run("evaluate", out, "digits", "--json"))
    assert report["map"] > 0.2
    run("encode", out, "digits", "--out", tmp_path / "codes")
    assert len(bp.Codes.load(tmp_path / "codes")) == 1797


def test_options_override_the_recipe_on_a_folder(photos, tmp_path):
    out = tmp_path / "run"
    command = ["train", str(photos), "--features", "gist", "--bits", "8", "--out", str(out)]
    result = CliRunner().invoke(cli.app, [*command, "--set", "epochs=3", "--set", "eta=2.5"])
    assert result.exit_code == 0
    assert "mode=balanced" in result.stderr
    about = json.loads((out / "model.json").read_text())
    assert about["fitted"]["settings"]["mode"] == "balanced"
    assert "mode" not in about["options"]
    assert about["options"]["eta"] == 2.5
    assert about["options"]["epochs"] == 3
    assert about["fitted"]["settings"]["optimizer"] == "adamw"
    assert about["about"]["features"] == "gist"
    assert about["fitted"]["trunk"]["name"] == "mlp"


def test_the_recipe_option_chooses_the_settings(photos, tmp_path):
    for recipe, optimizer in [("original", "sgd"), ("paper", "adamw")]:
        command = ["train", photos, "--features", "gist", "--bits", 8, "--recipe", recipe]
        run(*command, "--out", tmp_path / recipe, "--set", "epochs=1")
        about = json.loads((tmp_path / recipe / "model.json").read_text())
        assert about["options"]["recipe"] == recipe
        assert about["fitted"]["settings"]["mode"] == "paper"
        assert about["fitted"]["settings"]["optimizer"] == optimizer


@pytest.mark.parametrize(
    ("options", "part"),
    [
        (["--set", "etta=1"], "etta"),
        (["--bits", "0"], "bits must be an integer"),
        (["--bits", "0", "--method", "itq"], "bits must be an integer"),
        (["--device", "tpu"], "unknown device 'tpu'"),
    ],
)
def test_wrong_options_are_refused_before_reading_images(options, part, tmp_path):
    command = ["train", str(tmp_path / "nowhere"), "--out", str(tmp_path / "run")]
    result = CliRunner().invoke(cli.app, [*command, *options])
    assert part in str(result.exception)


@pytest.mark.parametrize(
    ("folder", "part"), [("red", "sub-folder, or give a CSV file"), (".", "at least two")]
)
def test_fewer_than_two_classes_are_refused_before_training(folder, part, photos, tmp_path):
    shutil.rmtree(photos / "blue")
    result = CliRunner().invoke(cli.app, ["train", str(photos / folder), "--out", str(tmp_path)])
    assert part in str(result.exception)
    assert "settings" not in result.stderr
    assert "training" not in result.stderr


def test_evaluation_without_labels_explains_how_to_give_them(photos, tmp_path):
    out = tmp_path / "run"
    run("train", photos, "--method", "lsh", "--bits", 8, "--out", out)
    result = CliRunner().invoke(cli.app, ["evaluate", str(out), str(photos / "blue")])
    assert "sub-folder, or give a CSV file" in str(result.exception)


def test_own_folder_trains_on_all_images(photos, tmp_path):
    out = tmp_path / "run"
    run("train", photos, "--bits", 8, "--backbone", "small", "--out", out, *FAST)
    about = json.loads((out / "model.json").read_text())
    assert "protocol" not in about["about"]
    assert about["fitted"]["label_names"] == ["blue", "red"]


@pytest.fixture
def with_unlabeled(photos, tmp_path):
    """A copy of the folder with seven images outside of the class folders."""
    folder = tmp_path / "loose" / "photos"
    shutil.copytree(photos, folder)
    rng = np.random.default_rng(1)
    for number in range(7):
        pixels = rng.integers(0, 255, (24, 24, 3)).astype(np.uint8)
        Image.fromarray(pixels).save(folder / f"{number}.png")
    return folder


UNLABELED = "7 images without a label are left out"


@pytest.mark.parametrize(
    ("method", "protocol"), [("dsdh", None), ("dsdh", 2), ("sdh", 1), ("splh", None)]
)
def test_unlabeled_images_do_not_change_supervised_training(
    method, protocol, photos, with_unlabeled, tmp_path
):
    options = ["--method", method, "--features", "gist", "--bits", "8"]
    options += FAST[:2] if method == "dsdh" else []
    options += [] if protocol is None else ["--protocol", str(protocol)]
    models = []
    for folder in (photos, with_unlabeled):
        out = tmp_path / f"run of {folder.parent.name}"
        result = CliRunner().invoke(cli.app, ["train", str(folder), *options, "--out", str(out)])
        assert result.exit_code == 0, result.output
        assert (UNLABELED in result.stderr) == (folder == with_unlabeled)
        models.append((out / "model.safetensors").read_bytes())
        if protocol is not None:
            result = CliRunner().invoke(cli.app, ["evaluate", str(out), str(folder), "--json"])
            assert json.loads(result.stdout)["database"] == 18
            assert (UNLABELED in result.stderr) == (folder == with_unlabeled)
    assert models[0] == models[1]


def test_empty_labels_of_a_csv_are_left_out_of_training(photos, tmp_path):
    names = sorted(path.relative_to(photos).as_posix() for path in photos.rglob("*.png"))
    rows = [f"{name},{'' if name.endswith('7.png') else name[:3]}" for name in names]
    (tmp_path / "list.csv").write_text("\n".join(["file,label", *rows]))
    command = ["train", str(photos), "--method", "sdh", "--features", "gist", "--bits", "8"]
    command += ["--labels", str(tmp_path / "list.csv"), "--out", str(tmp_path / "run")]
    printed = CliRunner().invoke(cli.app, command).stderr
    assert "2 images without a label are left out" in printed
    assert "on 18 images" in printed


@pytest.mark.parametrize("protocol", [1, 2])
def test_unsupervised_methods_train_on_unlabeled_images(
    protocol, with_unlabeled, tmp_path, monkeypatch, capsys
):
    command = ["train", with_unlabeled, "--method", "itq", "--features", "gist", "--bits", 8]
    result = CliRunner().invoke(cli.app, [*map(str, command), "--out", str(tmp_path / "all")])
    assert "on 27 images" in result.stderr
    assert "trained on other images" in fails(
        monkeypatch, capsys, "evaluate", tmp_path / "all", with_unlabeled
    )
    run(*command, "--protocol", protocol, "--out", tmp_path / "part")
    report = json.loads(run("evaluate", tmp_path / "part", with_unlabeled, "--json"))
    assert (report["queries"], report["database"]) == (2, 18)


def test_train_prints_the_number_of_training_images(photos, tmp_path):
    command = ["train", str(photos), "--method", "lsh", "--bits", "8", "--out", str(tmp_path / "r")]
    assert "training on" not in CliRunner().invoke(cli.app, command).stderr
    names = sorted(path.relative_to(photos).as_posix() for path in photos.rglob("*.png"))
    parts = ["query", *["train"] * (len(names) - 1)]
    rows = [f"{name},{name[:3]},{part}" for name, part in zip(names, parts, strict=True)]
    (tmp_path / "split.csv").write_text("\n".join(["file,label,split", *rows]))
    command[-1] = str(tmp_path / "split")
    result = CliRunner().invoke(cli.app, [*command, "--labels", str(tmp_path / "split.csv")])
    line = f"protocol 1: training on {len(names) - 1} of {len(names)} images"
    assert line in result.stderr


@pytest.mark.usefixtures("cells_in_one_process")
def test_reproduce_prints_a_table_and_resumes(tmp_path):
    table = ["reproduce", "table1", "--dataset", "digits", "--methods", "lsh,itq", "--splits", 1]
    out = tmp_path / "table.csv"
    text = run(*table, "--bits", 12, "--out", out)
    assert "lsh" in text
    assert "itq" in text
    rows = out.read_text()
    assert rows.count("\n") == 3
    assert run(*table, "--bits", 12, "--out", out) == text
    assert out.read_text() == rows


@pytest.mark.usefixtures("cells_in_one_process")
def test_a_long_cell_has_lines_of_progress_in_a_log(tmp_path, monkeypatch):
    table = ["reproduce", "table1", "--dataset", "digits", "--methods", "dpsh,lsh", "--splits", 1]
    network = ["--backbone", "small", "--set", "epochs=2"]
    command = [*table, *network, "--bits", 12, "--out", tmp_path / "table.csv"]
    monkeypatch.setattr("bitprint.training.progress._PAUSE", 0.0)
    lines = CliRunner().invoke(cli.app, [*map(str, command)]).stderr.splitlines()
    printed = [line for line in lines if line.endswith("images/s") or line.endswith("epochs")]
    assert len(printed) > 2
    assert printed[-1].startswith("dpsh epochs=2, 12 bits, split 0: 2.0 of 2 epochs, loss ")


def test_running_cells_are_printed_without_a_terminal_only(tmp_path, monkeypatch):
    given = []

    def under_way(cells, table, *, progress, **options):
        given.append(progress)
        if progress:
            progress(cells[:2])
        return iter(())

    monkeypatch.setattr("bitprint.experiments.processes.run_cells", under_way)
    monkeypatch.setattr("bitprint.training.progress._PAUSE", 0.0)
    command = ["reproduce", "figure1", "--quick", "--out", str(tmp_path / "table.csv")]
    result = CliRunner().invoke(cli.app, command)
    line = r"cells: 0 of 8 after \d+ s, running dsdh-a, 12 bits, split 0; dsdh-b, 12 bits, split 0"
    assert re.fullmatch(line, result.stderr.splitlines()[0])
    monkeypatch.setattr("bitprint.cli.paper.errors", Console(stderr=True, force_terminal=True))
    assert CliRunner().invoke(cli.app, command).exit_code == 0
    assert given[1] is None


def test_interrupted_reproduction_prints_how_to_resume(tmp_path, monkeypatch):
    def interrupt(*arguments, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr("bitprint.experiments.processes.run_cells", interrupt)
    command = ["reproduce", "figure1", "--quick", "--out", str(tmp_path / "table.csv")]
    result = CliRunner().invoke(cli.app, command)
    assert result.exit_code == 130
    assert "interrupted; run the same command again" in result.stderr


def test_reproduce_reports_reruns_of_the_paper(tmp_path, monkeypatch):
    [cell] = experiment_cells("table2", methods="dpsh", bits=[16], splits=1)
    about = dict(zip(KEY, cell.key, strict=True))
    row = about | {"method": "dpsh", "map": 0.941, "map_at": "", "paper_map": 0.763}
    row |= {"precision_radius2": 0.9, "precision_at_100": 0.9}
    out = tmp_path / "table2.csv"
    out.write_text(",".join(row) + "\n" + ",".join(map(str, row.values())) + "\n")
    pixels = np.broadcast_to(np.uint8(0), (60_000, 1, 1, 3))
    images = ImageSet(pixels, np.arange(60_000) % 10, name="cifar10", protocol="cifar10")
    monkeypatch.setattr("bitprint.cli.paper.open_set", lambda *_: images)
    command = ["reproduce", "table2", "--methods", "dpsh", "--bits", 16, "--splits", 1]
    printed = " ".join(run(*command, "--out", out).split())
    again = "0.903 at 16 bits, 0.885 at 24 bits, 0.915 at 32 bits, 0.911 at 48 bits"
    assert again in printed
    assert again in out.with_suffix(".html").read_text()
    report = json.loads(run(*command, "--out", out, "--json"))
    assert report["entries"][0]["difference"] == 0.178
    assert again in " ".join(report["notes"])


def test_evaluation_on_training_images_is_refused(tmp_path, monkeypatch, capsys):
    out = tmp_path / "run"
    run("train", "digits", "--method", "lsh", "--bits", 8, "--out", out)
    error = fails(monkeypatch, capsys, "evaluate", out, "digits", "--seed", 1)
    assert "trained on other images" in error


@pytest.fixture
def digits_folder(tmp_path):
    """Sixty images of three classes."""
    digits = bp.data.load_digits()
    folder = tmp_path / "pictures"
    for number in range(60):
        label = folder / f"class {digits.labels[number] % 3}"
        label.mkdir(parents=True, exist_ok=True)
        Image.fromarray(digits.pixels[number]).save(label / f"{number:02}.png")
    return folder


def test_a_folder_is_recognized_by_any_path(digits_folder, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    out, copy = tmp_path / "run", tmp_path / "elsewhere" / "pictures"
    shutil.copytree(digits_folder, copy)
    train = ["train", "pictures", "--method", "lsh", "--features", "pixels", "--bits", 8]
    run(*train, "--out", out)
    for spelling in ("pictures", "./pictures", "pictures/", digits_folder, copy):
        error = fails(monkeypatch, capsys, "evaluate", out, spelling)
        assert "trained on other images" in error
    run(*train, "--protocol", 1, "--out", tmp_path / "split")
    for spelling in ("pictures", digits_folder, copy):
        run("evaluate", tmp_path / "split", spelling)


def test_a_renamed_image_changes_the_split(digits_folder, tmp_path, monkeypatch, capsys):
    out = tmp_path / "run"
    train = ["train", digits_folder, "--method", "lsh", "--features", "pixels", "--bits", 8]
    run(*train, "--protocol", 1, "--out", out)
    first = min((digits_folder / "class 0").iterdir())
    first.rename(first.with_name("zz.png"))
    assert "without adding, removing or renaming images" in fails(
        monkeypatch, capsys, "evaluate", out, digits_folder
    )


def test_other_images_with_the_same_names_are_a_different_set(digits_folder, tmp_path):
    out = tmp_path / "run"
    train = ["train", digits_folder, "--method", "lsh", "--features", "pixels", "--bits", 8]
    run(*train, "--out", out)
    other = tmp_path / "other" / "pictures"
    shutil.copytree(digits_folder, other)
    for file in other.rglob("*.png"):
        ImageOps.invert(Image.open(file)).save(file)
    report = json.loads(run("evaluate", out, other, "--json"))
    assert 0 < report["map"] <= 1


@pytest.mark.parametrize(
    "change",
    [
        ["--method", "itq"],
        ["--bits", 9],
        ["--seed", 1],
        ["--features", "gist"],
        ["--protocol", 1],
        ["--method", "dsdh", "--set", "epochs=1"],
    ],
)
def test_a_finished_run_of_another_kind_is_not_overwritten(
    change, digits_folder, tmp_path, monkeypatch, capsys
):
    out = tmp_path / "run"
    train = ["train", digits_folder, "--method", "lsh", "--bits", 8, "--features", "pixels"]
    train += ["--out", out]
    run(*train)
    before = (out / "model.json").read_bytes()
    assert f"{out}: contains a run with other options" in fails(
        monkeypatch, capsys, *train, *change
    )
    assert (out / "model.json").read_bytes() == before
    monkeypatch.chdir(tmp_path)
    run("train", f"./{digits_folder.name}", *train[2:])


def test_a_deep_run_is_not_overwritten_by_a_shallow_method(photos, tmp_path, monkeypatch, capsys):
    train = ["train", photos, "--bits", 8, "--features", "gist", "--out", tmp_path / "run"]
    run(*train, "--set", "epochs=1")
    assert "contains a run with other options" in fails(
        monkeypatch, capsys, *train, "--method", "lsh"
    )
    run(*train, "--set", "epochs=1")


@pytest.mark.parametrize("name", ["r[", "o[a]b", "[red]x"])
def test_brackets_in_names_are_printed_as_they_are(name, photos, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    photos.rename(tmp_path / name)
    out = f"{name}/runs[/q]"
    command = ["train", name, "--method", "lsh", "--bits", "8", "--out", out]
    result = CliRunner().invoke(cli.app, command)
    assert result.exit_code == 0, result.output
    assert f"model saved in {out}\n" in result.stderr


@pytest.mark.parametrize("name", ["r[/q]", "o[a]b"])
def test_brackets_in_the_title_of_a_bar(name, monkeypatch):
    screen = Console(file=io.StringIO(), force_terminal=True, width=100)
    monkeypatch.setattr(_shared, "errors", screen)
    with _shared.progress_bar(f"reading {name}") as progress:
        progress(1, 2)
    assert f"reading {name}" in re.sub(r"\x1b\[[0-9;]*m", "", screen.file.getvalue())


def test_too_many_bits_are_refused_before_computing_features(photos, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("bitprint.features.gist", None)
    train = ["train", photos, "--method", "itq", "--features", "gist", "--out", tmp_path / "run"]
    error = fails(monkeypatch, capsys, *train, "--bits", 513)
    assert "bits must be at most the number of features, got 513 bits for 512 feature(s)" in error


@pytest.mark.parametrize(
    ("option", "part"),
    [
        ("--top", "top must be an integer >= 1"),
        ("--protocol", "protocol must be 1 or 2, got 0"),
    ],
)
def test_zero_is_not_treated_as_an_omitted_option(option, part, tmp_path, monkeypatch, capsys):
    out = tmp_path / "run"
    run("train", "digits", "--method", "lsh", "--bits", 8, "--out", out)
    assert part in fails(monkeypatch, capsys, "evaluate", out, "digits", option, 0)


@pytest.mark.parametrize(
    ("option", "value", "part"),
    [
        ("--empty", "ignore", "empty must be one of skip, zero, got 'ignore'"),
        ("--ties", "random", "ties must be one of expected, stable"),
        ("--denominator", "v1", "denominator must be one of retrieved, total, min, got 'v1'"),
        ("--radius", -1, "radius must be an integer >= 0, got -1"),
        ("--cutoffs", "0,5", "every cutoff must be an integer >= 1, got 0"),
        ("--cutoffs", "10,many", "--cutoffs takes comma-separated integers, such as 10,100; got"),
    ],
)
def test_conventions_are_checked_before_images_are_read(
    option, value, part, tmp_path, monkeypatch, capsys
):
    out = tmp_path / "run"
    run("train", "digits", "--method", "lsh", "--bits", 8, "--out", out)
    assert part in fails(monkeypatch, capsys, "evaluate", out, "no/such/folder", option, value)


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (["train", "digits", "--out", "x", "--method", "nothing"], "unknown method 'nothing'"),
        (["train", "digits", "--out", "x", "--bits", 0], "bits must be an integer"),
        (["train", "digits", "--out", "x", "--set", "colour=1"], "choose from"),
        (
            ["train", "digits", "--out", "x", "--method", "ksh", "--set", "anchors=abc"],
            "ksh: anchors must be an integer, got 'abc'",
        ),
        (
            ["train", "digits", "--out", "x", "--method", "itq", "--set", 'iterations="x"'],
            "itq: iterations must be an integer, got 'x'",
        ),
        (
            ["train", "digits", "--out", "x", "--set", "eta=[1]"],
            "dsdh: eta must be a number, got [1]",
        ),
        (["train", "digits", "--out", "x", "--set", "mirror=no"], "mirror must be true or false"),
        (["train", "digits", "--out", "x", "--set", "seed=a"], "seed must be an integer"),
        (["train", "digits", "--out", "x", "--set", "eta=" + 9999 * "["], "eta must be a number"),
        (["train", "digits", "--out", "x", "--backbone", "nothing"], "nothing"),
        (["train", "digits", "--out", "x", "--protocol", 0], "protocol must be 1 or 2, got 0"),
        (
            ["train", "digits", "--out", "x", "--method", "lsh", "--backbone", "small"],
            "no backbone",
        ),
        (["train", "no/such/folder", "--out", "x"], "no such folder; use a folder of images, or"),
        (
            ["train", "digits", "--out", "x", "--labels", "a.csv"],
            "to open a folder of this name use ./digits",
        ),
        (["train", "cifar10", "--out", "x"], "run: bitprint data cifar10"),
        (["evaluate", "no/such/run", "digits"], "not a model folder"),
        (["data", "cifar10", "--from", "no/such/archive.tgz"], "no/such/archive.tgz"),
    ],
)
def test_bad_input_prints_one_line(arguments, part, monkeypatch, capsys, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert part in fails(monkeypatch, capsys, *arguments)


@pytest.mark.parametrize(
    ("options", "part"),
    [
        (["--out", "x", "--features", "sift"], "unknown features 'sift'"),
        (["--out", "x", "--backbone", "vgg"], "unknown backbone 'vgg'"),
        (["--out", "x", "--protocol", 3], "protocol must be 1 or 2, got 3"),
        (["--out", "notes.txt"], "notes.txt: is a file; give the name of a folder"),
        (
            ["--out", "x", "--features", "gist", "--backbone", "small"],
            "give features or backbone, not both",
        ),
    ],
)
def test_train_checks_options_before_it_reads_images(options, part, monkeypatch, capsys, tmp_path):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "notes.txt").write_text("keep")
    assert part in fails(monkeypatch, capsys, "train", "no/such/folder", *options)


def test_set_names_the_option_to_use_for_bits():
    result = CliRunner().invoke(cli.app, ["train", "digits", "--out", "x", "--set", "bits=4"])
    assert result.exit_code == 2
    assert "use --bits" in result.output


def test_progress_bar_stops_before_another_bar_starts(monkeypatch):
    screen = Console(file=io.StringIO(), force_terminal=True, width=100)
    monkeypatch.setattr(_shared, "errors", screen)
    with _shared.progress_bar("computing gist") as progress:
        progress(1, 2)
        progress(2, 2)
        written = screen.file.getvalue()
        time.sleep(0.3)  # a bar that runs would be drawn again
        assert screen.file.getvalue() == written
    assert "computing gist" in written


def with_about(model, **about):
    document = json.loads((model / "model.json").read_text())
    del document["about"]
    (model / "model.json").write_text(json.dumps(document | about))


def test_a_model_without_an_about_section_is_usable(photos, tmp_path):
    out = tmp_path / "run"
    bp.create("itq", bits=8).fit(bp.data.load_digits()).save(out, features="pixels")
    with_about(out)
    assert "MAP" in run("evaluate", out, "digits")
    run("encode", out, "digits", tmp_path / "codes")
    assert len(read_ids(tmp_path / "codes", 1797)) == 1797


@pytest.mark.parametrize("about", [[], {"size": "x"}, {"features": 1}, {"seed": True}])
def test_an_invalid_about_section_is_refused(about, tmp_path, monkeypatch, capsys):
    out = tmp_path / "run"
    bp.create("itq", bits=8).fit(bp.data.load_digits()).save(out)
    with_about(out, about=about)
    for command in (["evaluate", out, "digits"], ["encode", out, "digits", tmp_path / "codes"]):
        error = fails(monkeypatch, capsys, *command)
        assert error.endswith('run/model.json: invalid "about" section')


def test_usage_errors_exit_with_2():
    run("train", expect=2)
    run("train", "digits", "--out", "x", "--set", "epochs", expect=2)
    run("train", "digits", "--out", "x", "--set", "bits=12", expect=2)
    run("reproduce", "table1", "--quick", "--splits", 0, expect=2)
    run("reproduce", "table1", "--quick", "--workers", 0, expect=2)
    run("bench", "search", "--threads", 0, expect=2)


@pytest.mark.parametrize(
    "words",
    [
        ["index", "info", "no\x1b[2J\nsuch.bp"],
        ["evaluate", "no\x1b[2J\nsuch", "digits"],
        ["train", "no\x1b[2J\nsuch", "--out", "x"],
    ],
)
def test_control_characters_in_arguments_are_escaped(monkeypatch, capsys, words):
    assert r"no\x1b[2J\nsuch" in fails(monkeypatch, capsys, *words)


def test_control_characters_in_notes_are_escaped(tmp_path, capsys):
    out = tmp_path / "a\x1b[2J"
    result = CliRunner().invoke(
        cli.app, ["train", "digits", "--method", "lsh", "--bits", "8", "--out", str(out)]
    )
    assert r"model saved in" in result.stderr
    assert r"a\x1b[2J" in result.stderr
    assert "\x1b" not in result.stderr + result.stdout


def test_control_characters_in_warnings_are_escaped(monkeypatch, capsys):
    def warn():
        print(warnings.formatwarning("a\x1b[2J\nb", UserWarning, "file.py", 1), end="")

    monkeypatch.setattr(warnings, "formatwarning", None)  # set by `main`, restored by pytest
    monkeypatch.setattr(cli, "app", warn)
    cli.main()
    assert capsys.readouterr().out == "warning: a\\x1b[2J\\nb\n"


def test_debugging_shows_the_traceback(monkeypatch):
    monkeypatch.setenv("BITPRINT_DEBUG", "1")
    monkeypatch.setattr(sys, "argv", ["bitprint", "evaluate", "no/such/run", "digits"])
    with pytest.raises(FileNotFoundError):
        cli.main()


def test_help_does_not_load_torch():
    code = "import sys, bitprint.cli; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], env=os.environ).returncode == 0


def test_a_warning_is_one_line_without_a_code_location(tmp_path):
    folder = tmp_path / "same"
    for label in ("a", "b"):
        (folder / label).mkdir(parents=True)
        for number in range(6):
            Image.new("RGB", (32, 32), "white").save(folder / label / f"{number}.png")
    command = [sys.executable, "-c", "from bitprint.cli import main; main()", "train", folder]
    command += ["--method", "dpsh", "--bits", "8", "--out", tmp_path / "model", *FAST]
    command += ["--backbone", "cnnh", "--device", "cpu"]
    ended = subprocess.run(command, capture_output=True, text=True, check=True)
    warned = [line for line in ended.stderr.splitlines() if "the same code" in line]
    assert len(warned) == 1
    assert warned[0].startswith("warning: dpsh gives the same code to all of 12 training images")


def test_large_images_are_read_without_a_warning(tmp_path):
    (tmp_path / "large").mkdir()
    Image.new("1", (9_500, 9_500)).save(tmp_path / "large" / "a.png")
    command = [sys.executable, "-c", "from bitprint.cli import main; main()", "data"]
    ended = subprocess.run([*command, tmp_path / "large"], capture_output=True, text=True)
    assert ended.stdout.startswith("large: 1 image")
    assert "warning" not in ended.stderr


def test_progress_in_a_log_has_rate_and_time_left(monkeypatch, capsys):
    now = [0.0]
    monkeypatch.setattr("bitprint.training.progress._PAUSE", 0.0)
    monkeypatch.setattr("bitprint.training.progress.time.monotonic", lambda: now[0])
    monkeypatch.setattr(_shared, "errors", Console(file=io.StringIO()))
    with _shared.progress_bar("encoding") as progress:
        for now[0], done in ((1.0, 10), (3.0, 30)):
            progress(done, 90)
    lines = _shared.errors.file.getvalue().splitlines()
    assert lines == ["encoding: 10 of 90", "encoding: 30 of 90, 10.0/s, 6 s left"]
