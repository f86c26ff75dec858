import numpy as np
import pytest
import torch
from ranking_reference import hamming, random_task, share_a_label

from bitprint import Codes
from bitprint.evaluation.histograms import Histograms, Task, histograms_of

CPU = torch.device("cpu")
LABELS = [{"classes": 4}, {"columns": 5}, {"columns": 70}]


def on_cpu(task, chunk=None):
    return task.count("cpu", chunk)


def with_torch(task, chunk=None):
    parts = task._count_with_torch(CPU, chunk, 2, histograms_of)
    return Histograms(*(np.concatenate(part) for part in zip(*parts, strict=True)))


def count_by_loops(query_codes, query_labels, codes, labels):
    items = np.zeros((len(query_codes), codes.bits + 1), int)
    relevant = np.zeros_like(items)
    signs = codes.signs()
    for q, query in enumerate(query_codes.signs()):
        for i, item in enumerate(signs):
            distance = hamming(query, item)
            items[q, distance] += 1
            relevant[q, distance] += share_a_label(query_labels[q], labels[i])
    return items, relevant


@pytest.mark.parametrize("labels", LABELS)
@pytest.mark.parametrize("bits", [1, 7, 12, 48, 64, 65, 130])
def test_counts_equal_plain_loops(bits, labels):
    task = random_task(np.random.default_rng(bits), 3, 90, bits, **labels)
    items, relevant = count_by_loops(*task)
    for found in (on_cpu(Task(*task)), with_torch(Task(*task))):
        np.testing.assert_array_equal(found.items, items)
        np.testing.assert_array_equal(found.relevant, relevant)


@pytest.mark.parametrize("labels", LABELS)
@pytest.mark.parametrize("size", [1, 2047, 2048, 2049, 6001])
def test_cpu_and_torch_agree_across_blocks(size, labels):
    task = Task(*random_task(np.random.default_rng(size), 7, size, bits=20, **labels))
    numba, by_torch = on_cpu(task), with_torch(task)
    np.testing.assert_array_equal(numba.items, by_torch.items)
    np.testing.assert_array_equal(numba.relevant, by_torch.relevant)
    assert np.all(numba.items.sum(axis=1) == size)


@pytest.mark.parametrize("chunk", [1, 2, 7, 1000])
def test_chunks_do_not_matter(chunk):
    task = Task(*random_task(np.random.default_rng(1), 45, 300, bits=9, classes=3))
    whole = on_cpu(task)
    for chunked in (on_cpu(task, chunk), with_torch(task, chunk)):
        np.testing.assert_array_equal(whole.items, chunked.items)
        np.testing.assert_array_equal(whole.relevant, chunked.relevant)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("labels", LABELS)
@pytest.mark.parametrize("bits", [1, 48, 130, 1024, 1030])
def test_cuda_agrees_with_the_cpu(bits, labels):
    task = Task(*random_task(np.random.default_rng(bits), 40, 3000, bits, **labels))
    cpu, cuda = task.count("cpu"), task.count("cuda", chunk=9)
    np.testing.assert_array_equal(cpu.items, cuda.items)
    np.testing.assert_array_equal(cpu.relevant, cuda.relevant)


def test_large_class_numbers_are_distinguished():
    codes = Codes.from_signs([[1], [1]])
    found = Task(codes, [2**40, 2**40 + 1], codes, [2**40, 2**40]).count("cpu")
    assert found.relevant.tolist() == [[2, 0], [0, 0]]


def test_mismatches_are_refused():
    three, four = Codes.from_signs(np.ones((2, 3))), Codes.from_signs(np.ones((2, 4)))
    none = Codes.from_packed(np.empty((0, 1), np.uint8), bits=3)
    hot = np.eye(2, dtype=int)
    for arguments, message in [
        ((three, [0, 1], four, [0, 1]), "3 bits and a database of 4 bits"),
        ((three, [0], three, [0, 1]), "2 query codes but 1 query labels"),
        ((three, [0, 1], three, [0, 1, 1]), "2 database codes but 3 database labels"),
        ((three, [0, 1], three, hot), "both be class numbers or both be 0/1 matrices"),
        ((three, hot, three, np.ones((2, 5))), "2 classes but database labels have 5"),
        ((none, [], three, [0, 1]), "no query codes"),
        ((three, [0, 1], none, []), "no database codes"),
        ((three, 0, three, [0, 1]), "class numbers"),
    ]:
        with pytest.raises(ValueError, match=message):
            Task(*arguments)


def test_devices_are_checked(monkeypatch):
    codes = Codes.from_signs([[1]])
    task = Task(codes, [0], codes, [0])
    with pytest.raises(ValueError, match="'auto', 'cpu' or 'cuda', got 'tpu'"):
        task.count("tpu")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(ValueError, match="no CUDA device"):
        task.count("cuda")
