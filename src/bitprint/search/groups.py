"""Distances of a group of 64 codes to a query, computed in vector registers.

A loop over words with one distance per code in memory spends most of its time on loads and stores
of the distances. These functions generate LLVM vector instructions instead: all 64 distances stay
in registers while the loop runs over the words of a code, for any number of words. LLVM translates
the vectors to the widest ones of the processor, and their popcount to one instruction if it exists
(AVX-512 VPOPCNTDQ, NEON).
"""

from __future__ import annotations

from typing import Any, NamedTuple

from llvmlite import ir
from numba import types
from numba.core import cgutils as untyped
from numba.extending import intrinsic

_cgutils: Any = untyped

GROUP = 64  # codes per group, one per bit of a mask

_LANES = 8
_WORD, _BYTE, _LANE_MASK = ir.IntType(64), ir.IntType(8), ir.IntType(_LANES)
_VECTOR = ir.VectorType(_WORD, _LANES)


def _type_any_closer(
    _context: Any, queries: Any, q: Any, planes: Any, start: Any, limit: Any, prefix: Any
) -> Any:
    """Return 2 if a code of the group at `start` is closer to query q than `limit`.

    If no code is closer by its first `prefix` words alone, the other words are not read, and the
    result is 0. Otherwise it is 1.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        words, group = _operands(context, builder, signature, arguments)
        limit, prefix = _repeated(builder, arguments[4]), arguments[5]
        sums = _distances(builder, group, _WORD(1), prefix, group.ones(builder, _WORD(0)))
        closer = _any_below(builder, sums, limit)
        result = _cgutils.alloca_once_value(builder, _WORD(0))
        with builder.if_then(closer, likely=False):
            sums = _distances(builder, group, prefix, words, sums)
            closer = builder.zext(_any_below(builder, sums, limit), _WORD)
            builder.store(builder.add(closer, _WORD(1)), result)
        return builder.load(result)

    word = types.uint64
    return word(queries, word, planes, word, word, word), generate


def _type_find_closer(
    _context: Any, queries: Any, q: Any, planes: Any, start: Any, limit: Any, distances: Any
) -> Any:
    """Write the distances of the group at `start`; return a mask of those below `limit`."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        limit = _repeated(builder, arguments[4])
        target = context.make_array(signature.args[5])(context, builder, arguments[5]).data
        vectors = builder.bitcast(target, _VECTOR.as_pointer())
        mask = _WORD(0)
        words, group = _operands(context, builder, signature, arguments)
        distances = _distances(builder, group, _WORD(1), words, group.ones(builder, _WORD(0)))
        for i, vector in enumerate(distances):
            builder.store(vector, builder.gep(vectors, [_WORD(i)]), align=8)
            closer = builder.bitcast(builder.icmp_unsigned("<", vector, limit), _LANE_MASK)
            bits = builder.shl(builder.zext(closer, _WORD), _WORD(_LANES * i))
            mask = builder.or_(mask, bits)
        return mask

    given = (queries, types.uint64, planes, types.uint64, types.uint64, distances)
    return types.uint64(*given), generate


def _type_nonzero(_context: Any, flags: Any, start: Any) -> Any:
    """Return a mask of the nonzero bytes among the 64 from `start` on."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        group = ir.VectorType(_BYTE, GROUP)
        first = builder.bitcast(builder.gep(data, [arguments[1]]), group.as_pointer())
        loaded = builder.load(first, align=1)
        set_bits = builder.icmp_unsigned("!=", loaded, ir.Constant(group, None))
        return builder.bitcast(set_bits, _WORD)

    return types.uint64(flags, types.uint64), generate


class _Group(NamedTuple):
    """Pointers to the words of a query and to the first words of the codes of a group."""

    query: Any
    codes: Any
    capacity: Any

    def ones(self, builder: Any, word: Any) -> list[Any]:
        """Return vectors of the popcounts of the codes xor the query, in one word."""
        own = _repeated(builder, builder.load(builder.gep(self.query, [word])))
        plane = builder.gep(self.codes, [builder.mul(word, self.capacity)])
        vectors = builder.bitcast(plane, _VECTOR.as_pointer())
        ones = []
        for i in range(GROUP // _LANES):
            codes = builder.load(builder.gep(vectors, [_WORD(i)]), align=8)
            ones.append(_call(builder, "llvm.ctpop.v8i64", builder.xor(codes, own)))
        return ones


def _operands(context: Any, builder: Any, signature: Any, arguments: Any) -> tuple[Any, _Group]:
    """Return the number of words and the group at `start`."""
    queries, planes = (
        context.make_array(signature.args[i])(context, builder, arguments[i]) for i in (0, 2)
    )
    words, capacity = _cgutils.unpack_tuple(builder, planes.shape, 2)
    query = builder.gep(queries.data, [builder.mul(arguments[1], words)])
    return words, _Group(query, builder.gep(planes.data, [arguments[3]]), capacity)


def _distances(builder: Any, group: _Group, first: Any, stop: Any, sums: list[Any]) -> list[Any]:
    """Return vectors of sums plus the popcounts of the words first..stop."""
    before = builder.block
    loop, after = builder.append_basic_block("words"), builder.append_basic_block("sums")
    builder.cbranch(builder.icmp_unsigned("<", first, stop), loop, after)
    builder.position_at_end(loop)
    word = builder.phi(_WORD)
    partial = [builder.phi(_VECTOR) for _ in sums]
    ones = group.ones(builder, word)
    totals = [builder.add(*pair) for pair in zip(partial, ones, strict=True)]
    following = builder.add(word, _WORD(1))
    for phi, start, value in zip(
        [word, *partial], [first, *sums], [following, *totals], strict=True
    ):
        phi.add_incoming(start, before)
        phi.add_incoming(value, loop)
    builder.cbranch(builder.icmp_unsigned("<", following, stop), loop, after)
    builder.position_at_end(after)
    merged = []
    for unchanged, total in zip(sums, totals, strict=True):
        merged.append(builder.phi(_VECTOR))
        merged[-1].add_incoming(unchanged, before)
        merged[-1].add_incoming(total, loop)
    return merged


def _any_below(builder: Any, vectors: list[Any], limit: Any) -> Any:
    """Return whether any element is below the limit."""
    while len(vectors) > 1:
        pairs = zip(vectors[::2], vectors[1::2], strict=True)
        vectors = [_call(builder, "llvm.umin.v8i64", *pair) for pair in pairs]
    below = builder.bitcast(builder.icmp_unsigned("<", vectors[0], limit), _LANE_MASK)
    return builder.icmp_unsigned("!=", below, _LANE_MASK(0))


def _repeated(builder: Any, value: Any) -> Any:
    """Return a vector with the value in all lanes."""
    index = ir.IntType(32)
    nothing = ir.Constant(_VECTOR, ir.Undefined)
    single = builder.insert_element(nothing, value, index(0))
    lanes = ir.Constant(ir.VectorType(index, _LANES), [0] * _LANES)
    return builder.shuffle_vector(single, nothing, lanes)


def _call(builder: Any, name: str, *vectors: Any) -> Any:
    """Call a vector function of LLVM."""
    kind = ir.FunctionType(_VECTOR, [_VECTOR] * len(vectors))
    return builder.call(_cgutils.get_or_insert_function(builder.module, kind, name), vectors)


any_closer: Any = intrinsic(_type_any_closer)
find_closer: Any = intrinsic(_type_find_closer)
nonzero: Any = intrinsic(_type_nonzero)
