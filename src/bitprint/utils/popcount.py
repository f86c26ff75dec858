"""popcount: the number of ones in a 64-bit word, for use in compiled loops."""

from __future__ import annotations

from typing import Any

from numba import types
from numba.extending import intrinsic


def _type_popcount(_context: Any, _word: Any) -> Any:
    """Compile to LLVM's ctpop: one machine instruction, vectorized if possible."""

    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return builder.ctpop(arguments[0])

    return types.uint64(types.uint64), generate


popcount: Any = intrinsic(_type_popcount)
