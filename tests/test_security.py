"""Nothing that is read is executed, and hostile files are refused before they cost anything."""

import ast
import hashlib
import io
import json
import sqlite3
import struct
import tarfile
from contextlib import closing
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save

import bitprint as bp
from bitprint.codes import Codes, _checksum
from bitprint.data.cifar10 import FILES
from bitprint.data.cifar10_fetch import fetch_cifar10
from bitprint.search.file import Header, IndexFile, checksum
from bitprint.search.index import Index

ROOT = Path(__file__).parents[1]
SOURCES = sorted(path for part in ("src", "soak", "fuzz") for path in (ROOT / part).rglob("*.py"))
# Each of these can execute what it reads.
MODULES = {"pickle", "cPickle", "_pickle", "dill", "cloudpickle", "joblib", "shelve", "marshal"}


def dangers(source):
    """What a piece of source does that may execute data, as (line, what)."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            named = {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            named = {(node.module or "").partition(".")[0]}
        else:
            named = set()
        yield from ((node.lineno, f"imports {name}") for name in named & MODULES)
        if isinstance(node, ast.Call):
            yield from ((node.lineno, what) for what in dangers_of_call(node))


def dangers_of_call(call):
    given = {keyword.arg: ast.unparse(keyword.value) for keyword in call.keywords}
    called = ast.unparse(call.func)
    if called in ("eval", "exec", "__import__", "builtins.eval", "builtins.exec"):
        yield f"calls {called}"
    if called == "torch.load" and given.get("weights_only") != "True":
        yield "torch.load without weights_only=True"
    if given.get("allow_pickle", "False") != "False":
        yield "allow_pickle"
    if called in ("yaml.load", "yaml.unsafe_load", "yaml.full_load", "os.system", "os.popen"):
        yield f"calls {called}"
    if given.get("shell", "False") != "False":
        yield "a shell"
    if given.get("trust_remote_code", "False") != "False":
        yield "trust_remote_code"
    if called.endswith(".extractall") and "filter" not in given:
        yield f"{called} without a filter"


def test_nothing_in_the_sources_executes_what_it_reads():
    assert len(SOURCES) > 100
    found = [
        f"{path.relative_to(ROOT)}:{line}: {what}"
        for path in SOURCES
        for line, what in dangers(path.read_text("utf-8"))
    ]
    assert found == []


@pytest.mark.parametrize(
    "source",
    [
        "import pickle",
        "from pickle import loads",
        "import os, joblib.numpy_pickle",
        "eval('1')",
        "exec(text)",
        "torch.load(path)",
        "torch.load(path, weights_only=False)",
        "np.load(path, allow_pickle=True)",
        "np.load(path, allow_pickle=wanted)",
        "yaml.load(text)",
        "os.system('ls')",
        "subprocess.run('ls', shell=True)",
        "AutoModel.from_pretrained(name, trust_remote_code=True)",
        "tar.extractall(folder)",
    ],
)
def test_the_search_finds_what_it_is_for(source):
    assert list(dangers(source))


@pytest.mark.parametrize(
    "source",
    [
        "net.eval()",
        "torch.load(path, weights_only=True)",
        "np.load(path, mmap_mode='r')",
        "np.save(file, array, allow_pickle=False)",
        "tar.extractfile(member)",
        "'import pickle'",
    ],
)
def test_the_search_finds_nothing_else(source):
    assert not list(dangers(source))


# Codes


def codes_file(path, header):
    encoded = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(encoded)) + encoded + bytes(64))
    return path


@pytest.mark.parametrize(
    "header",
    [
        {"packed": {"dtype": "U8", "shape": [2**40, 2**20], "data_offsets": [0, 2**60]}},
        {"packed": {"dtype": "U8", "shape": [2**62], "data_offsets": [0, 64]}},
        {"packed": {"dtype": "U8", "shape": [-1, 8], "data_offsets": [0, 64]}},
        {"packed": {"dtype": "O", "shape": [8, 8], "data_offsets": [0, 64]}},
        {"packed": {"dtype": "U8", "shape": [8, 8], "data_offsets": [64, 0]}},
        b"[" * 100_000,
    ],
)
def test_codes_that_declare_the_impossible_are_refused(tmp_path, header):
    with pytest.raises(ValueError, match="codes: not a codes file"):
        Codes.load(codes_file(tmp_path / "codes", header))


def test_a_header_longer_than_the_file_is_refused(tmp_path):
    (tmp_path / "codes").write_bytes(struct.pack("<Q", 2**62) + b"{}")
    with pytest.raises(ValueError, match="codes: not a codes file"):
        Codes.load(tmp_path / "codes")


@pytest.mark.parametrize(
    ("packed", "bits"),
    [
        (np.zeros((3, 2), np.float32), "12"),
        (np.zeros((3, 2), np.uint8), "1000000000000"),
        (np.zeros((3, 2), np.uint8), "-4"),
        (np.zeros((3, 2), np.uint8), "twelve"),
        (np.full((3, 2), 255, np.uint8), "12"),
    ],
)
def test_codes_of_the_wrong_kind_are_refused_though_their_checksum_fits(tmp_path, packed, bits):
    facts = {"format": "bitprint.codes", "version": "1", "bits": bits}
    content = save({"packed": packed}, facts | {"sha256": _checksum(packed, bits)})
    (tmp_path / "codes").write_bytes(content)
    with pytest.raises(ValueError, match=r"codes: .* bits") as caught:
        Codes.load(tmp_path / "codes")
    assert "\n" not in str(caught.value)


# Models


@pytest.fixture
def model(tmp_path):
    """A folder with a model, and a function that changes its description and weights."""
    features = np.random.default_rng(0).normal(size=(40, 6))
    bp.create("itq", bits=4).fit(features).save(tmp_path)

    def change(weights=None, **changes):
        document = json.loads((tmp_path / "model.json").read_bytes()) | changes
        if weights is not None:
            (tmp_path / "model.safetensors").write_bytes(weights)
            document["sha256"] = hashlib.sha256(weights).hexdigest()
        (tmp_path / "model.json").write_text(json.dumps(document))
        return tmp_path

    return change


@pytest.mark.parametrize(
    "changes",
    [
        {"method": "../../evil"},
        {"method": "os.system"},
        {"method": ["itq"]},
        {"options": {"bits": 10**15}},
        {"options": {"bits": 4, "__class__": "x"}},
        {"options": "bits"},
        {"fitted": {"encode": "x", "n_features_in_": 6}},
        {"fitted": {"_project": "x", "n_features_in_": 6}},
        {"fitted": {"n_features_in_": 10**15}},
        {"fitted": None},
        {"weights": save({"rotation_": np.zeros((4, 4), np.int8)})},
        {"weights": save({"__class__": np.zeros(3)})},
        {"weights": struct.pack("<Q", 2**62) + b"{}"},
        {"weights": b"\x80\x04\x95" + bytes(30)},
    ],
)
def test_a_hostile_model_is_refused_though_its_checksum_fits(model, changes):
    with pytest.raises(ValueError, match="model") as caught:
        bp.load(model(**changes))
    assert "\n" not in str(caught.value)


def test_the_hostile_models_were_models_before(model):
    assert bp.load(model()).bits == 4


def test_a_deep_model_of_other_widths_is_refused_in_one_sentence(tmp_path):
    features, labels = np.random.default_rng(0).normal(size=(20, 6)), np.arange(20) % 2
    bp.create("dpsh", bits=4, epochs=1, device="cpu").fit(features, labels).save(tmp_path)
    document = json.loads((tmp_path / "model.json").read_bytes())
    assert bp.load(tmp_path).bits == document["options"]["bits"] == 4
    document["options"]["bits"] = 5
    (tmp_path / "model.json").write_text(json.dumps(document))
    with pytest.raises(
        ValueError, match=r"does not describe its weights \(.*size mismatch"
    ) as caught:
        bp.load(tmp_path)
    assert "\n" not in str(caught.value)


# Indexes


@pytest.fixture
def index(tmp_path):
    """An index of two codes, and a function that changes its header."""
    path = tmp_path / "a.bp"
    with Index.create(path, 16) as opened:
        opened.add([1, 2], Codes(np.zeros((2, 2), np.uint8), 16), ["a.png", "b.png"])
    header = asdict(_open_header(path))

    def change(**changes):
        rows = {key: json.dumps(value) for key, value in (header | changes).items()}
        rows |= {"format": "bitprint.index", "version": "1"}
        rows["checksum"] = str(checksum(*sorted(rows.items())))
        with closing(sqlite3.connect(path)) as db, db:
            db.executemany("INSERT OR REPLACE INTO meta VALUES (?, ?)", rows.items())
        return path

    return change


def _open_header(path):
    file = IndexFile(path, timeout=1)
    try:
        return file.header()
    finally:
        file.close()


def test_an_index_whose_header_is_written_anew_is_read(index):
    with Index.open(index()) as opened:
        assert opened.ids().tolist() == [1, 2]


@pytest.mark.parametrize(
    "changes",
    [
        {"total": 10**13},
        {"total": -5},
        {"total": "2"},
        {"total": None},
        {"live": 10**15},
        {"bits": 10**9},
        {"bits": 0},
        {"bits": "16"},
        {"kind": "string"},
        {"kind": ["integer"]},
        {"generation": -1},
    ],
)
def test_a_hostile_header_is_refused_though_its_checksum_fits(index, changes):
    with pytest.raises(ValueError, match=r"a\.bp: the file is damaged"):
        Index.open(index(**changes))


def test_a_header_whose_rows_are_not_text_is_refused(index):
    path = index()
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("UPDATE meta SET key = X'00' WHERE key = 'live'")
    with pytest.raises(ValueError, match=r"a\.bp: the file is damaged \(its header"):
        Index.open(path)


def test_a_chunk_that_declares_more_than_it_holds_is_refused(tmp_path):
    path = tmp_path / "a.bp"
    Index.create(path, 16).close()
    place, blobs = (0, 10**12, 0), (bytes(4), bytes(16))
    file = IndexFile(path, timeout=1)
    with file.writing():
        file.db.execute(
            "INSERT INTO chunks VALUES (?, ?, ?, ?, ?, ?)",
            (*place, checksum(*place, *blobs), *blobs),
        )
        file.write_header(Header(16, None, "integer", 1, 0, total=10**12, live=10**12))
    file.close()
    with pytest.raises(ValueError, match=r"a\.bp: the file is damaged"):
        Index.open(path)


# Archives


def test_an_archive_writes_nothing_but_what_it_is_asked_for(tmp_path):
    archive, root = tmp_path / "a.tar.gz", tmp_path / "inside" / "cifar10"
    with tarfile.open(archive, "w:gz") as tar:
        for name in ("../../evil.bin", "/evil.bin", f"{tmp_path}/evil.bin"):
            member = tarfile.TarInfo(name)
            member.size = 4
            tar.addfile(member, io.BytesIO(b"evil"))
        for name in FILES:
            link = tarfile.TarInfo(f"cifar-10-batches-bin/{name}")
            link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
            tar.addfile(link)
    with pytest.raises(ValueError, match="no archive of CIFAR-10"):
        fetch_cifar10(root, archive)
    assert list(root.iterdir()) == []
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.tar.gz", "inside"]
    assert not Path("/evil.bin").exists()


def test_a_member_that_declares_an_enormous_size_is_not_read(tmp_path):
    archive = tmp_path / "a.tar.gz"
    with tarfile.open(archive, "w:gz") as tar:
        member = tarfile.TarInfo("cifar-10-batches-bin/data_batch_1.bin")
        member.size = 2**40
        tar.fileobj.write(member.tobuf())
    with pytest.raises(ValueError, match="archive"):
        fetch_cifar10(tmp_path / "cifar10", archive)
