"""Lanes: eight 64-bit words as one vector value, for use in compiled loops.

LLVM compiles operations on lanes to one instruction with AVX-512, two with AVX2 and four with NEON.
Loops over words are vectorized only if LLVM can show that arrays do not overlap; lanes need no such
proof, and stay in registers.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic, models, register_model

LANES = 8
_VECTOR = ir.VectorType(ir.IntType(64), LANES)


class LanesType(types.Type):
    """The type of a vector of eight words."""


_LANES = LanesType("Lanes")


@register_model(LanesType)
class _LanesModel(models.PrimitiveModel):
    def __init__(self, manager: Any, numba_type: Any) -> None:
        models.PrimitiveModel.__init__(self, manager, numba_type, _VECTOR)


def _pointer(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    words = context.make_array(signature.args[0])(context, builder, arguments[0])
    start = builder.gep(words.data, [arguments[1]])
    return builder.bitcast(start, _VECTOR.as_pointer())


def _type_load(_context: Any, words: Any, start: Any) -> Any:
    """Load words[start : start + 8] from a contiguous, one-dimensional array of words."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.load(_pointer(context, builder, signature, arguments), align=8)

    return _LANES(words, types.intp), generate


def _type_store(_context: Any, words: Any, start: Any, value: Any) -> Any:
    """Store to words[start : start + 8] of a contiguous, one-dimensional array of words."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        builder.store(arguments[2], _pointer(context, builder, signature, arguments[:2]), align=8)
        return context.get_dummy_value()

    return types.void(words, types.intp, _LANES), generate


def _type_zero(_context: Any) -> Any:
    """Return eight zeros."""
    return _LANES(), lambda _context, _builder, _signature, _arguments: _VECTOR(None)


def _type_both(_context: Any, one: Any, other: Any) -> Any:
    """Return one & other."""
    return _LANES(_LANES, _LANES), lambda _c, builder, _s, given: builder.and_(*given)


def _type_differ(_context: Any, one: Any, other: Any) -> Any:
    """Return one ^ other."""
    return _LANES(_LANES, _LANES), lambda _c, builder, _s, given: builder.xor(*given)


def _type_invert(_context: Any, one: Any) -> Any:
    """Return ~one."""
    return _LANES(_LANES), lambda _c, builder, _s, given: builder.not_(given[0])


def _type_parity(_context: Any, one: Any, two: Any, three: Any) -> Any:
    """Return the sum bits of a full adder: one ^ two ^ three."""

    def generate(_context: Any, builder: Any, _signature: Any, given: Any) -> Any:
        return builder.xor(builder.xor(given[0], given[1]), given[2])

    return _LANES(_LANES, _LANES, _LANES), generate


def _type_majority(_context: Any, one: Any, two: Any, three: Any) -> Any:
    """Return the carry bits of a full adder: ones where at least two arguments have ones."""

    def generate(context: Any, builder: Any, _signature: Any, given: Any) -> Any:
        one, two, three = given
        if "+avx512f" in getattr(context.codegen(), "_tm_features", ""):
            # LLVM does not find the single instruction. Bit i of the table 0xE8 is the result for
            # arguments with the bits of i.
            kind = ir.FunctionType(_VECTOR, [_VECTOR, _VECTOR, _VECTOR, ir.IntType(32)])
            name = "llvm.x86.avx512.pternlog.q.512"
            function = builder.module.globals.get(name) or ir.Function(builder.module, kind, name)
            return builder.call(function, [one, two, three, ir.IntType(32)(0xE8)])
        either = builder.and_(builder.or_(one, two), three)
        return builder.or_(builder.and_(one, two), either)

    return _LANES(_LANES, _LANES, _LANES), generate


def _type_shift_left(_context: Any, one: Any, count: Any) -> Any:
    """Return one << count."""

    def generate(_context: Any, builder: Any, _signature: Any, given: Any) -> Any:
        return builder.shl(given[0], _spread(builder, given[1]))

    return _LANES(_LANES, types.uint64), generate


def _type_shift_right(_context: Any, one: Any, count: Any) -> Any:
    """Return one >> count."""

    def generate(_context: Any, builder: Any, _signature: Any, given: Any) -> Any:
        return builder.lshr(given[0], _spread(builder, given[1]))

    return _LANES(_LANES, types.uint64), generate


def _type_broadcast(_context: Any, word: Any) -> Any:
    """Return eight copies of a word."""
    return _LANES(types.uint64), lambda _c, builder, _s, given: _spread(builder, given[0])


def _spread(builder: Any, word: Any) -> Any:
    index = ir.IntType(32)
    one = builder.insert_element(ir.Constant(_VECTOR, ir.Undefined), word, index(0))
    mask = ir.Constant(ir.VectorType(index, LANES), [index(0)] * LANES)
    return builder.shuffle_vector(one, ir.Constant(_VECTOR, ir.Undefined), mask)


load: Any = intrinsic(_type_load)
store: Any = intrinsic(_type_store)
zero: Any = intrinsic(_type_zero)
both: Any = intrinsic(_type_both)
differ: Any = intrinsic(_type_differ)
invert: Any = intrinsic(_type_invert)
parity: Any = intrinsic(_type_parity)
majority: Any = intrinsic(_type_majority)
shift_left: Any = intrinsic(_type_shift_left)
shift_right: Any = intrinsic(_type_shift_right)
broadcast: Any = intrinsic(_type_broadcast)
