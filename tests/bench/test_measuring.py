import csv
import importlib.util
import io
import json
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest
import typer
from rich.console import Console
from typer.testing import CliRunner

from bitprint.bench import files, grid, measuring, report
from bitprint.bench.engines import Engine, faiss_flat, flat, indexed, numpy_scan, prepared
from bitprint.bench.measuring import BenchTask, make_row, measure, near_queries, random_codes
from bitprint.cli.bench import bench as bench_command
from bitprint.search.index import Index

RIVALS = Path(__file__).parents[2] / "benchmarks" / "search.py"


def naive_distances(queries, packed):
    """Compute all distances bit by bit, shape (Q, N)."""
    ones = np.unpackbits(queries, axis=1)[:, None] != np.unpackbits(packed, axis=1)[None]
    return ones.sum(axis=2)


def rivals():
    """Import the benchmark script with the other engines."""
    spec = importlib.util.spec_from_file_location("rivals", RIVALS)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def text_of(*tables):
    console = Console(width=80, record=True, file=io.StringIO())
    console.print(*tables)
    return console.export_text()


# ---- codes and queries


@pytest.mark.parametrize("bits", [1, 12, 64, 65])
def test_codes_are_random_and_their_padding_is_zero(bits):
    ones = np.unpackbits(random_codes(4000, bits), axis=1)
    assert ones.shape == (4000, 8 * -(-bits // 8))
    assert not ones[:, bits:].any()
    assert np.all(np.abs(ones[:, :bits].mean(axis=0) - 0.5) < 0.05)


@pytest.mark.parametrize("bits", [1, 12, 64])
def test_queries_lie_two_bits_from_a_code(bits):
    packed = random_codes(300, bits)
    queries = near_queries(packed, bits, 20)
    assert not np.unpackbits(queries, axis=1)[:, bits:].any()
    at_two = naive_distances(queries, packed) == min(2, bits)
    assert at_two.any(axis=1).all()
    if bits == 64:  # other codes are far away
        assert (naive_distances(queries, packed).min(axis=1) == 2).all()


# ---- engines


def check_nearest(engine, packed, queries, k):
    positions, distances = engine.nearest(queries, k)
    truth = naive_distances(queries, packed)
    for q in range(len(queries)):
        assert list(distances[q]) == sorted(truth[q])[:k]
        assert [truth[q][i] for i in positions[q]] == list(distances[q])


def check_within(engine, packed, queries, radius):
    offsets, positions, distances = engine.within(queries, radius)
    truth = naive_distances(queries, packed)
    for q in range(len(queries)):
        found = slice(int(offsets[q]), int(offsets[q + 1]))
        assert sorted(positions[found]) == np.flatnonzero(truth[q] <= radius).tolist()
        assert [truth[q][i] for i in positions[found]] == list(distances[found])


@pytest.mark.parametrize("bits", [12, 64, 100])
def test_engines_find_what_there_is(tmp_path, bits):
    packed = random_codes(700, bits)
    queries = near_queries(packed, bits, 9)
    _, index = files.file_rows(tmp_path / "a.bp", packed, bits)
    with index:
        for engine in (flat(packed), indexed(index), numpy_scan(packed)):
            check_nearest(engine, packed, queries, 20)
            check_within(engine, packed, queries, 3)


@pytest.mark.parametrize("bits", [12, 64])
def test_faiss_finds_what_there_is(bits):
    pytest.importorskip("faiss")
    packed = random_codes(700, bits)
    queries = near_queries(packed, bits, 9)
    heap, counting = faiss_flat(packed)
    check_nearest(heap, packed, queries, 20)
    check_nearest(counting, packed, queries, 20)
    check_within(heap, packed, queries, 3)
    (hashed,) = rivals().multi_hash(packed, bits, cap=60)
    check_within(hashed, packed, queries, 2)


def test_usearch_finds_what_there_is():
    pytest.importorskip("usearch")
    packed = random_codes(700, 64)
    engine = rivals().usearch_exact(packed, threads=1)
    for count in (1, 9):
        check_nearest(engine, packed, near_queries(packed, 64, count), 20)


def test_an_index_that_takes_too_long_to_build_is_left_out_with_the_reason():
    pytest.importorskip("faiss")
    packed = random_codes(2000, 64)
    (engine,) = rivals().hnsw(packed, cap=0)
    rows = measure([flat(packed), engine], BenchTask(2, 5), packed, 64, repeats=1)
    assert [row["engine"] for row in rows] == ["bitprint scan", "faiss HNSW"]
    assert rows[1]["seconds"] is None
    assert "building it takes" in rows[1]["note"]


# ---- measuring


@pytest.fixture
def packed():
    return random_codes(500, 64)


def changed(packed, change, **about):
    """The scan with changed top-k results."""
    scan = flat(packed)

    def nearest(queries, k):
        positions, distances = (found.copy() for found in scan.nearest(queries, k))
        change(positions, distances)
        return positions, distances

    return Engine("other", nearest, **about)


def farther(positions, distances):
    distances[-1, -1] += 1


def repeated(positions, distances):
    positions[-1, 1], distances[-1, 1] = positions[-1, 0], distances[-1, 0]


def another_code(positions, distances):
    positions[-1, 0] = (positions[-1, 0] + 1) % 500


@pytest.mark.parametrize("change", [farther, repeated, another_code])
@pytest.mark.parametrize("exact", [True, False])
def test_wrong_answers_are_refused(packed, change, exact):
    engines = [flat(packed), changed(packed, change, exact=exact)]
    with pytest.raises(ValueError, match="other returns wrong results for top 5"):
        measure(engines, BenchTask(4, 5), packed, 64, repeats=1)


def test_an_exact_engine_must_find_the_nearest_and_another_has_its_recall(packed):
    """The engine misses the nearest code of the last query, and returns three of five results."""
    scan = flat(packed)

    def nearest(queries, k):
        positions, distances = (found.copy() for found in scan.nearest(queries, k + 200))
        positions[-1, :3], distances[-1, :3] = positions[-1, -3:], distances[-1, -3:]
        positions[-1, 3:] = -1
        return positions[:, :k], distances[:, :k]

    rows = measure(
        [scan, Engine("rough", nearest, exact=False)], BenchTask(4, 5), packed, 64, repeats=1
    )
    assert [row["recall"] for row in rows] == [1.0, 0.75]
    with pytest.raises(ValueError, match="wrong results"):
        measure([scan, Engine("rough", nearest)], BenchTask(4, 5), packed, 64, repeats=1)


@pytest.mark.parametrize("fault", ["missing", "wrong distance", "wrong code"])
def test_wrong_matches_are_refused(packed, fault):
    scan = flat(packed)

    def within(queries, radius):
        offsets, positions, distances = (found.copy() for found in scan.within(queries, radius))
        if fault == "missing":
            offsets[-1] -= 1
            return offsets, positions[:-1], distances[:-1]
        positions[0] += fault == "wrong code"
        distances[0] += fault == "wrong distance"
        return offsets, positions, distances

    with pytest.raises(ValueError, match="other returns wrong results for within 2"):
        measure([scan, Engine("other", within=within)], BenchTask(4), packed, 64, repeats=1)


def test_matches_may_come_in_any_order(packed):
    scan = flat(packed)

    def backwards(queries, radius):
        offsets, positions, distances = scan.within(queries, radius)
        for q in range(len(queries)):
            found = slice(offsets[q], offsets[q + 1])
            positions[found], distances[found] = positions[found][::-1], distances[found][::-1]
        return offsets, positions, distances

    engines = [scan, Engine("other", within=backwards), Engine("top only", scan.nearest)]
    rows = measure(engines, BenchTask(4, radius=26), packed, 64, repeats=1)
    assert [row["engine"] for row in rows] == ["bitprint scan", "other"]
    assert all(row["task"] == "within 26" for row in rows)


def test_the_median_of_the_runs_counts(packed, monkeypatch):
    """One query first, then three runs of two engines in turn."""
    clock = iter([0.0, 0.0, 5.0, 1.0, 2.0, 9.0, 3.0, 1.5])
    monkeypatch.setattr(measuring, "seconds", lambda work: next(clock))
    monkeypatch.setattr(measuring, "_MORE_RUNS", 1)
    engines = [flat(packed), numpy_scan(packed)]
    ours, theirs = measure(engines, BenchTask(4, 5), packed, 64, repeats=3)
    assert (ours["seconds"], theirs["seconds"]) == (3.0, 1.5)
    assert ours["codes_per_second"] == 500 * 4 / 3.0


def test_slow_engines_are_left_out_with_the_reason(packed, monkeypatch):
    """The first runs take 1 s and 8 s; then a single query takes 20 s."""
    engines = [flat(packed), numpy_scan(packed)]
    monkeypatch.setattr(measuring, "seconds", lambda work: 0.5)
    clock = iter([0.0, 1.0, 10.0, 18.0])
    monkeypatch.setattr(measuring.time, "perf_counter", lambda: next(clock))
    rows = measure(engines, BenchTask(4, 5), packed, 64, repeats=1, cap=7.0)
    assert [(row["seconds"], row["note"]) for row in rows] == [(0.5, ""), (None, "8 s per run")]

    monkeypatch.setattr(measuring, "seconds", lambda work: 20.0)
    (row,) = measure(engines[:1], BenchTask(4, 5), packed, 64, repeats=1, cap=7.0)
    assert (row["seconds"], row["note"]) == (None, "20 s per query, 80 s for all")


# ---- files and the machine


def test_the_cost_of_a_file(tmp_path):
    packed = random_codes(3000, 48)
    rows, index = files.file_rows(tmp_path / "a.bp", packed, 48)
    with index:
        assert len(index) == 3000
    found = {row["task"]: row for row in rows}
    assert list(found) == ["add", "read file", "open", "first search"]
    assert all(row["seconds"] > 0 for row in rows)
    assert found["add"]["codes_per_second"] == 3000 / found["add"]["seconds"]
    assert found["read file"]["bytes_per_code"] == (tmp_path / "a.bp").stat().st_size / 3000
    assert found["open"]["bytes_per_code"] >= 8  # a word


def test_an_index_is_made_in_batches(tmp_path):
    packed = random_codes(25, 64)
    files.build_index(tmp_path / "a.bp", packed, 64, batch=10)
    with files.Index.open(tmp_path / "a.bp") as index:
        ids, distances = index.search(files.Codes.from_packed(packed, 64), k=1)
    assert ids.ravel().tolist() == list(range(25))
    assert not distances.any()


def test_memory_is_read_whole(monkeypatch):
    packed = random_codes(1000, 100)
    assert files.memory_row(packed, 100)["seconds"] > 0
    monkeypatch.setattr(files, "on_every_core", lambda work, count, most: [1])
    with pytest.raises(ValueError, match="not all words were read"):
        files.memory_row(packed, 100)


# ---- budgets, tables and the plot


def row(engine, seconds, codes=1_000_000, bits=64, task="top 100", queries=128, **more):
    about = {"queries": queries, "seconds": seconds, "recall": 1.0, "codes_per_second": 1e9}
    return make_row(codes, bits, task, engine, **about | more)


def test_budgets_take_the_better_mode_of_faiss():
    rows = [
        row("bitprint scan", 1.0),
        row("faiss flat, heap", 9.0),
        row("faiss flat, counting", 2.9),
        row("bitprint scan", 1.0, codes=59_000),
        row("faiss flat, heap", 2.0, codes=59_000),
        row("faiss flat, counting", None, codes=59_000),
        row("faiss flat, heap", 0.1, bits=48),
    ]
    small, large = report.budgets(rows)
    assert (small.measured, small.promised, small.kept) == (2.0, 2.0, True)
    assert (large.measured, large.promised, large.kept) == (2.9, 3.0, False)
    assert str(large) == "faiss / scan, 1,000,000: 2.90 (>= 3, MISS)"


def test_budgets_against_the_machine():
    size = 10_000_000
    rows = [
        row("bitprint scan", 1.6, size, task="top 100", queries=1),
        row("this machine", 1.0, size, task="read memory", queries=None),
        row("this machine", 1.0, size, task="read file", queries=None),
        row("bitprint index", 2.5, size, task="open", queries=None, bytes_per_code=24.0),
        row("bitprint index", 2.5, 100, 12, task="open", queries=None, bytes_per_code=17.6),
    ]
    reading, opening, memory, short = report.budgets(rows)
    assert (reading.measured, reading.kept) == (1.6, False)
    assert (opening.measured, opening.kept) == (2.5, True)
    assert (memory.measured, memory.kept) == (16.0, True)
    assert (round(short.measured, 3), short.kept) == (16.1, False)
    assert report.budgets([]) == []


def test_tables_show_ratios_notes_and_fit_a_terminal():
    rows = [
        row("this machine", 0.5, task="read file", queries=None, bytes_per_code=16.5),
        row("bitprint scan", 0.02),
        row("NumPy", 0.05),
        row("faiss HNSW", None, codes_per_second=None, recall=None, note="too slow"),
        row("bitprint scan", 0.001, codes=10_000_000, queries=1024, task="within 2"),
    ]
    text = text_of(report.search_table(rows))
    lines = [line.split() for line in text.splitlines()]
    assert ["NumPy", "50.00", "1,000", "2.500", "1.000"] in lines
    assert ["faiss", "HNSW", "-", "-", "-", "-"] in lines
    assert "faiss HNSW, 1,000,000 x 64 bits: too slow" in text
    assert "10,000,000 x 64 bits, 1024 x within 2" in text
    assert "read file" not in text
    file = text_of(report.file_table(rows))
    assert "16.5" in file
    assert "NumPy" not in file


def test_rows_survive_a_csv(tmp_path):
    rows = [row("a", 0.5), row("b", None, note="too slow, or so")]
    report.write_csv(rows, tmp_path / "out" / "rows.csv")
    with (tmp_path / "out" / "rows.csv").open(newline="") as file:
        first, second = csv.DictReader(file)
    assert (first["engine"], float(first["seconds"]), int(first["codes"])) == ("a", 0.5, 1_000_000)
    assert (second["seconds"], second["note"]) == ("", "too slow, or so")


def test_plots(tmp_path):
    rows = [
        row(engine, seconds, codes=codes, queries=queries, recall=recall)
        for engine, seconds, recall in (("bitprint scan", 0.1, 1.0), ("faiss HNSW", 0.2, 0.5))
        for codes in (1000, 100_000)
        for queries in (1, 128)
    ]
    report.plot(rows, tmp_path / "out" / "a.png")
    assert (tmp_path / "out" / "a.png").read_bytes().startswith(b"\x89PNG")
    with pytest.raises(ValueError, match="no codes of 12 bits were measured"):
        report.plot(rows, tmp_path / "b.png", bits=12)


# ---- the command


def run(*arguments):
    app = typer.Typer()
    app.command()(bench_command)
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def test_the_command_measures_every_task(tmp_path):
    result = run(
        *("search", "--codes", "300,1000", "--bits", 16, "--queries", "1,3", "--k", "5"),
        *("--threads", 1, "--json", "--csv", tmp_path / "a.csv", "--plot", tmp_path / "a.png"),
    )
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    tasks = {(r["codes"], r["queries"], r["task"]) for r in found["rows"] if r["queries"]}
    assert tasks == {
        (n, q, task) for n in (300, 1000) for q in (1, 3) for task in ("top 5", "within 2")
    }
    ours = {r["engine"] for r in found["rows"] if r["queries"]}
    assert {"bitprint scan", "bitprint index", "NumPy"} <= ours
    assert [budget["kept"] for budget in found["budgets"]]
    assert (tmp_path / "a.csv").exists()
    assert (tmp_path / "a.png").exists()


def test_wrong_arguments_of_the_command():
    result = run("train")
    assert result.exit_code == 2
    assert "unknown benchmark 'train'; choose search" in result.stderr
    assert run("search", "--k", "5,x").exit_code == 2
    assert run("search", "--queries", "0").exit_code == 2


# ---- the grid


def cell_of(kind="uniform", queries=3, task="top 10"):
    return grid.Cell(500, 48, kind, queries, task)


@pytest.fixture
def index_of(tmp_path):
    """Return a function that opens an index of packed codes of 48 bits."""
    with ExitStack() as stack:

        def make(packed):
            files.build_index(tmp_path / "grid.bp", packed, 48)
            return stack.enter_context(Index.open(tmp_path / "grid.bp"))

        yield make


@pytest.mark.parametrize("task", grid.TASKS)
@pytest.mark.parametrize("kind", grid.KINDS)
def test_grid_cell_compares_all_engines(tmp_path, index_of, kind, task):
    pytest.importorskip("faiss")
    pytest.importorskip("usearch")
    packed = grid.grid_codes(500, 48, kind)
    engines = [prepared(index_of(packed)), *faiss_flat(packed), *faiss_flat(packed, 8)]
    engines += rivals().other_engines(packed, 1)
    cell = cell_of(kind, 3, task)
    rows = grid.measure_cell(cell, packed, engines, cap=0.01, threads=1, seed=0)
    path = tmp_path / "grid.csv"
    assert grid.done_cells(path) == set()
    grid.append_rows(path, rows)
    assert grid.done_cells(path) == {cell}
    read = grid.read_rows(path)
    assert [row["engine"] for row in read] == [row["engine"] for row in rows]
    supported = [engine for engine in engines if cell.bench_task().search_of(engine)]
    assert [row["engine"] for row in rows] == [engine.name for engine in supported]
    for row, engine in zip(rows, supported, strict=True):
        assert row["recall"] == 1 if engine.exact else 0 <= row["recall"] <= 1
    flat_times = [float(row["seconds"]) for row in rows if row["engine"].startswith("faiss flat")]
    assert grid.ratios(read) == {cell: min(flat_times) / float(rows[0]["seconds"])}
    grid.plot_grid(read, tmp_path / "grid.png")
    assert (tmp_path / "grid.png").stat().st_size > 1000


def test_grid_cell_refuses_wrong_results():
    packed = grid.grid_codes(200, 48, "uniform")
    right = flat(packed)
    wrong = Engine("wrong", lambda queries, k: (None, right.nearest(queries, k)[1] + 1))
    with pytest.raises(ValueError, match="wrong returns wrong results for Cell"):
        grid.measure_cell(cell_of(), packed, [right, wrong], cap=0.01, threads=1, seed=0)


def test_grid_caps_queries_with_too_many_matches(monkeypatch):
    monkeypatch.setattr(grid, "_MOST_MATCHES", 4 * 5)
    packed = np.zeros((5, 6), np.uint8)
    (row,) = grid.measure_cell(
        cell_of(queries=16, task="radius 2"), packed, [flat(packed)], cap=0.01, threads=1, seed=0
    )
    assert (row["measured_queries"], row["queries"]) == (4, 16)
    assert row["note"] == "capped: 5 matches per query"


def test_grid_codes_are_in_clusters():
    packed = grid.grid_codes(3000, 64, "clustered")
    distances = naive_distances(packed[:30], packed)
    near = (distances < 20).sum(axis=1)  # within a cluster 7.5 on average, otherwise 32
    assert np.all((near > 10) & (near < 60))


def test_grid_continues_where_it_stopped(tmp_path, monkeypatch, capsys):
    pytest.importorskip("faiss")
    script, path = rivals(), tmp_path / "grid.csv"
    monkeypatch.setattr(script, "set_threads", lambda threads: None)
    options = ["--grid", "--threads", "1", "--sizes", "300", "--bits", "48", "--cap", "0.01"]
    options += ["--csv", str(path), "--plot", str(tmp_path / "grid.png"), "--queries", "1"]
    monkeypatch.setattr("sys.argv", ["search.py", *options, "--kinds", "uniform"])
    script.main()
    first = grid.read_rows(path)
    monkeypatch.setattr("sys.argv", ["search.py", *options])
    script.main()
    rows = grid.read_rows(path)
    assert rows[: len(first)] == first
    assert len(rows) == 2 * len(first)
    assert len(grid.done_cells(path)) == 2 * len(grid.TASKS)
    assert "uniform" in capsys.readouterr().out
