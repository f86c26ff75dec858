"""Cluster encoding; the tests share one cluster and few jobs, because workers start slowly."""

import csv
import io
import json
import os
import re
import signal
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from PIL import Image
from pyarrow import parquet
from typer.testing import CliRunner

import bitprint as bp
from bitprint import cli
from bitprint.data import draw_shapes, load_folder
from bitprint.data.images import ImageSet
from bitprint.features import deep_features, gist
from bitprint.methods._deep import ENCODE_BATCH
from bitprint.photos.encoder import Encoder, Features

ray = pytest.importorskip("ray")

from bitprint.cluster import (  # noqa: E402
    connect,
    encode_collection,
    encoding,
    list_source,
    partitions,
    read_codes,
    read_job,
    worker,
)

SIZE = 16
SCENES = draw_shapes(700, size=SIZE)


@pytest.fixture(scope="module")
def cluster():
    os.environ.update(RAY_USAGE_STATS_ENABLED="0", RAY_gcs_server_port_wait_time_s="120")
    start_ray(attempts=4)
    yield
    ray.shutdown()


def start_ray(attempts):
    """Start a node, and retry timeouts, which are common on a busy machine."""
    try:
        ray.init(
            "local",
            num_cpus=2,
            include_dashboard=False,
            object_store_memory=100 * 2**20,
            log_to_driver=False,
            logging_level="ERROR",
        )
    except Exception as error:
        ray.shutdown()
        if "timed out" not in str(error).lower():
            raise
        if attempts == 1:
            pytest.skip(f"Ray did not start in time: {error}")
        start_ray(attempts - 1)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A network; the last digits of its outputs depend on the batch size."""
    folder = tmp_path_factory.mktemp("run")
    hasher = bp.create("dsdh", bits=20, backbone="small", epochs=1, device="cpu")
    hasher.fit(SCENES.subset(range(64))).save(folder)
    return folder


@pytest.fixture(scope="module")
def album(tmp_path_factory):
    """700 images in two folders; the last two files by name are not readable."""
    root = tmp_path_factory.mktemp("album")
    for number, pixels in enumerate(SCENES.pixels):
        folder = root / ("cats" if number < 300 else "dogs")
        folder.mkdir(exist_ok=True)
        Image.fromarray(pixels).save(folder / f"{number:03d}.png")
    (root / "dogs" / "zz.jpg").write_bytes(b"not a picture")
    (root / "zz.png").symlink_to(root / "nowhere")
    (root / "dogs" / "raw.dng").write_bytes(b"...")
    return root


@pytest.fixture(scope="module")
def encoded(cluster, run, album, tmp_path_factory):
    """A folder whose job was interrupted after the first partition and then resumed.

    The second call runs Ray Data in the cluster, as for ray:// connections.
    """
    out = tmp_path_factory.mktemp("encoded") / "out"

    def stop(done, total):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        encode_collection(run, album, out, partition=256, progress=stop)
    before = {path.name: path.stat().st_mtime_ns for path in out.glob("part-*")}
    with pytest.raises(ValueError, match=r"out: 2 of 3 partitions are missing; encode the same"):
        read_codes(out)
    seen = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("ray.util.client.ray.is_connected", lambda: True)
        result = encode_collection(
            run,
            album,
            out,
            partition=512,
            workers=1,
            progress=lambda *progress: seen.append(progress),
        )
    return out, before, result, seen


def joined(folder):
    parts = list(read_codes(folder))
    ids = np.concatenate([part.ids for part in parts])
    paths = np.concatenate([part.paths for part in parts])
    return ids, bp.Codes.concatenate([part.codes for part in parts]), paths


def failures(out):
    with (out / "failed.csv").open(newline="") as file:
        return [tuple(row.values()) for row in csv.DictReader(file)]


# On a cluster


def test_codes_are_those_of_local_encoding_bit_for_bit(encoded, run, album):
    images = load_folder(album, size=SIZE)
    ids, codes, paths = joined(encoded[0])
    assert ids.tolist() == images.ids.tolist()
    assert codes == bp.load(run).encode(images)
    assert paths.tolist() == [str(album.resolve() / name) for name in images.ids]
    assert [len(part.ids) for part in read_codes(encoded[0])] == [256, 256, 188]


def test_an_interrupted_job_encodes_only_missing_partitions(encoded, album):
    out, before, result, seen = encoded
    assert len(before) == 1
    for name, written in before.items():
        assert (out / name).stat().st_mtime_ns == written
    rows = parquet.read_metadata(out / next(iter(before))).num_rows
    left_out = [str(album.resolve() / "dogs" / "raw.dng")]
    assert result == (700 - rows, rows, 2, 2, left_out)
    total = 701 - (rows if rows == 256 else 189)
    assert len(seen) == 2
    assert seen[-1] == (total, total)


def test_failed_files_are_listed_with_the_reasons(encoded, album):
    root = album.resolve()
    assert sorted(failures(encoded[0])) == [
        (
            "dogs/zz.jpg",
            f"{root}/dogs/zz.jpg",
            "not a readable image (unsupported format)",
        ),
        ("zz.png", f"{root}/zz.png", "no such file"),
    ]


def test_the_command_reports_a_finished_folder(encoded, run, album):
    result = CliRunner().invoke(
        cli.app, ["encode", str(run), "--ray", "local", str(album), str(encoded[0])]
    )
    assert result.exit_code == 0, result.output
    assert "out is already complete" in result.stderr
    assert "700 codes of 20 bits" in result.stderr
    assert "2 files not encoded, see" in result.stderr
    assert "1 image in an unsupported format left out (1 .dng)\n" in result.stderr


def test_a_folder_of_another_job_is_refused(encoded, run, album, tmp_path):
    with pytest.raises(ValueError, match=r"out: contains codes of .*; choose another folder"):
        encode_collection(run, album / "cats", encoded[0])
    other = bp.create("itq", bits=8).fit(SCENES)
    other.save(tmp_path / "other")
    with pytest.raises(ValueError, match=r"contains codes by DSDH, 20 bits.* by ITQ, 8 bits"):
        encode_collection(tmp_path / "other", album, encoded[0])
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "letter.txt").write_text("dear")
    with pytest.raises(FileNotFoundError, match=r"full: not a folder of codes, _listing\.parquet"):
        encode_collection(run, album, tmp_path / "full")
    assert [path.name for path in (tmp_path / "full").iterdir()] == ["letter.txt"]


def test_an_index_takes_the_partitions_as_they_come(encoded, run, tmp_path):
    out = encoded[0]
    job = read_job(out)
    with bp.Index.create(tmp_path / "photos.bp", job.bits, model=job.model) as index:
        for partition in read_codes(out):
            index.add(*partition)
        ids, codes, paths = joined(out)
        assert index.ids().tolist() == ids.tolist()
        assert index.codes(ids[[5, 699]]) == codes[[5, 699]]
        assert index.items([ids[699]])[0].path == paths[699]
    assert job.model == Encoder.load(run).identity


def test_the_command_adds_a_folder_of_codes(encoded, run, album, tmp_path):
    out, *_ = encoded
    place = str(tmp_path / "photos.bp")

    def command(*words):
        result = CliRunner().invoke(cli.app, [*map(str, words)])
        assert result.exit_code == 0, result.output
        return json.loads(result.stdout)

    about = command("index", "add", place, out, "--model", run, "--json")
    assert (about["new"], about["held"]) == (700, 700)
    picture = album / "cats" / "007.png"
    (hit,) = command("search", place, picture, "-k", 1, "--json")["results"]
    assert hit["distance"] == 0
    again = command("index", "add", place, out, "--json")  # its codes are replaced by themselves
    assert again["held"] == 700


def test_other_readers_of_parquet_see_the_codes_alone(encoded):
    from pyarrow import dataset

    table = dataset.dataset(encoded[0], format="parquet", exclude_invalid_files=True).to_table()
    assert table.column_names == ["id", "path", "code"]
    assert table.schema.field("code").type == pa.binary(3)
    assert len(table) == 700


def workers_below(ancestor):
    """Return the process ids of Ray Data's actors below a process."""
    parents, workers = {}, []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            parents[int(folder.name)] = int(
                re.search(r"^PPid:\t(\d+)", (folder / "status").read_text(), re.M)[1]
            )
            if (folder / "cmdline").read_bytes().startswith(b"ray::MapWorker"):
                workers.append(int(folder.name))
        except (FileNotFoundError, ProcessLookupError):
            continue  # the process ended meanwhile

    def is_below(process):
        return process == ancestor or (process in parents and is_below(parents[process]))

    return [process for process in workers if is_below(process)]


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc to find workers")
def test_the_partitions_of_a_killed_worker_are_encoded_again(cluster, tmp_path):
    """The only worker dies with most of the work left."""
    pictures = np.random.default_rng(0).integers(0, 256, (40, 200, 200, 3), np.uint8)
    for number, pixels in enumerate(pictures):
        Image.fromarray(pixels).save(tmp_path / f"{number}.png", compress_level=1)
    rows = [(number * 7, number % 41) for number in range(2560)]  # 40.png does not exist
    lines = "".join(f"{id_},file://{tmp_path}/{number}.png\n" for id_, number in rows)
    (tmp_path / "list.csv").write_text("id,path\n" + lines)
    hasher = bp.create("itq", bits=64).fit(SCENES)
    hasher.save(tmp_path / "run")
    killed = []

    def kill(done, total):
        if not killed:
            killed.extend(workers_below(os.getpid()))
            for process in killed:
                os.kill(process, signal.SIGKILL)

    out = tmp_path / "out"
    source = tmp_path / "list.csv"
    result = encode_collection(
        tmp_path / "run", source, out, partition=256, workers=1, progress=kill
    )
    assert len(killed) == 1
    lost = sum(number == 40 for _, number in rows)
    assert result == (2560 - lost, 0, lost, 10, [])
    ids, codes, _ = joined(out)
    assert ids.dtype == np.int64
    assert ids.tolist() == [id_ for id_, number in rows if number < 40]
    squares = load_folder(tmp_path, size=SIZE)
    by_name = dict(zip(squares.ids.tolist(), squares.read(slice(None)), strict=True))
    pixels = np.array([by_name[f"{number}.png"] for _, number in rows if number < 40])
    assert codes == hasher.encode(ImageSet(pixels))
    assert {reason for _, _, reason in failures(out)} == {"no such file"}


def test_a_worker_with_another_model_stops_the_job(cluster, run, album, tmp_path):
    encoder = Encoder.load(run)
    encoder.identity = "DSDH of another release"
    out = tmp_path / "out"
    job = encoding._open_job(out, str(album), encoder, 256)
    parts = encoding._missing_parts(out, job, [])
    with pytest.raises(ValueError, match=r"3 of 3 partitions missing \(a worker has") as stop:
        encoding._encode_partitions(out, job, parts, encoder, 1, None)
    assert "\n" not in str(stop.value)
    assert not list(out.glob("part-*"))


def test_a_partition_that_crashes_its_workers_fails(cluster, run, album):
    encoder = Encoder.load(run)
    attempts = worker.count_attempts()
    files = pa.array([str(album / "cats" / f"{number:03d}.png") for number in (3, 4, 5)])
    one = encoding._as_one_row(7, pa.table({"id": files, "path": files}))
    other = encoding._as_one_row(8, pa.table({"id": files, "path": files}))
    encode = worker.Worker(ray.put(encoder.files), encoder.identity, attempts, 1)
    for _ in range(4):
        row = encode(one).to_pylist()[0]
    assert row["partition"] == 7
    codes = parquet.read_table(io.BytesIO(row["content"]))["code"].to_pylist()
    expected = encoder.hasher.encode(ImageSet(SCENES.pixels[3:6]))
    assert codes == [packed.tobytes() for packed in expected.packed]
    with pytest.raises(ValueError, match=r"4 workers crashed on one of the files from .*003\.png"):
        encode(one)
    assert encode(other).num_rows == 1


def test_errors_of_workers_are_reported_without_traceback(cluster):
    def fail(batch):
        raise ValueError("a sentence")

    with pytest.raises(ray.exceptions.RayError) as stop:
        ray.data.from_items([1]).map_batches(fail).materialize()
    assert len(str(stop.value).splitlines()) > 1
    assert encoding._short_reason(stop.value) == "a sentence"
    assert encoding._short_reason(OSError("first\nlast\n")) == "last"


def test_a_connection_that_exists_is_kept(cluster):
    with connect("ray://nowhere:1"):
        assert ray.is_initialized()
    assert ray.is_initialized()


def test_arguments_are_checked_before_anything_is_written(run, album, tmp_path):
    out = tmp_path / "out"
    with pytest.raises(ValueError, match="a multiple of 256 images, got 100"):
        encode_collection(run, album, out, partition=100)
    with pytest.raises(ValueError, match="workers must be an integer >= 1, got 0"):
        encode_collection(run, album, out, workers=0)
    with pytest.raises(FileNotFoundError, match="no such folder or list"):
        encode_collection(run, tmp_path / "nowhere", out)
    with pytest.raises(FileNotFoundError, match="not a model folder"):
        encode_collection(tmp_path, album, out)
    assert not out.exists()


@pytest.mark.parametrize(
    ("nodes", "expected"),
    [
        ([{"CPU": 2.0}], (2, 1, 0)),
        ([{"CPU": 2.0}, {"CPU": 3.5}, {"memory": 1.0}], (5, 1, 0)),
        ([{"CPU": 16.0, "GPU": 1.0}], (1, 16, 1)),
        ([{"CPU": 64.0}, {"CPU": 8.0, "GPU": 4.0}, {"CPU": 16.0, "GPU": 2.0}], (6, 2, 1)),
        ([{"CPU": 1.0, "GPU": 2.0}], (2, 1, 1)),
    ],
)
def test_workers_fit_onto_the_machines(nodes, expected):
    assert encoding.plan_workers(nodes) == expected


def test_a_cluster_without_cores_is_refused():
    with pytest.raises(ValueError, match="no CPU cores"):
        encoding.plan_workers([{"memory": 1.0}])


# On a worker


@pytest.mark.parametrize("features", [None, "pixels", "gist", "small"])
@pytest.mark.parametrize("count", [256, 257, 700])
def test_files_get_the_codes_of_their_images(features, count, album, run):
    if features is None:
        encoder = Encoder.load(run)
        expected = encoder.hasher.encode(ImageSet(SCENES.pixels[:count]))
    else:
        vectors = {
            "pixels": lambda: SCENES.pixels.reshape(700, -1) / np.float32(255),
            "gist": lambda: gist(SCENES.pixels),
            "small": lambda: deep_features(SCENES.pixels, "small"),
        }[features]()
        hasher = bp.create("itq", bits=33).fit(vectors)
        encoder = Encoder(hasher, Features(features, SIZE))
        expected = hasher.encode(vectors[:count])
    paths = list_source(album).table["path"].to_pylist()[:count]
    codes, reasons = worker.encode_files(encoder, paths)
    assert codes == expected
    assert reasons == {}


def test_batches_are_those_of_local_encoding(album, run, monkeypatch):
    """Other batch sizes round differently, but too rarely to test the codes themselves."""
    seen = []
    encode = Encoder.encode_squares
    monkeypatch.setattr(
        Encoder, "encode_squares", lambda self, each: seen.append(len(each)) or encode(self, each)
    )
    paths = list_source(album).table["path"].to_pylist()
    worker.encode_files(Encoder.load(run), paths)
    assert seen == [256, 256, 189]
    assert worker.BATCH == ENCODE_BATCH


def test_an_unreadable_file_changes_no_other_code(album, run):
    encoder = Encoder.load(run)
    paths = list_source(album).table["path"].to_pylist()[:300]
    whole, _ = worker.encode_files(encoder, paths)
    paths[5], paths[280] = str(album / "gone.png"), str(album / "dogs" / "zz.jpg")
    codes, reasons = worker.encode_files(encoder, paths, threads=2)
    others = [row for row in range(300) if row not in (5, 280)]
    assert codes[others] == whole[others]
    assert reasons == {
        5: "no such file",
        280: "not a readable image (unsupported format)",
    }


def test_images_of_an_object_store(run):
    import fsspec

    store = fsspec.filesystem("memory")
    png = io.BytesIO()
    Image.fromarray(SCENES.pixels[9]).save(png, "PNG")
    store.pipe("/bucket/photos/sub/b.png", png.getvalue())
    store.pipe("/bucket/photos/a.JPG", b"broken")
    store.pipe("/bucket/photos/.cache/c.png", png.getvalue())
    store.pipe("/bucket/photos/notes.txt", b"text")
    store.pipe("/bucket/photos/sub/d.CR2", b"raw")
    store.pipe("/bucket/photos/.cache/e.CR2", b"raw")
    for name in ("memory://bucket/photos", "memory://bucket/photos/"):
        table, failed, left_out = list_source(name)
        assert table["id"].to_pylist() == ["a.JPG", "sub/b.png"]
        assert (failed, left_out) == ([], ["memory:///bucket/photos/sub/d.CR2"])
    paths = table["path"].to_pylist()
    encoder = Encoder.load(run)
    codes, reasons = worker.encode_files(encoder, [*paths, "memory://bucket/gone.png", "no://x"])
    assert (
        codes[1]
        == encoder.encode_squares(
            np.stack([0 * SCENES.pixels[9], SCENES.pixels[9], *np.zeros_like(SCENES.pixels[:2])])
        )[1]
    )
    assert reasons == {
        0: "not a readable image (unsupported format)",
        2: "no such file",
        3: "Protocol not known: no",
    }
    store.pipe("/bucket/list.csv", b"path\nphotos/sub/b.png\nmemory://bucket/photos/a.JPG\n")
    listed = list_source("memory://bucket/list.csv").table
    assert listed["id"].to_pylist() == ["photos/sub/b.png", "memory://bucket/photos/a.JPG"]
    assert listed["path"].to_pylist() == [
        "memory://bucket/photos/sub/b.png",
        "memory://bucket/photos/a.JPG",
    ]
    assert isinstance(worker.read_image(listed["path"][0].as_py(), 8), np.ndarray)


# Lists


def test_a_folder_is_listed_as_it_is_loaded(album):
    table, failed, left_out = list_source(album)
    names = load_folder(album, size=8).ids.tolist()
    assert table["id"].to_pylist() == [*names, "dogs/zz.jpg"]
    assert [(name, reason) for name, _, reason in failed] == [("zz.png", "no such file")]
    assert left_out == [str(album.resolve() / "dogs" / "raw.dng")]


def test_a_name_that_is_not_utf8_fails_alone(tmp_path):
    (tmp_path / "a.png").write_bytes(b"")
    try:
        Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff.png")).write_bytes(b"")
    except OSError:
        pytest.skip("the file system accepts only UTF-8 names")
    table, failed, _ = list_source(tmp_path)
    assert table["id"].to_pylist() == ["a.png"]
    assert failed == [("\\udcff.png", f"{tmp_path.resolve()}/\\udcff.png", "the name is not UTF-8")]


@pytest.mark.parametrize("kind", ["csv", "parquet"])
@pytest.mark.parametrize(
    ("column", "ids", "expected"),
    [
        ("path", None, ["a.png", "/far/b.png", "s3://bucket/c.png"]),
        ("file", ["x", "y", "z"], ["x", "y", "z"]),
        ("path", [7, -3, 0], [7, -3, 0]),
        ("path", ["07", "1", "2"], ["07", "1", "2"]),
    ],
)
def test_lists(kind, column, ids, expected, tmp_path):
    paths = ["a.png", "/far/b.png", "s3://bucket/c.png"]
    columns = {"other": [1, 2, 3], column: paths} | ({} if ids is None else {"id": ids})
    file = tmp_path / f"list.{kind}"
    if kind == "parquet":
        parquet.write_table(pa.table(columns), file)
    else:
        lines = [",".join(map(str, row)) for row in zip(*columns.values(), strict=True)]
        file.write_text("\n".join([",".join(columns), *lines]) + "\n")
    table, failed, left_out = list_source(file)
    assert table["id"].to_pylist() == expected
    assert table["id"].type == (pa.int64() if ids == [7, -3, 0] else pa.string())
    assert table["path"].to_pylist() == [f"{tmp_path.resolve()}/a.png", *paths[1:]]
    assert (failed, left_out) == ([], [])


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"name\na.png\n", r"list\.csv: a list must have a column path or file, found name"),
        (b"path,id\na.png,1\n,2\n", r"list\.csv: the path in row 2 is missing"),
        (b"path,id\na.png,x\nb.png,x\n", r"list\.csv: duplicate id 'x'"),
        (b"path\na.png\na.png\n", r"list\.csv: duplicate id 'a\.png'"),
        (b"path,id\na.png\n", r"list\.csv: cannot read the list"),
        (b"", r"list\.csv: cannot read the list"),
        (b"path\n", r"list\.csv: no images found"),
    ],
)
def test_lists_that_are_refused(content, sentence, tmp_path):
    (tmp_path / "list.csv").write_bytes(content)
    with pytest.raises(ValueError, match=sentence):
        list_source(tmp_path / "list.csv")


def test_sources_that_are_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"nowhere\.csv: no such list"):
        list_source(tmp_path / "nowhere.csv")
    with pytest.raises(ValueError, match="no images found"):
        list_source(tmp_path)
    (tmp_path / "a.dng").write_bytes(b"")
    with pytest.raises(
        ValueError, match=r"found; 1 image in an unsupported format left out \(1 \.dng"
    ):
        list_source(tmp_path)
    with pytest.raises(ValueError, match="Protocol not known"):
        list_source("nothing://bucket")
    (tmp_path / "a.png").write_bytes(b"")
    with pytest.raises(ValueError, match="neither a folder nor a list"):
        list_source(tmp_path / "a.png")
    for column, sentence in (([1.5], "integers or strings, got double"), ([None], "is missing")):
        parquet.write_table(pa.table({"path": ["a"], "id": column}), tmp_path / "list.parquet")
        with pytest.raises(ValueError, match=sentence):
            list_source(tmp_path / "list.parquet")


# Folders of codes


def write_folder(folder, ids, bits=20, size=4, by="a model"):
    """Write a finished folder of random codes, and return the codes."""
    packed = np.packbits(np.random.default_rng(0).integers(0, 2, (len(ids), bits)), axis=1)
    codes = bp.Codes(packed, bits)
    table = pa.table({"id": ids, "path": [f"/{id_}.png" for id_ in ids]})
    job = partitions.Job("/photos", bits, "a model", len(ids), size)
    partitions.start_job(folder, job, partitions.SourceListing(table, [], []))
    for number in range(job.partitions):
        rows = slice(number * size, (number + 1) * size)
        ours = table.slice(rows.start, size)
        content = partitions.to_parquet(
            ours["id"].combine_chunks(), ours["path"].combine_chunks(), codes[rows], by, []
        )
        (folder / partitions.part_name(number)).write_bytes(content)
    return codes


def owner(array):
    """Return the object that owns the memory of an array."""
    while isinstance(array, np.ndarray):
        array = array.base
    return array.obj if isinstance(array, memoryview) else array


@pytest.mark.parametrize("bits", [1, 8, 20, 64])
def test_codes_and_integer_ids_are_views_of_arrow_memory(bits, tmp_path):
    codes = write_folder(tmp_path, list(range(10, 20)), bits)
    parts = list(read_codes(tmp_path))
    assert [len(part.codes) for part in parts] == [4, 4, 2]
    for part in parts:
        assert isinstance(owner(part.codes.packed), pa.Buffer)
        assert isinstance(owner(part.ids), pa.Buffer | pa.Array)
        assert not part.codes.packed.flags.owndata
        assert not part.ids.flags.owndata
    ids, read, paths = joined(tmp_path)
    assert read == codes
    assert ids.tolist() == list(range(10, 20))
    assert paths.tolist() == [f"/{id_}.png" for id_ in range(10, 20)]


def test_partition_metadata(tmp_path):
    write_folder(tmp_path, ["a", "b"])
    schema = parquet.read_schema(tmp_path / "part-00000.parquet")
    assert schema.metadata[b"bits"] == b"20"
    assert schema.metadata[b"model"] == b"a model"
    assert schema.metadata[b"version"] == b"1"
    assert [field.type for field in schema] == [pa.string(), pa.string(), pa.binary(3)]
    assert read_job(tmp_path) == ("/photos", 20, "a model", 2, 4)


def test_partitions_without_a_readable_file(tmp_path):
    write_folder(tmp_path, ["a", "b"])
    nothing, none = pa.array([], pa.string()), bp.Codes(np.empty((0, 3), np.uint8), 20)
    content = partitions.to_parquet(nothing, nothing, none, "a model", [("a", "/a", "x, y\n")])
    (tmp_path / "part-00000.parquet").write_bytes(content)
    ids, codes, paths = joined(tmp_path)
    assert (len(ids), len(codes), len(paths)) == (0, 0, 0)
    assert partitions.write_failed(tmp_path, read_job(tmp_path)) == 1
    assert failures(tmp_path) == [("a", "/a", "x, y\n")]


@pytest.mark.parametrize("text", ["[" * 200_000, "{", "{}", "[1]", "[" + "9" * 5000 + "]"])
def test_damaged_lists_of_files_are_refused(text, tmp_path):
    write_folder(tmp_path, ["a", "b"])
    path, job = tmp_path / "_listing.parquet", read_job(tmp_path)
    table = parquet.read_table(path)
    lists = {b"left_out": text, b"failed": text}
    parquet.write_table(table.replace_schema_metadata(table.schema.metadata | lists), path)
    for read in (partitions.read_left_out, lambda folder: partitions.write_failed(folder, job)):
        with pytest.raises(ValueError, match=r"_listing.parquet: damaged \("):
            read(tmp_path)


def test_damaged_folders_are_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match="not a folder of codes"):
        read_codes(tmp_path)
    write_folder(tmp_path, ["a", "b"])
    part = tmp_path / "part-00000.parquet"
    content = part.read_bytes()
    codes = parquet.read_metadata(part).row_group(0).column(2)
    changed = bytearray(content)
    changed[codes.data_page_offset + codes.total_compressed_size - 1] ^= 0x10
    part.write_bytes(changed)
    with pytest.raises(ValueError, match=r"part-00000\.parquet: damaged"):
        list(read_codes(tmp_path))
    part.write_bytes(content[:-9])
    with pytest.raises(ValueError, match=r"part-00000\.parquet: not Parquet, or damaged"):
        list(read_codes(tmp_path))
    parquet.write_table(pa.table({"id": [1]}), part)
    with pytest.raises(ValueError, match="not written by Bitprint"):
        list(read_codes(tmp_path))
    write_folder(tmp_path, ["a", "b"], by="another")
    with pytest.raises(ValueError, match="contains codes by another, not by a model"):
        list(read_codes(tmp_path))


def test_finished_partitions_are_found_by_file_name(tmp_path):
    write_folder(tmp_path, list("abcdefghijklmn"))
    (tmp_path / "part-00002.parquet").unlink()
    others = ("part-2.parquet", "part-000002.parquet", "part-00004.parquet", "part-x.parquet")
    for name in (*others, "part-0000\u0662.parquet"):
        (tmp_path / name).touch()
    job = read_job(tmp_path)
    assert job.partitions == 4
    assert partitions.finished_partitions(tmp_path, job) == [0, 1, 3]
    assert sorted(encoding._missing_parts(tmp_path, job, [0, 1, 3])) == [2]


def declare_rows(path, rows, instead_of):
    """Change the number of rows in the footer of a Parquet file."""
    content = path.read_bytes()
    size = int.from_bytes(content[-8:-4], "little")
    written, number = bytes([0x16, 2 * instead_of]), 2 * rows
    described = content[-8 - size : -8]
    spelt = b""
    while number > 127:
        spelt += bytes([number & 127 | 128])
        number >>= 7
    described = described.replace(written, b"\x16" + spelt + bytes([number]), 1)
    ending = len(described).to_bytes(4, "little") + b"PAR1"
    path.write_bytes(content[: -8 - size] + described + ending)
    assert parquet.read_metadata(path).num_rows == rows


def test_a_listing_with_a_wrong_row_count_fails_quickly(tmp_path):
    write_folder(tmp_path, ["a", "b", "c"], size=1)
    declare_rows(tmp_path / "_listing.parquet", 2**60, instead_of=3)
    with pytest.raises(ValueError, match=f"{2**60 - 3} of {2**60} partitions are missing"):
        read_codes(tmp_path)
    job = read_job(tmp_path)
    assert partitions.write_failed(tmp_path, job) == 0
    with pytest.raises(ValueError, match=rf"damaged \(3 images instead of {2**60}\)"):
        encoding._missing_parts(tmp_path, job, [0, 1, 2])


@pytest.mark.parametrize(
    ("name", "facts", "columns"),
    [
        ("_listing.parquet", {"bits": "many"}, {}),
        ("_listing.parquet", {"bits": "123456789123456789"}, {}),
        ("_listing.parquet", {"size": "0"}, {}),
        ("_listing.parquet", {"source": None}, {}),
        ("_listing.parquet", {"version": None}, {}),
        ("_listing.parquet", {"version": "1\n2"}, {}),
        ("part-00000.parquet", {"bits": None}, {}),
        ("part-00000.parquet", {"model": "a\nb"}, {}),
        ("part-00000.parquet", {}, {"code": pa.array([b"ab", b"cd"], pa.binary(2))}),
        ("part-00000.parquet", {}, {"code": pa.array([b"abc", None], pa.binary(3))}),
        ("part-00000.parquet", {}, {"code": pa.array([1, 2])}),
        ("part-00000.parquet", {}, {"id": pa.array([1, None])}),
        ("part-00000.parquet", {}, {"id": pa.array([0.5, 1.5])}),
        ("part-00000.parquet", {}, {"path": pa.array([None, None])}),
        ("part-00000.parquet", {}, {"path": None}),
    ],
)
def test_invalid_files_are_refused_in_one_sentence(tmp_path, name, facts, columns):
    write_folder(tmp_path, ["a", "b"])
    assert len(joined(tmp_path)[1]) == 2
    table = parquet.read_table(tmp_path / name)
    for column, values in columns.items():
        place = table.column_names.index(column)
        table = table.remove_column(place)
        if values is not None:
            table = table.add_column(place, column, values)
    known = {key.decode(): value.decode() for key, value in table.schema.metadata.items()} | facts
    known = {key: value for key, value in known.items() if value is not None}
    parquet.write_table(table.replace_schema_metadata(known), tmp_path / name)
    with pytest.raises(ValueError, match=re.escape(f"{tmp_path / name}: ")) as raised:
        list(read_codes(tmp_path))
    assert len(str(raised.value).splitlines()) == 1


@pytest.mark.parametrize("name", ["_listing.parquet", "part-00000.parquet"])
def test_multiline_arrow_errors_become_one_sentence(tmp_path, name):
    write_folder(tmp_path, ["a", "b"])
    content = (tmp_path / name).read_bytes()
    (tmp_path / name).write_bytes(content[:-60] + b"\xff" * 52 + content[-8:])
    with pytest.raises(ValueError, match=re.escape(f"{tmp_path / name}: not Parquet")) as raised:
        list(read_codes(tmp_path))
    assert "\n" in str(raised.value.__cause__)
    assert "\n" not in str(raised.value)


def test_a_newer_version_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(partitions, "_VERSION", 2)
    write_folder(tmp_path, ["a", "b"])
    monkeypatch.undo()
    with pytest.raises(ValueError, match="format version 2 is not supported"):
        read_codes(tmp_path)


# The command


def test_the_command_encodes_here_at_the_size_of_training(album, tmp_path, monkeypatch):
    monkeypatch.setenv("BITPRINT_DATA", str(tmp_path / "home"))
    hasher = bp.create("itq", bits=8).fit(SCENES)
    hasher.save(tmp_path / "run", size=SIZE)
    arguments = ["encode", str(tmp_path / "run"), str(album)]
    result = CliRunner().invoke(cli.app, [*arguments, str(tmp_path / "codes")])
    assert result.exit_code == 0, result.output
    assert bp.Codes.load(tmp_path / "codes") == hasher.encode(load_folder(album, size=SIZE))
    for wrong in ([], [str(tmp_path / "a"), "--out", str(tmp_path / "b")]):
        result = CliRunner().invoke(cli.app, [*arguments, *wrong])
        assert result.exit_code == 2
        assert "give the output file once" in result.output
    labels = ["--out", str(tmp_path / "b"), "--ray", "local", "--labels", "labels.csv"]
    result = CliRunner().invoke(cli.app, [*arguments, *labels])
    assert result.exit_code == 2
