"""The discrete step on a GPU: one warp per sample."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor


def descend(codes: Tensor, gram: Tensor, pull: Tensor, sweeps: int) -> Tensor:
    """Run the updates of `bitprint.methods.discrete.dcc` on the GPU.

    Parameters
    ----------
    codes : Tensor of float64, shape (N, K)
        Initial B; not modified.
    gram : Tensor of float64, shape (K, K)
        W W' with a zero diagonal.
    pull : Tensor of float64, shape (N, K)
        Q.
    sweeps : int
        Maximum number of passes over the bits.
    """
    count, bits = codes.shape
    result = torch.empty_like(codes)
    if count:
        with torch.cuda.device_of(codes):
            _descend[(count,)](
                codes.contiguous(),
                codes @ gram,
                gram.contiguous(),
                pull.contiguous(),
                result,
                sweeps,
                bits,
                WIDTH=triton.next_power_of_2(bits),
                num_warps=1,
            )
    return result


@triton.jit
def _descend(codes, others, gram, pulls, result, sweeps, bits, WIDTH: tl.constexpr):
    """Update one sample; `rest` is B G and is updated with each changed bit."""
    row = tl.program_id(0).to(tl.int64)
    place = tl.arange(0, WIDTH)
    inside = place < bits
    own = row * bits + place
    code = tl.load(codes + own, mask=inside, other=0.0)
    rest = tl.load(others + own, mask=inside, other=0.0)
    pull = tl.load(pulls + own, mask=inside, other=0.0)
    sweep = 0
    changed = 1
    while (sweep < sweeps) & (changed > 0):
        changed = 0
        for bit in range(bits):
            here = place == bit
            argument = tl.sum(tl.where(here, pull - rest, 0.0))
            before = tl.sum(tl.where(here, code, 0.0))
            after = tl.where(argument > 0, 1.0, tl.where(argument < 0, -1.0, before))
            step = after - before
            rest += step * tl.load(gram + bit * bits + place, mask=inside, other=0.0)
            code = tl.where(here, after, code)
            changed += (step != 0).to(tl.int32)
        sweep += 1
    tl.store(result + own, code, mask=inside)
