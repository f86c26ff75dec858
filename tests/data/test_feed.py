import gc
import threading
import time
from concurrent.futures import Future

import numpy as np
import pytest
import torch

from bitprint.data.feed import Feed, item_shape
from bitprint.data.images import ImageSet

CPU = torch.device("cpu")


def numbered_images(count):
    pixels = np.repeat(np.arange(count, dtype=np.uint8), 4 * 5 * 3).reshape(count, 4, 5, 3)
    return ImageSet(pixels)


def numbered_features(count):
    return np.arange(count * 3, dtype=np.float32).reshape(count, 3)


def streamed(source):
    feed = Feed(source, CPU)
    feed._resident = None
    return feed


def resident(source):
    feed = Feed(source, CPU)
    feed._resident = feed._read(slice(None))
    return feed


def within(seconds, work):
    """Run `work` in a thread with a time limit; return its result or raise its error."""
    outcome = Future()

    def attempt():
        try:
            outcome.set_result(work())
        except BaseException as error:
            outcome.set_exception(error)

    threading.Thread(target=attempt, daemon=True).start()
    return outcome.result(timeout=seconds)


def readers():
    return [thread for thread in threading.enumerate() if thread.name.endswith("(read)")]


@pytest.mark.parametrize("make", [numbered_images, numbered_features])
@pytest.mark.parametrize("way", [resident, streamed])
@pytest.mark.parametrize(("count", "size"), [(23, 5), (20, 5), (3, 8), (1, 1), (23, 1)])
def test_batches_are_the_rows_in_the_given_order(make, way, count, size):
    source = make(count)
    items = torch.from_numpy(source if isinstance(source, np.ndarray) else source.pixels)
    order = torch.randperm(count, generator=torch.Generator().manual_seed(count))
    batches = list(way(source).batches(order, size))
    assert [len(rows) for rows, _ in batches[:-1]] == [size] * (len(batches) - 1)
    assert torch.cat([rows for rows, _ in batches]).equal(order)
    for rows, batch in batches:
        assert batch.dtype == items.dtype
        assert batch.equal(items[rows])


def test_reading_ahead_gives_what_lies_on_the_device():
    source = numbered_images(50).subset(np.arange(49, -1, -2))
    order = torch.tensor([3, 3, 24, 0, 17])
    pairs = zip(resident(source).batches(order, 2), streamed(source).batches(order, 2), strict=True)
    for (rows, items), (other_rows, other_items) in pairs:
        assert rows.equal(other_rows)
        assert items.equal(other_items)


def test_length_and_shape():
    assert len(Feed(numbered_images(7), CPU)) == len(Feed(numbered_features(7), CPU)) == 7
    assert item_shape(numbered_images(7)) == (4, 5, 3)
    assert item_shape(numbered_features(7)) == (3,)


def test_an_empty_order_gives_nothing_to_learn():
    for feed in (resident(numbered_images(3)), streamed(numbered_images(3))):
        batches = within(120, lambda feed=feed: list(feed.batches(torch.arange(0), 4)))
        assert sum(len(rows) for rows, _ in batches) == 0


class Broken(ImageSet):
    """A source that raises an error at one image."""

    def read(self, rows):
        if 30 in rows:
            raise OSError("disk error at image 30")
        return super().read(rows)


def test_an_error_while_reading_ahead_reaches_the_caller():
    feed = Feed(Broken(numbered_images(100).pixels), CPU)
    seen = []

    def consume():
        for rows, _ in feed.batches(torch.arange(100), 4):
            seen.extend(rows.tolist())

    with pytest.raises(OSError, match="disk error at image 30"):
        within(120, consume)
    assert seen == list(range(28))
    assert not readers()


@pytest.mark.parametrize("taken", [0, 1, 3])
def test_a_feed_left_early_stops_its_reader(taken):
    """The reader is blocked by a full queue; closing the generator must stop it."""
    batches = streamed(numbered_images(200)).batches(torch.arange(200), 1)
    for _ in range(taken):
        next(batches)
    assert len(readers()) == (taken > 0)
    within(120, batches.close)
    assert not readers()


def test_a_loop_that_fails_stops_its_reader():
    def fail():
        for rows, _ in streamed(numbered_images(200)).batches(torch.arange(200), 1):
            1 / (rows.item() - 2)

    with pytest.raises(ZeroDivisionError):
        within(120, fail)
    gc.collect()  # the traceback kept the generator
    assert not readers()


def test_the_reader_keeps_only_a_few_batches_ahead():
    reads = []

    class Counted(ImageSet):
        def read(self, rows):
            reads.append(rows)
            return super().read(rows)

    batches = Feed(Counted(numbered_images(100).pixels), CPU).batches(torch.arange(100), 1)
    next(batches)
    deadline = time.monotonic() + 120
    while len(reads) < 2:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    time.sleep(0.2)
    ahead = len(reads)
    within(120, batches.close)
    assert ahead < 10


class AsOnAGpu(Feed):
    """A feed that pads batches as on a GPU, but reads on a CPU."""

    def __init__(self, source):
        super().__init__(source, CPU)
        self._device, self._read_by = torch.device("cuda"), Feed(source, CPU)

    def batches(self, order, batch_size):
        return self._read_by.batches(order, batch_size)


@pytest.mark.parametrize(
    ("make", "count", "sizes"),
    [
        (streamed, 10, [4, 4, 2]),
        (AsOnAGpu, 10, [4, 4, 4]),
        (AsOnAGpu, 4, [4]),
        (AsOnAGpu, 3, [3]),  # one batch, whatever its size
    ],
)
def test_outputs_of_all_items_in_order_on_a_gpu_in_batches_of_one_size(make, count, sizes):
    source, seen = numbered_features(count), []

    def net(items):
        seen.append(len(items))
        return 2 * items

    found = torch.cat(list(make(source).outputs(net, batch_size=4)))
    assert found.tolist() == (2 * source).tolist()
    assert seen == sizes
