"""No file content is executed, and malicious files are rejected early."""

import ast
import gzip
import hashlib
import io
import json
import re
import sqlite3
import struct
import tarfile
import tracemalloc
from contextlib import closing
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.numpy import save
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors

import bitprint as bp
from bitprint.codes import Codes, _checksum
from bitprint.data import ImageSet, load_folder
from bitprint.data.cifar10 import FILES
from bitprint.data.cifar10_fetch import fetch_cifar10
from bitprint.data.nuswide import CONCEPTS, IMAGE_LIST, read_nuswide_labels
from bitprint.photos import Photos
from bitprint.photos.encoder import Encoder
from bitprint.photos.files import list_pictures
from bitprint.photos.kept import KeptFeatures
from bitprint.quantised import QuantisedCodes
from bitprint.search.file import IndexFile, IndexHeader, checksum
from bitprint.search.index import Index
from bitprint.training.run import RunFolder
from bitprint.training.run import _checksum as checksum_of_run
from bitprint.training.state import State
from fuzz.index import fix_checksums
from fuzz.tensors import unpack

ROOT = Path(__file__).parents[1]
SOURCES = sorted(path for part in ("src", "soak", "fuzz") for path in (ROOT / part).rglob("*.py"))
# These modules can execute the data that they read.
MODULES = {"pickle", "cPickle", "_pickle", "dill", "cloudpickle", "joblib", "shelve", "marshal"}


def dangers(source):
    """Find code that can execute data, as (line, description)."""
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


def test_sources_do_not_execute_data():
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
def test_dangerous_source_is_found(source):
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
def test_harmless_source_is_not_found(source):
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
def test_codes_with_an_impossible_header_raise(tmp_path, header):
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


@pytest.mark.parametrize("extended", [False, True])
@pytest.mark.parametrize("dtype", ["BF16", "F8_E4M3", "I64"])
def test_types_unknown_to_numpy_raise(tmp_path, dtype, extended):
    if extended:
        pytest.importorskip("ml_dtypes")  # which adds these types to NumPy
    sizes = {"BF16": 2, "F8_E4M3": 1, "I64": 8}
    end, entry = 8 * sizes[dtype], {"dtype": dtype, "shape": [2, 4]}
    for name, load in (("codes", Codes.load), ("quantised", QuantisedCodes.load)):
        about = {"format": f"bitprint.{name}", "version": "1", "bits": "8"}
        names = ["packed"] if name == "codes" else ["indices", "codebooks"]
        tensors = {
            name: entry | {"data_offsets": [n * end, n * end + end]} for n, name in enumerate(names)
        }
        header = json.dumps({"__metadata__": about, **tensors}).encode()
        content = struct.pack("<Q", len(header)) + header + bytes(len(names) * end)
        (tmp_path / "file").write_bytes(content)
        with pytest.raises(ValueError, match=r"file: (not|invalid) "):
            load(tmp_path / "file")


def test_multi_line_name_gives_a_one_line_error(tmp_path):
    entries = {"a\nb": {"dtype": "U8", "shape": [2], "data_offsets": [1, 3]}}
    header = json.dumps(entries, ensure_ascii=False).encode()
    content = struct.pack("<Q", len(header)) + header + bytes(2)
    (tmp_path / "checkpoint").mkdir()
    (tmp_path / "checkpoint" / "last.safetensors").write_bytes(content)
    (tmp_path / "model.safetensors").write_bytes(content)
    about = {
        "format": "bitprint.model",
        "version": 1,
        "sha256": hashlib.sha256(content).hexdigest(),
    }
    (tmp_path / "model.json").write_text(json.dumps(about))
    net = torch.nn.Linear(1, 1)
    state = State(torch.arange(2), torch.eye(2), batch_size=2)
    for read in (
        lambda: Codes.load(tmp_path / "model.safetensors"),
        lambda: QuantisedCodes.load(tmp_path / "model.safetensors"),
        lambda: bp.load(tmp_path),
        lambda: RunFolder(tmp_path, "x").restore(net, torch.optim.SGD(net.parameters()), state),
    ):
        with pytest.raises(ValueError, match=re.escape(str(tmp_path))) as raised:
            read()
        assert "a\nb" in str(raised.value.__cause__)
        assert "\n" not in str(raised.value)


@pytest.mark.parametrize("version", ["1\n2", "", "one"])
def test_version_that_is_not_a_number_raises(tmp_path, version):
    packed = np.zeros((3, 2), np.uint8)
    facts = {"format": "bitprint.codes", "version": version, "bits": "12"}
    content = save({"packed": packed}, facts | {"sha256": _checksum(packed, "12")})
    (tmp_path / "codes").write_bytes(content)
    with pytest.raises(ValueError, match=r"codes: not a codes file$"):
        Codes.load(tmp_path / "codes")


@pytest.mark.parametrize(
    ("indices", "codebooks"),
    [
        (np.full((3, 2), 9, np.uint8), np.zeros((2, 4, 3), np.float32)),
        (np.zeros((3, 5), np.uint8), np.zeros((2, 4, 3), np.float32)),
        (np.zeros((3, 2), np.uint8), np.zeros((2, 3, 3), np.float32)),
    ],
)
def test_invalid_quantised_codes_raise(tmp_path, indices, codebooks):
    facts = {"format": "bitprint.quantised", "version": "1"}
    (tmp_path / "file").write_bytes(save({"indices": indices, "codebooks": codebooks}, facts))
    with pytest.raises(ValueError, match="file: invalid quantized codes"):
        QuantisedCodes.load(tmp_path / "file")


# Models

_ENTRY = b'{"mean_": {"dtype": "BF16", "shape": [1], "data_offsets": [0, 2]}}'
BFLOAT = struct.pack("<Q", len(_ENTRY)) + _ENTRY + bytes(2)


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
        {"weights": BFLOAT},
        {"version": "1\n2"},
        {"weights": b"\x80\x04\x95" + bytes(30)},
    ],
)
def test_a_hostile_model_is_refused_though_its_checksum_fits(model, changes):
    with pytest.raises(ValueError, match="model") as caught:
        bp.load(model(**changes))
    assert "\n" not in str(caught.value)


def test_the_unchanged_models_load(model):
    assert bp.load(model()).bits == 4


def test_a_deep_model_of_other_widths_is_refused_in_one_sentence(tmp_path):
    features, labels = np.random.default_rng(0).normal(size=(20, 6)), np.arange(20) % 2
    hasher = bp.create("dpsh", bits=4, backbone="mlp", epochs=1, device="cpu")
    hasher.fit(features, labels).save(tmp_path)
    document = json.loads((tmp_path / "model.json").read_bytes())
    assert bp.load(tmp_path).bits == document["options"]["bits"] == 4
    document["options"]["bits"] = 5
    (tmp_path / "model.json").write_text(json.dumps(document))
    message = r"does not match the weights \(head\.weight has shape \(4, 512\), not \(5, 512\)\)"
    with pytest.raises(ValueError, match=message) as caught:
        bp.load(tmp_path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("hidden", [[10**7], [10**12], [10**30], [512, 10**9], [512] * 9])
def test_huge_declared_network_allocates_no_memory(tmp_path, hidden):
    resource = pytest.importorskip("resource")
    features, labels = np.random.default_rng(0).normal(size=(20, 6)), np.arange(20) % 2
    bp.create("dpsh", bits=4, epochs=1, device="cpu").fit(features, labels).save(tmp_path)
    document = json.loads((tmp_path / "model.json").read_bytes())
    document["fitted"]["trunk"]["hidden"] = hidden
    (tmp_path / "model.json").write_text(json.dumps(document))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(ValueError, match="does not match the weights") as caught:
        bp.load(tmp_path)
    assert "\n" not in str(caught.value)
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before  # KiB
    assert grown < 100_000


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
        file.write_header(IndexHeader(16, None, "integer", 1, 0, total=10**12, live=10**12))
    file.close()
    with pytest.raises(ValueError, match=r"a\.bp: the file is damaged"):
        Index.open(path)


@pytest.mark.parametrize(
    "script",
    [
        # A view instead of a table, which would be read endlessly or many times.
        "ALTER TABLE meta RENAME TO old; CREATE VIEW meta AS WITH RECURSIVE n(key) AS "
        "(SELECT 1 UNION ALL SELECT key + 1 FROM n) SELECT key, key AS value FROM n",
        "ALTER TABLE meta RENAME TO old; CREATE VIEW meta AS SELECT a.* FROM old a, old b, old c",
        "ALTER TABLE chunks RENAME TO old; "
        "CREATE VIEW chunks AS SELECT a.* FROM old a, old b, old c, old d",
        # A table of the same name with other columns.
        "DROP TABLE chunks; CREATE TABLE chunks (first, count); INSERT INTO chunks VALUES (0, 2)",
    ],
)
def test_index_with_views_or_other_tables_raises(index, script):
    path = index()
    with closing(sqlite3.connect(path)) as db:
        db.executescript(script)
    with pytest.raises(ValueError, match=r"a\.bp: the file is damaged"):
        Index.open(path)


def test_memory_error_of_sqlite_is_reported_as_damage(index):
    """Some files of a few kilobytes cause this error."""

    class Overwhelmed:
        def execute(self, statement):
            raise MemoryError

    file = IndexFile(index(), timeout=1)
    with closing(file.db):
        file.db, opened = Overwhelmed(), file.db
        with pytest.raises(ValueError, match=r"a\.bp: the file is damaged \(its schema"):
            file.header()
        opened.close()


def test_a_trigger_in_an_index_is_not_run(index):
    path = index()
    with closing(sqlite3.connect(path)) as db:
        db.executescript("CREATE TRIGGER t AFTER INSERT ON chunks BEGIN DELETE FROM removed; END")
    with Index.open(path) as opened:
        with pytest.raises(ValueError, match=r"a\.bp: the file is damaged"):
            opened.add([3], Codes(np.zeros((1, 2), np.uint8), 16))
        assert opened.ids().tolist() == [1, 2]


@pytest.mark.parametrize(
    ("table", "column", "value"),
    [
        ("details", "counts", struct.pack("<II", 2**31, 2**31)),  # so many labels
        ("details", "counts", struct.pack("<I", 0)),
        ("details", "counts", b"odd"),
        ("details", "numbers", struct.pack("<II", 0, 7)),
        ("details", "names", '{"a": 1}'),
        ("details", "names", "[1]"),
        ("details", "names", "no JSON"),
        ("details", "names", "[" * 100_000),
        ("details", "paths", '["a.png"]'),
        ("details", "paths", '["a.png", 1]'),
        ("details", "paths", "null"),
        ("details", "count", 1),
        ("details", "count", 2**40),
        ("chunks", "count", "two"),
        ("chunks", "count", -1),
        ("chunks", "codes", "text"),
        ("chunks", "ids", "text"),
        ("chunks", "codes", b"\0\0\0\1"),  # a set bit beyond the twelfth
        ("removed", "bitmap", bytes(9)),
        ("removed", "bitmap", "text"),
        ("removed", "first", 1),
        ("attachments", "content", "text"),
        ("attachments", "name", b"\xfe\xfe"),
        ("meta", "value", "no JSON"),
        ("meta", "value", "9" * 30),
    ],
)
def test_a_hostile_row_is_refused_though_its_checksum_fits(tmp_path, table, column, value):
    path = tmp_path / "a.bp"
    with Index.create(path, 12) as opened:
        codes = Codes(np.zeros((2, 2), np.uint8), 12)
        opened.add([1, 2], codes, ["a.png", "b.png"], [["cat"], ["dog"]])
        opened.remove([2])
        opened.attach({"note": b"kept"})
    only = " WHERE key = 'generation'" if table == "meta" else ""
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute(f"UPDATE {table} SET {column} = ?{only}", (value,))
        fix_checksums(db)
    with pytest.raises(ValueError, match=r"a\.bp: the file is damaged"):
        read_all(path)


def read_all(path):
    with Index.open(path) as opened:
        return opened.items([1]), opened.labels(), opened.attachments()


def test_the_unchanged_rows_are_read(tmp_path):
    path = tmp_path / "a.bp"
    with Index.create(path, 16) as opened:
        opened.add([1], Codes(np.zeros((1, 2), np.uint8), 16), ["a.png"], [["cat"]])
        opened.attach({"note": b"kept"})
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute("UPDATE details SET names = ?", ('["dog"]',))
        fix_checksums(db)
    with Index.open(path) as opened:
        assert opened.labels() == ["dog"]
    assert read_all(path) == ([("a.png", ("dog",))], ["dog"], {"note": b"kept"})


# Collections of images and their attachments


@pytest.fixture
def photos(tmp_path):
    """A collection of one image, and a function that changes an attachment."""
    pixels = np.random.default_rng(0).integers(0, 256, (9, 4, 4, 3), np.uint8)
    (tmp_path / "album").mkdir()
    Image.fromarray(pixels[0]).save(tmp_path / "album" / "0.png")
    path = tmp_path / "a.bp"
    with Photos.create(path, Encoder(bp.create("itq", bits=4).fit(ImageSet(pixels)))) as made:
        made.add(tmp_path / "album")

    def change(name, content):
        with Index.open(path) as opened:
            (found,) = opened.attachments(name)
            opened.attach({found: content})
        return path

    return change


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("file/", b"[1, 2]"),
        ("file/", b"7"),
        ("file/", b"no JSON"),
        ("places.json", b'{"folders": []}'),
        ("places.json", b'{"folders": [1], "parents": []}'),
        ("places.json", b'{"folders": "/", "parents": []}'),
        ("places.json", b"[]"),
        ("model/model.json", None),
        ("model/model.json", b"[]"),
        ("model/model.safetensors", None),
        ("model/model.safetensors", b"no weights"),
    ],
)
def test_a_hostile_collection_is_refused_by_its_name(photos, name, content):
    path = photos(name, content)
    with pytest.raises(ValueError, match=rf"^{re.escape(str(path))}: .*damaged") as raised:
        use(path)
    assert "\n" not in str(raised.value)


def use(path):
    with Photos.open(path) as opened:
        return opened.encoder.bits, opened.sync()


def test_the_unchanged_collections_open(photos):
    bits, synced = use(photos("places.json", b'{"folders": [], "parents": []}'))
    assert (bits, synced.unchanged) == (4, 1)


@pytest.mark.parametrize(
    "about", [None, [], {"features": 1}, {"size": 10**9}, {"size": "8"}, {"pictures": "many"}]
)
def test_invalid_about_section_raises(tmp_path, about):
    bp.create("itq", bits=4).fit(np.random.default_rng(0).normal(size=(20, 48))).save(tmp_path)
    document = json.loads((tmp_path / "model.json").read_bytes())
    assert Encoder.load(tmp_path).bits == 4
    (tmp_path / "model.json").write_text(json.dumps(document | {"about": about}))
    with pytest.raises(ValueError, match=r'model\.json: invalid "about" section'):
        Encoder.load(tmp_path)


@pytest.mark.parametrize(
    ("features", "about"),
    [
        (np.zeros((1, 2), np.float32), {"pictures": [["/a", 1, 1]]}),
        (np.zeros((1, 2), np.float32), {"digest": "d", "pictures": []}),
        (np.zeros((1, 2), np.float32), {"digest": "d", "pictures": [[["/a"], 1, 1]]}),
        (np.zeros((1, 2), np.float32), {"digest": "d", "pictures": 7}),
        (np.zeros(1, np.float32), {"digest": "d", "pictures": [["/a", 1, 1]]}),
        (np.zeros((1, 2), np.int32), {"digest": "d", "pictures": [["/a", 1, 1]]}),
    ],
)
def test_invalid_kept_features_raise(tmp_path, features, about):
    text = np.frombuffer(json.dumps(about).encode(), np.uint8)
    np.savez(tmp_path / "000000.npz", features=features, about=text)
    with pytest.raises(ValueError, match=r"000000\.npz: damaged .*; delete this file"):
        KeptFeatures(tmp_path, "d")


# Checkpoints


@pytest.mark.parametrize(
    "change",
    [
        lambda tensors, metadata: tensors.pop("net.weight"),
        lambda tensors, metadata: tensors.pop("state.U"),
        lambda tensors, metadata: tensors.update({"net.weight": torch.zeros(9, 9)}),
        lambda tensors, metadata: tensors.update({"optimizer.x.step": torch.zeros(1)}),
        lambda tensors, metadata: metadata.pop("history"),
        lambda tensors, metadata: metadata.update(history="7"),
        lambda tensors, metadata: metadata.update(history="[7]"),
        lambda tensors, metadata: metadata.update(history="no JSON"),
    ],
)
def test_a_hostile_checkpoint_is_refused_though_its_checksum_fits(tmp_path, change):
    def training():
        net = torch.nn.Linear(3, 2)
        state = State(torch.arange(5), torch.eye(5), 2, tensors={"U": torch.zeros(5, 2)})
        return net, torch.optim.AdamW(net.parameters()), state

    run = RunFolder(tmp_path, "run")
    run.save([{"epoch": 1}], *training())
    path = tmp_path / "checkpoint" / "last.safetensors"
    metadata, _ = unpack(path.read_bytes())
    tensors = load_tensors(path.read_bytes())
    assert run.restore(*training()) == (1, [{"epoch": 1}])
    del metadata["checksum"]
    change(tensors, metadata)
    metadata["checksum"] = checksum_of_run(tensors, metadata)
    path.write_bytes(save_tensors(tensors, metadata))
    with pytest.raises(ValueError, match=r"last\.safetensors: does not match this run") as raised:
        run.restore(*training())
    assert "\n" not in str(raised.value)


# Archives


def test_archive_writes_only_the_expected_files(tmp_path):
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
    with pytest.raises(ValueError, match="not a CIFAR-10 archive"):
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


def test_header_that_breaks_tarfile_raises(tmp_path):
    """If the first bit is set, the size is a binary number, here larger than any file."""
    block = bytearray(tarfile.TarInfo("cifar-10-batches-bin/data_batch_1.bin").tobuf())
    block[124:136] = b"\x80" + b"\xff" * 11
    block[148:156] = b" " * 8
    block[148:156] = b"%06o\0 " % sum(block)
    archive = tmp_path / "a.tar.gz"
    archive.write_bytes(gzip.compress(bytes(block) + bytes(1024)))
    with pytest.raises(ValueError, match=r"a\.tar\.gz: not a complete .tar.gz archive"):
        fetch_cifar10(tmp_path / "cifar10", archive)


def test_a_name_of_enormous_length_is_not_read(tmp_path, monkeypatch):
    monkeypatch.setattr("bitprint.data.cifar10_fetch._LARGEST_MEMBER", 2**16)
    header = tarfile.TarInfo("././@LongLink")
    header.type, header.size = tarfile.GNUTYPE_LONGNAME, 2**24
    archive = tmp_path / "a.tar.gz"
    archive.write_bytes(gzip.compress(header.tobuf(tarfile.GNU_FORMAT) + bytes(2**24 + 1024)))
    tracemalloc.start()
    with pytest.raises(
        ValueError, match=r"a\.tar\.gz: not a complete .* \(invalid size of 16777216 by"
    ):
        fetch_cifar10(tmp_path / "cifar10", archive)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 2**23


# Lists of images


def test_impossible_file_name_does_not_stop_others(tmp_path):
    Image.new("RGB", (4, 4)).save(tmp_path / "a.png")
    table = tmp_path / "list.csv"
    table.write_text(f"file,label\n{'x' * 300}.png,dog\na.png,cat\n")
    listing = list_pictures(table)
    assert [Path(picture.path).name for picture in listing.pictures] == ["a.png"]
    assert [reason for _, reason in listing.skipped] == ["File name too long"]
    for cache in (None, tmp_path / "cache"):
        images = load_folder(tmp_path, labels=table, size=4, cache=cache)
        assert list(images.ids) == ["a.png"]
        assert len(images.skipped) == 1


def test_image_list_that_is_not_text_raises(tmp_path):
    for name, content in ((IMAGE_LIST, b"\xff.jpg\n"), (f"{CONCEPTS}/Labels_sky.txt", b"1\n")):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=r"Imagelist\.txt: not UTF-8 text"):
        read_nuswide_labels(tmp_path)
