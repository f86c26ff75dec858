"""VectorIndex against plain NumPy: ranking by codes, rescoring, changes and bad input."""

import threading

import numpy as np
import pytest
import torch
from vector_cases import clustered, similarity

import bitprint as bp
from bitprint.photos import Photos
from bitprint.vectors import VectorIndex
from bitprint.vectors import index as index_module

METRICS = ("cosine", "ip", "l2")


def outputs_of(metric, bits, vectors, queries, method="itq"):
    """Codes of vectors as -1 and +1, and outputs of queries, by the method itself."""
    unit = (
        (lambda x: x / np.linalg.norm(x, axis=1, keepdims=True)) if metric == "cosine" else np.copy
    )
    hasher = bp.create(method, bits).fit(unit(vectors))
    projected = hasher.project(unit(queries))
    if metric == "ip":  # without centering
        projected = projected - hasher.project(np.zeros_like(vectors[:1]))
    return hasher.encode(unit(vectors)).signs(), projected


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize(("bits", "method"), [(24, "itq"), (40, "sblsh")])
def test_codes_alone_are_ranked_by_the_outputs_of_the_method(make, metric, bits, method):
    vectors, queries = clustered(300, 24), clustered(7, 24, seed=1)
    index = make(vectors, bits, metric=metric, keep=None)
    index.add(range(300), vectors)
    signs, projected = outputs_of(metric, bits, vectors, queries, method)
    assert np.mean(index.index.codes(range(300)).signs() == signs) > 0.999  # but for rounding
    scores = projected.astype(np.float64) @ index.index.codes(range(300)).signs().T
    ids, similarities = index.search(queries, k=20)
    best = np.sort(scores, axis=1)[:, ::-1][:, :20]
    np.testing.assert_allclose(np.take_along_axis(scores, ids, 1), best, rtol=1e-4, atol=1e-4)
    assert np.all(np.diff(similarities) <= 0)


@pytest.mark.parametrize("metric", METRICS)
def test_estimated_similarities_are_near_the_true_ones(make, metric):
    # A code does not contain the length of its vector, so these have length 1.
    vectors, queries = (
        each / np.linalg.norm(each, axis=1, keepdims=True)
        for each in (clustered(2000, 32), clustered(50, 32, seed=1))
    )
    index = make(vectors, 32, metric=metric, keep=None)
    index.add(range(2000), vectors)
    ids, estimates = index.search(queries, k=2000)
    true = np.take_along_axis(similarity(metric, queries, vectors), ids, 1)
    assert np.corrcoef(estimates.ravel(), true.ravel())[0, 1] > 0.8
    error = np.sqrt(np.mean((estimates - true) ** 2))
    assert error < 0.75 * true.std()
    assert abs(np.mean(estimates - true)) < 0.2 * true.std()


def rounded(keep, vectors):
    """Vectors as they are kept."""
    if keep == "float16":
        return vectors.astype(np.float16).astype(np.float64)
    mean = vectors.mean(axis=0, dtype=np.float64)
    step = np.abs(vectors - mean).max(axis=0) / 127
    return np.rint((vectors - mean) / step) * step + mean


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize(("keep", "most"), [("int8", 0.02), ("float16", 0.001)])
def test_rescored_similarities_are_those_of_kept_vectors(make, metric, keep, most):
    vectors, queries = clustered(400, 24), clustered(6, 24, seed=1)
    index = make(vectors, 24, metric=metric, keep=keep)
    index.add(range(400), vectors)
    given = vectors / np.linalg.norm(vectors, axis=1)[:, None] if metric == "cosine" else vectors
    kept = rounded(keep, given)
    assert np.abs(kept - given).max() < most * np.abs(given).max()
    true = similarity(metric, queries, kept)
    ids, similarities = index.search(queries, k=10, rescore=40)  # all vectors
    best = np.sort(true, axis=1)[:, ::-1][:, :10]
    np.testing.assert_allclose(similarities, best, rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(similarities, np.take_along_axis(true, ids, 1), rtol=1e-3, atol=1e-3)


def test_rescoring_ranks_only_the_best_candidates_of_the_codes(make):
    vectors, queries = clustered(300, 24), clustered(5, 24, seed=1)
    index = make(vectors, 24)
    index.add(range(300), vectors)
    candidates = index.search(queries, k=30, rescore=0).ids
    ids, similarities = index.search(queries, k=10, rescore=3)
    true = similarity("cosine", queries, vectors)
    for row in range(5):
        assert set(ids[row]) <= set(candidates[row])
        best = sorted(true[row, candidates[row]], reverse=True)[:10]
        np.testing.assert_allclose(similarities[row], best, atol=5e-3)
    assert index.search(queries).ids.tolist() == index.search(queries, rescore=10).ids.tolist()


def test_hamming_ranks_by_the_codes_of_the_queries(make):
    vectors, queries = clustered(200, 24), clustered(5, 24, seed=1)
    index = make(vectors, 24)
    index.add(range(200), vectors)
    codes = index.model.encode(index.model.prepare(queries))
    ids, similarities = index.search(queries, k=9, metric="hamming", rescore=0)
    expected = index.index.search(codes, k=9)
    assert ids.tolist() == expected.ids.tolist()
    np.testing.assert_allclose(similarities, 1 - 2 * expected.distances / 24, rtol=1e-6)
    candidates = index.index.search(codes, k=18).ids
    rescored = index.search(queries, k=9, metric="hamming", rescore=2)
    assert all(set(row) <= set(of) for row, of in zip(rescored.ids, candidates, strict=True))
    assert np.all(np.diff(rescored.similarities) <= 0)


def test_recall_grows_with_real_valued_queries_and_with_kept_vectors(make):
    rng = np.random.default_rng(0)
    spread = 1 / np.sqrt(np.arange(1, 65))  # as of embeddings, most variance is in few directions
    vectors, queries = (spread * rng.normal(size=(count, 64)) for count in (5000, 200))
    index = make(vectors, 64)
    index.add(range(5000), vectors)
    true = np.argsort(-similarity("cosine", queries, vectors), axis=1)[:, :10]

    def recall(**options):
        ids = index.search(queries, k=10, **options).ids
        return np.mean([len({*a} & {*b}) / 10 for a, b in zip(ids, true, strict=True)])

    hamming, real = recall(rescore=0, metric="hamming"), recall(rescore=0)
    assert hamming + 0.05 < real < recall(rescore=4) < recall()
    assert recall() > 0.9
    assert recall(rescore=500) > 0.98  # all vectors, as int8


def test_vectors_on_gpu_or_as_lists_and_other_types_are_accepted(make):
    vectors = np.round(clustered(50, 16) * 4)
    index = make(torch.from_numpy(vectors), 16)
    codes = [index.model.encode(index.model.prepare(vectors))]
    for given in (
        vectors.astype(np.float64),
        vectors.astype(np.float16),
        vectors.astype(np.int32),
        vectors.tolist(),
        torch.from_numpy(vectors).to(torch.bfloat16),
    ):
        codes.append(index.model.encode(index.model.prepare(given)))
    assert all(each == codes[0] for each in codes)


# ---- ids, changes, files


def test_vectors_without_ids_are_numbered(make):
    vectors = clustered(6, 8)
    index = make(vectors, 8)
    index.add(vectors[:2])
    index.add(vectors[2:4])
    assert index.index.ids().tolist() == [0, 1, 2, 3]
    named = make(vectors, 8)
    named.add(["ant", "7"], vectors[:2])
    named.add(vectors[2:3])
    assert named.index.ids().tolist() == ["ant", "7", "8"]


def test_an_id_that_is_added_again_replaces_code_and_vector(make):
    vectors = clustered(50, 16)
    index = make(vectors, 16)
    index.add(range(50), vectors)
    index.add([7], vectors[30:31])
    assert len(index) == 50
    ids, similarities = index.search(vectors[30:31], k=2)
    assert sorted(ids[0]) == [7, 30]
    np.testing.assert_allclose(similarities[0], 1, atol=1e-3)


@pytest.mark.parametrize("keep", ["int8", "float16", None])
def test_answers_are_the_same_after_removal_compaction_and_reopening(make, keep):
    vectors, queries = clustered(90, 16), clustered(4, 16, seed=1)
    index = make(vectors, 16, keep=keep)
    for start in range(0, 90, 30):
        index.add([f"v{row}" for row in range(start, start + 30)], vectors[start : start + 30])
    index.remove([f"v{row}" for row in range(10, 50)])
    index.add(["v3", "v80"], vectors[[4, 5]])  # replaced
    before = index.search(queries, k=12)
    index.index.compact()
    after = index.search(queries, k=12)
    assert after.ids.tolist() == before.ids.tolist()
    assert after.similarities.tolist() == before.similarities.tolist()
    index.add(["new"], vectors[20:21])
    assert index.search(vectors[20:21], k=1).ids.tolist() == [["new"]]
    index.close()
    with VectorIndex.open(index.path) as again:
        again.remove(["new"])
        found = again.search(queries, k=12)
        assert found.ids.tolist() == before.ids.tolist()
        assert found.similarities.tolist() == before.similarities.tolist()


def test_fewer_vectors_than_k_are_padded(make):
    vectors = clustered(30, 8)
    index = make(vectors, 8)
    ids, similarities = index.search(vectors[:2], k=3)
    assert ids.tolist() == [[-1] * 3] * 2
    assert np.isneginf(similarities).all()
    index.add(["a", "b"], vectors[:2])
    for options in ({}, {"rescore": 0}, {"metric": "hamming"}):
        ids, similarities = index.search(vectors[:1], k=4, **options)
        assert ids[0, 0] == "a"
        assert ids[0, 2:].tolist() == [None, None]
        assert np.isneginf(similarities[0]).tolist() == [False, False, True, True]
    assert index.search(np.empty((0, 8), np.float32), k=3).ids.shape == (0, 3)


def test_other_process_reads_and_writes_the_same_file(make):
    vectors = clustered(60, 16)
    index = make(vectors, 16)
    with VectorIndex.open(index.path) as other:
        other.add(range(60), vectors)
        assert index.search(vectors[:1], k=1).ids.tolist() == [[0]]
        index.remove([0])
        other.index.compact()
        assert index.search(vectors[5:6], k=1).ids.tolist() == [[5]]
        np.testing.assert_allclose(index.search(vectors[5:6], k=1).similarities, 1, atol=1e-3)


def test_hit_removed_during_a_search_is_not_returned(make, monkeypatch):
    vectors = clustered(60, 16)
    index = make(vectors, 16)
    index.add(range(60), vectors)
    search, removed = index.index.search, []

    def search_and_lose(*arguments, **options):
        found = search(*arguments, **options)
        if not removed:
            removed.append(5)
            with VectorIndex.open(index.path) as other:
                other.remove(removed)
        return found

    monkeypatch.setattr(index.index, "search", search_and_lose)
    ids = index.search(vectors[5:6], k=10).ids
    assert removed == [5]
    assert 5 not in ids
    assert (ids >= 0).all()


def test_threads_search_while_another_adds(make):
    vectors = clustered(300, 16)
    index = make(vectors, 16)
    index.add(range(100), vectors[:100])
    wrong = []

    def ask():
        for row in range(40):
            ids, similarities = index.search(vectors[row : row + 1], k=1)
            if ids[0, 0] != row or abs(similarities[0, 0] - 1) > 1e-2:
                wrong.append((row, ids, similarities))

    threads = [threading.Thread(target=ask) for _ in range(3)]
    for thread in threads:
        thread.start()
    for start in range(100, 300, 10):
        index.add(range(start, start + 10), vectors[start : start + 10])
        index.add(range(start, start + 5), vectors[start : start + 5])
    for thread in threads:
        thread.join()
    assert wrong == []


def test_the_same_vectors_and_seed_give_the_same_model(make):
    vectors = clustered(300, 16)
    assert make(vectors).model.identity == make(vectors).model.identity
    assert make(vectors, seed=1).model.identity != make(vectors).model.identity


def test_learning_uses_a_random_sample(make, monkeypatch):
    monkeypatch.setattr(index_module, "SAMPLE", 40)
    vectors = clustered(200, 8)
    vectors[::2] += 100  # rows of the first half of a sorted file must not be all
    index = make(vectors, 8, metric="l2")
    assert index.model.settings.learned_from == 40
    assert 20 < index.model.mean.mean() < 80


# ---- bad input: one sentence, and nothing is added


@pytest.mark.parametrize(
    ("vectors", "message"),
    [
        (np.full((3, 8), np.nan), "row 0 contains NaN or infinity"),
        (np.array([[1.0] * 8, [1e300] * 8]), "row 1 contains NaN or infinity"),
        (np.array([[1.0] * 8, [0.0] * 8]), "row 1 contains only zeros, which have no cosine"),
        (np.ones((2, 9)), "the model is for vectors of length 8, got length 9"),
        (np.ones(8), r"must have shape \(N, d\), got \(8,\): for one vector pass vector\[None\]"),
        (np.ones((2, 2, 2)), "must have shape"),
        (np.array([["a"] * 8]), "must be real numbers, got <U1"),
        (np.ones((2, 8), object), "must be real numbers, got object"),
        (np.ones((2, 8), complex), "must be real numbers, got complex128"),
        (np.ones((2, 8), bool), "must be real numbers, got bool"),
        ([[1.0] * 8, [1.0] * 7], "the vectors have different lengths"),
        (np.ones((2, 0)), "must have shape"),
    ],
)
def test_bad_vectors_are_refused_and_nothing_is_added(make, vectors, message):
    index = make(clustered(30, 8), 8)
    index.add(["kept"], clustered(1, 8))
    for call in (index.add, index.search):
        with pytest.raises(ValueError, match=message):
            call(vectors)
    assert index.index.ids().tolist() == ["kept"]
    if message.endswith("length 9"):  # a new index can be for these
        return
    with pytest.raises(ValueError, match=message):
        make(vectors, 8)


def test_bad_row_of_a_later_batch_leaves_nothing(make, monkeypatch):
    monkeypatch.setattr("bitprint.vectors.reading._BATCH_ROWS", 10)
    vectors = clustered(40, 8)
    index = make(vectors, 8)
    index.add(range(5), vectors[:5])
    worse = vectors.copy()
    worse[33, 2] = np.inf
    with pytest.raises(ValueError, match="row 33 contains NaN or infinity"):
        index.add(range(40), worse)
    assert index.index.ids().tolist() == [0, 1, 2, 3, 4]
    with VectorIndex.open(index.path) as again:
        assert len(again) == 5
        assert again.search(vectors[:1], k=1).ids.tolist() == [[0]]


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        ([1, 2, 1], "duplicate id 1; give each vector its own id"),
        (["a", "a", "b"], "duplicate id 'a'"),
        ([1, 2], "got 2 ids for 3 vectors"),
        ([1.5, 2.5, 3.5], "all integers or all strings"),
        (["a", "b", "c"], "this index has integer ids, got string ids"),
    ],
)
def test_bad_ids_are_refused_and_nothing_is_added(make, ids, message):
    vectors = clustered(30, 8)
    index = make(vectors, 8)
    index.add([100], vectors[:1])
    with pytest.raises(ValueError, match=message):
        index.add(ids, vectors[:3])
    assert index.index.ids().tolist() == [100]


def test_zeros_are_vectors_without_cosine(make):
    vectors = clustered(30, 8)
    for metric in ("ip", "l2"):
        index = make(vectors, 8, metric=metric)
        index.add([0], np.zeros((1, 8)))
        assert index.search(np.zeros((1, 8)), k=1).similarities[0, 0] == pytest.approx(0, abs=0.1)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"metric": "dot"}, "metric must be one of cosine, ip, l2"),
        ({"keep": "float32"}, "keep must be None, 'int8' or 'float16'"),
        ({"bits": 0}, "bits"),
        ({"bits": 1025}, "at most 1024 bits"),
        ({"method": "itq", "bits": 9}, "use fewer bits"),
        ({"method": "sh"}, "sh is not a linear map"),
        ({"method": "sdh"}, "sdh does not learn from vectors without labels"),
        ({"method": "dsdh"}, "dsdh does not learn from vectors without labels"),
        ({"method": "iqt"}, "iqt"),
    ],
)
def test_bad_options_are_refused_and_no_file_is_written(tmp_path, options, message):
    with pytest.raises(ValueError, match=message):
        VectorIndex.learn(tmp_path / "a.bp", clustered(40, 8), **({"bits": 8} | options))
    assert list(tmp_path.iterdir()) == []


def test_learning_from_one_vector_is_refused(tmp_path):
    with pytest.raises(ValueError, match="learning needs at least 2 vectors, got 1"):
        VectorIndex.learn(tmp_path / "a.bp", np.ones((1, 8)), bits=8)


def test_another_metric_or_rescoring_without_vectors_is_refused(make):
    vectors = clustered(30, 8)
    index = make(vectors, 8, keep=None)
    index.add(vectors)
    with pytest.raises(ValueError, match="was learned for cosine, not for l2"):
        index.search(vectors, metric="l2")
    assert index.search(vectors[:1], k=1, metric="cosine").ids.tolist() == [[0]]
    with pytest.raises(ValueError, match="keeps no vectors to compare again"):
        index.search(vectors, rescore=10)


def test_large_numbers_do_not_fit_float16(make):
    vectors = clustered(30, 8) * 1e5
    index = make(vectors, 8, metric="ip", keep="float16")
    with pytest.raises(ValueError, match="float16 stores numbers up to 65,504"):
        index.add(vectors)
    assert len(index) == 0


def test_existing_file_is_not_overwritten(make):
    index = make(clustered(30, 8), 8)
    with pytest.raises(FileExistsError, match="already exists"):
        VectorIndex.learn(index.path, clustered(30, 8))


def test_codes_without_vectors_are_refused(make):
    vectors = clustered(30, 8)
    index = make(vectors, 8)
    with bp.Index.open(index.path) as plain:
        with pytest.raises(ValueError, match=r"use bp\.VectorIndex or `bitprint vectors add`"):
            plain.add([1], index.model.encode(index.model.prepare(vectors[:1])))
        assert len(plain) == 0


def test_other_indexes_are_named(make, tmp_path):
    with bp.Index.create(tmp_path / "codes.bp", bits=8):
        pass
    with pytest.raises(ValueError, match="contains no model for vectors"):
        VectorIndex.open(tmp_path / "codes.bp")
    with pytest.raises(FileNotFoundError, match="no such index"):
        VectorIndex.open(tmp_path / "missing.bp")
    index = make(clustered(30, 8), 8)
    with pytest.raises(ValueError, match="images cannot be encoded"):
        Photos.open(index.path)


def test_damaged_model_is_named(make):
    index = make(clustered(30, 8), 8)
    weights = index.index.attachments("vectors/")["vectors/model.safetensors"]
    index.index.attach({"vectors/model.safetensors": weights[:-1] + b"\0"})
    index.close()
    with pytest.raises(ValueError, match=r"the model is damaged .*checksum.*restore it"):
        VectorIndex.open(index.path)


def test_model_of_another_index_is_refused(make):
    index, other = make(clustered(30, 8), 8), make(clustered(30, 8, seed=1), 8)
    index.index.attach(other.model.files)
    index.close()
    with pytest.raises(ValueError, match="the model does not belong to the codes"):
        VectorIndex.open(index.path)
