"""Triton kernel that lists the codes closer to a query than a limit.

A match is one integer, its distance times 2^40 plus its position, so that sorted integers are
matches in order. The kernel writes matches in no particular order.

Bit counting is the faster method: on an H200, int8 matrix products on the tensor cores with the
same limits took 3 to 4 times as long for 128 queries.
"""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

_CODES = (1024, 4)  # codes and warps per block; the fastest of six settings on an H200


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
        A code is a match if its distance is less than the limit.
    planes : Tensor of int64, shape (W, N)
        Words of the database, plane by plane.
    alive : Tensor of uint8, shape (N,), or None
        Codes with a 0 are skipped.
    span : (int, int)
        First position and end position.
    counts : Tensor of int32, shape (Q,)
        Output, initially zeros: the number of matches, including those that do not fit `found`.
    found : Tensor of int64, shape (Q, room)
        Output: the matches.
    """
    start, stop = span
    block, warps = _CODES
    _scan[(triton.cdiv(stop - start, block),)](
        queries,
        limits,
        planes,
        counts if alive is None else alive,  # not read unless MARKED
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
    """Compare a block of codes with all queries."""
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
        if tl.max(closer.to(tl.int32), 0) != 0:  # rare once the limits are tight
            slot = tl.atomic_add(counts + q + tl.zeros_like(distance), 1, mask=closer)
            entry = (distance.to(tl.int64) << 40) + position
            room = closer & (slot < found_stride)
            tl.store(found + tl.cast(q, tl.int64) * found_stride + slot, entry, mask=room)
