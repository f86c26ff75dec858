"""Distances of a group of 64 codes to a query, computed in vector registers.

A loop over words with one distance per code in memory spends most of its time on loads and stores
of the distances. These functions generate LLVM vector instructions instead: all 64 distances stay
in registers while the loop runs over the words of a code, for any number of words. LLVM translates
the vectors to the widest ones of the processor, and their popcount to one instruction if it exists
(AVX-512 VPOPCNTDQ, NEON).
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

GROUP = 64  # codes per group, one per bit of a mask

_LANES = 8
_WORD, _BYTE, _LANE_MASK = ir.IntType(64), ir.IntType(8), ir.IntType(_LANES)
_VECTOR = ir.VectorType(_WORD, _LANES)


def _type_any_closer(
    _context: Any, queries: Any, q: Any, planes: Any, start: Any, limit: Any
) -> Any:
    """Return whether a code of the group at `start` is closer to query q than `limit`."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        nearest = _distances(context, builder, signature, arguments[:4])
        while len(nearest) > 1:
            pairs = zip(nearest[::2], nearest[1::2], strict=True)
            nearest = [_call(builder, "llvm.umin.v8i64", *pair) for pair in pairs]
        closer = builder.icmp_unsigned("<", nearest[0], _repeated(builder, arguments[4]))
        return builder.icmp_unsigned("!=", builder.bitcast(closer, _LANE_MASK), _LANE_MASK(0))

    return types.boolean(queries, types.uint64, planes, types.uint64, types.uint64), generate


def _type_find_closer(
    _context: Any, queries: Any, q: Any, planes: Any, start: Any, limit: Any, distances: Any
) -> Any:
    """Write the distances of the group at `start`; return a mask of those below `limit`."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        limit = _repeated(builder, arguments[4])
        target = context.make_array(signature.args[5])(context, builder, arguments[5]).data
        vectors = builder.bitcast(target, _VECTOR.as_pointer())
        mask = _WORD(0)
        for i, vector in enumerate(_distances(context, builder, signature, arguments[:4])):
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


def _distances(context: Any, builder: Any, signature: Any, arguments: Any) -> list[Any]:
    """Return vectors of the distances between query q and the group at `start`."""
    queries, planes = (
        context.make_array(signature.args[i])(context, builder, arguments[i]) for i in (0, 2)
    )
    words, capacity = cgutils.unpack_tuple(builder, planes.shape, 2)
    query = builder.gep(queries.data, [builder.mul(arguments[1], words)])
    group = builder.gep(planes.data, [arguments[3]])
    first = _ones(builder, query, group)
    before = builder.block
    with builder.if_then(builder.icmp_unsigned(">", words, _WORD(1))):
        entry = builder.block
        loop, after = builder.append_basic_block("words"), builder.append_basic_block("sums")
        builder.branch(loop)
        builder.position_at_end(loop)
        word = builder.phi(_WORD)
        sums = [builder.phi(_VECTOR) for _ in first]
        plane = builder.gep(group, [builder.mul(word, capacity)])
        ones = _ones(builder, builder.gep(query, [word]), plane)
        totals = [builder.add(*pair) for pair in zip(sums, ones, strict=True)]
        following = builder.add(word, _WORD(1))
        for phi, start, value in zip(
            [word, *sums], [_WORD(1), *first], [following, *totals], strict=True
        ):
            phi.add_incoming(start, entry)
            phi.add_incoming(value, loop)
        builder.cbranch(builder.icmp_unsigned("<", following, words), loop, after)
        builder.position_at_end(after)
    merged = []
    for one_word, total in zip(first, totals, strict=True):
        merged.append(builder.phi(_VECTOR))
        merged[-1].add_incoming(one_word, before)
        merged[-1].add_incoming(total, after)
    return merged


def _ones(builder: Any, word: Any, group: Any) -> list[Any]:
    """Return vectors of popcounts of the words of a group xor the word of a query."""
    own = _repeated(builder, builder.load(word))
    vectors = builder.bitcast(group, _VECTOR.as_pointer())
    ones = []
    for i in range(GROUP // _LANES):
        codes = builder.load(builder.gep(vectors, [_WORD(i)]), align=8)
        ones.append(_call(builder, "llvm.ctpop.v8i64", builder.xor(codes, own)))
    return ones


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
    return builder.call(cgutils.get_or_insert_function(builder.module, kind, name), vectors)


any_closer: Any = intrinsic(_type_any_closer)
find_closer: Any = intrinsic(_type_find_closer)
nonzero: Any = intrinsic(_type_nonzero)
