"""Triton scans over codes on a GPU: each lists the codes that are closer than a limit.

A found code is one number, its distance times 2^40 plus its position, so that numbers in order
are codes in order. Found codes come in no particular order.

Counting bits wins here: on an H200, products of int8 signs on the tensor cores, with the same
limits, took 3 to 4 times as long for 128 queries.
"""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

_CODES = (1024, 4)  # codes and warps of one block; the fastest of six on an H200


def scan(
    queries: Tensor,
    limits: Tensor,
    planes: Tensor,
    alive: Tensor | None,
    span: tuple[int, int],
    counts: Tensor,
    found: Tensor,
) -> None:
    """List the codes of a span that are closer to each query than its limit.

    Parameters
    ----------
    queries : Tensor of int64, shape (Q, W)
        Words of the queries.
    limits : Tensor of int32, shape (Q,)
        A code is found if its distance is below this.
    planes : Tensor of int64, shape (W, N)
        Words of the database, plane by plane.
    alive : Tensor of uint8, shape (N,), or None
        Codes marked 0 are passed over.
    span : (int, int)
        First position, and the one after the last.
    counts : Tensor of int32, shape (Q,)
        Zeros; becomes how many codes were found, also those beyond the room in `found`.
    found : Tensor of int64, shape (Q, room)
        Where they are written.
    """
    start, stop = span
    block, warps = _CODES
    _scan[(triton.cdiv(stop - start, block),)](
        queries,
        limits,
        planes,
        counts if alive is None else alive,  # not read where there are no marks
        counts,
        found,
        start,
        stop,
        planes.stride(0),
        found.stride(0),
        len(queries),
        WORDS=queries.shape[1],
        MARKED=alive is not None,
        BLOCK=block,
        num_warps=warps,
    )


@triton.jit
def _ones(word):
    return tl.inline_asm_elementwise(
        "popc.b64 $0, $1;", "=r,l", [word], dtype=tl.int32, is_pure=True, pack=1
    )


@triton.jit
def _scan(
    queries,
    limits,
    planes,
    alive,
    counts,
    found,
    start,
    stop,
    plane_stride,
    found_stride,
    total,
    WORDS: tl.constexpr,
    MARKED: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Xor, count, compare: a block of codes against all queries in turn."""
    position = start + tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = position < stop
    if MARKED:
        inside = inside & (tl.load(alive + position, mask=inside, other=0) != 0)
    first = tl.load(planes + position, mask=inside, other=0)
    for q in range(total):
        distance = _ones(first ^ tl.load(queries + q * WORDS))
        for w in tl.static_range(1, WORDS):
            word = tl.load(
                planes + w * tl.cast(plane_stride, tl.int64) + position, mask=inside, other=0
            )
            distance += _ones(word ^ tl.load(queries + q * WORDS + w))
        closer = inside & (distance < tl.load(limits + q))
        if tl.max(closer.to(tl.int32), 0) != 0:  # seldom, once the limits are close
            slot = tl.atomic_add(counts + q + tl.zeros_like(distance), 1, mask=closer)
            entry = (distance.to(tl.int64) << 40) + position
            room = closer & (slot < found_stride)
            tl.store(found + tl.cast(q, tl.int64) * found_stride + slot, entry, mask=room)
