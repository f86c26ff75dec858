"""Random mutations of bytes, JSON and structured samples."""

from __future__ import annotations

import json
import random
import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

_PNG_START = b"\x89PNG\r\n\x1a\n"

_NUMBERS: tuple[int, ...] = (0, 1, 127, 255, 2**16 - 1, 2**31 - 1, 2**32 - 1, 2**63 - 1, 2**64 - 1)
_VALUES: tuple[Any, ...] = (
    *(None, True, -1, 0, 1, 2, 7, 255, 2**31, 2**40, 2**63, 10**30, 0.5, 1e308, float("nan")),
    *("", "0", "a\nb", "\0", "x" * 300, [], {}, [[]], [0, 0], {"a": 1}),
)

WORDS = (
    *(b"-1", b"1e999", b"NaN", b"null", b"{}", b"[]", b'""', b"true", b"9" * 20, b"../", b"\0"),
    *(b"U8", b"I64", b"BF16", b"F8_E4M3", b"BOOL", b"<f4", b"|O", b"integer", b"string"),
)

Mutate = Callable[[bytes, random.Random], bytes]


def mutations(
    seeds: Sequence[bytes], rng: random.Random, mutate: Mutate | None = None
) -> Iterator[bytes]:
    """Yield samples with one to four changes without end, by `mutate` or to arbitrary bytes."""
    while True:
        data = rng.choice(seeds)
        framed = mutate is not None and rng.random() < 0.7
        for _ in range(rng.randint(1, 4)):
            if mutate is not None and framed:
                data = change_inside(mutate, data, rng, seeds)
            else:
                data = change_bytes(data, rng, seeds)
        yield data


def change_inside(mutate: Mutate, data: bytes, rng: random.Random, seeds: Sequence[bytes]) -> bytes:
    """Change a sample and keep its frame valid; if the frame is broken, change a seed instead."""
    for sample in (data, rng.choice(seeds)):
        try:
            return mutate(sample, rng)
        except Exception:  # earlier changes of arbitrary bytes can cause any error
            continue
    return data


def change_bytes(data: bytes, rng: random.Random, seeds: Sequence[bytes] = (b"",)) -> bytes:
    """Make one change at a random position, often near the beginning, where headers are."""
    size = len(data) + 1
    start = rng.randrange(min(size, 256) if rng.random() < 0.3 else size)
    length = rng.choice((1, 1, 2, 4, 8, rng.randrange(size)))
    head, tail = data[:start], data[start + length :]
    kind = rng.randrange(7)
    if kind == 0:
        return head + rng.randbytes(length) + tail
    if kind == 1:
        return head + tail
    if kind == 2:
        return head + data[start : start + length] + data[start:]
    if kind == 3:
        number = rng.choice(_NUMBERS) % 2 ** (8 * length) if length <= 8 else 0
        return head + number.to_bytes(max(length, 1), rng.choice(("little", "big"))) + tail
    if kind == 4:
        return head + rng.choice(WORDS) + tail
    if kind == 5:
        other = rng.choice(seeds)
        return head + other[rng.randrange(len(other) + 1) :]
    return head if rng.random() < 0.3 else head + rng.choice(WORDS) + data[start:]


def change_in_place(data: bytes, rng: random.Random) -> bytes:
    """Change up to eight bytes at a random position without changing the length."""
    start = rng.randrange(len(data))
    length = min(rng.choice((1, 1, 2, 4, 8)), len(data) - start)
    number = rng.choice((*_NUMBERS, rng.getrandbits(64))) % (1 << 8 * length)
    new = number.to_bytes(length, rng.choice(("little", "big")))
    return data[:start] + new + data[start + length :]


def fix_png_checksums(data: bytes) -> bytes:
    """Recompute the CRC-32 of every chunk of a PNG; other data is returned unchanged."""
    if not data.startswith(_PNG_START):
        return data
    fixed = bytearray(data)
    place = len(_PNG_START)
    while (end := place + 8 + int.from_bytes(data[place : place + 4], "big")) + 4 <= len(data):
        fixed[end : end + 4] = zlib.crc32(data[place + 4 : end]).to_bytes(4, "big")
        place = end + 4
    return bytes(fixed)


def change_json(text: bytes | str, rng: random.Random) -> bytes:
    """Change one value or one key somewhere in a JSON document."""
    return json.dumps(_changed(json.loads(text), rng)).encode()


def change_text(text: str, rng: random.Random) -> str:
    """Change text as JSON if it is JSON, otherwise as bytes."""
    try:
        changed = change_json(text, rng)
    except ValueError:
        changed = change_bytes(text.encode(), rng)
    return changed.decode("utf-8", "replace")


def _changed(value: Any, rng: random.Random) -> Any:
    """Change a random element at a random depth."""
    if not isinstance(value, dict | list) or not value or rng.random() < 0.1:
        return rng.choice(_VALUES)
    copy: Any = value.copy()
    key = rng.choice(list(value)) if isinstance(value, dict) else rng.randrange(len(value))
    kind = rng.random()
    if kind < 0.1:
        del copy[key]
    elif kind < 0.2 and isinstance(value, dict):
        copy[rng.choice(("", "a", *value))] = copy.pop(key)
    elif kind < 0.2:
        copy.insert(key, value[key])
    else:
        copy[key] = _changed(value[key], rng)
    return copy
