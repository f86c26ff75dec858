"""Triton kernels of `bitprint.nets.depthwise_gpu`.

The columns of all images are placed side by side. A program processes some columns and some
channels and iterates over the rows. It keeps incomplete sums (`pending`) or the last rows of a
gradient (`window`), so that each row is read once at KERNEL columns, not KERNEL times.
"""

from __future__ import annotations

import triton
import triton.language as tl

# fmt: off

_SIZES = ["columns", "height", "width", "out_height", "out_width", "top", "left"]


@triton.jit
def _cut(values, above):
    """Clamp to 0..`above`; NaN stays NaN, as in torch."""
    values = tl.maximum(values, 0.0, propagate_nan=tl.PropagateNan.ALL)
    return tl.minimum(values, above, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def _channels(channels, POSITIONS: tl.constexpr, CHANNELS: tl.constexpr):
    """Channels of a program at each of its columns, and a mask of the valid ones."""
    channel = tl.program_id(1) * CHANNELS + tl.arange(0, CHANNELS)[None, :]
    channel = channel + tl.zeros((POSITIONS, CHANNELS), tl.int32)
    return channel, channel < channels


@triton.jit
def _weights(taps, channel, known, channels, KERNEL: tl.constexpr):
    """Filters of these channels as a tuple over taps."""
    weights = ()
    for k in tl.static_range(KERNEL * KERNEL):
        weights = weights + (tl.load(taps + k * channels + channel, mask=known, other=0.0),)
    return weights


@triton.jit
def _times(value, COUNT: tl.constexpr):
    """Tuple of `value`, COUNT times."""
    values = ()
    for k in tl.static_range(COUNT):
        values = values + (value,)
    return values


@triton.jit
def _pushed(window, first, DEPTH: tl.constexpr):
    """The window, moved down by one row."""
    moved = (first,)
    for m in tl.static_range(DEPTH - 1):
        moved = moved + (window[m],)
    return moved


@triton.jit
def _row(pointers, inside, above, lift, channels, KERNEL: tl.constexpr, BEFORE: tl.constexpr):
    """Inputs at each tap of one row after the first ReLU6; zero outside the image."""
    values = ()
    for j in tl.static_range(KERNEL):
        value = tl.load(pointers + j * channels, mask=inside[j], other=0.0).to(tl.float32)
        if BEFORE:
            value = _cut(value + lift, above[j])
        values = values + (value,)
    return values


@triton.jit(do_not_specialize=_SIZES)
def forward(
    inputs, before, taps, after, outputs, columns,
    channels, height, width, out_height, out_width, top, left,
    KERNEL: tl.constexpr, STRIDE: tl.constexpr, BEFORE: tl.constexpr,
    POSITIONS: tl.constexpr, CHANNELS: tl.constexpr,
):
    """Compute columns of the outputs from top to bottom."""
    DEPTH: tl.constexpr = (KERNEL - 1) // STRIDE + 1
    channel, known = _channels(channels, POSITIONS, CHANNELS)
    lift = 0.0
    if BEFORE:
        lift = tl.load(before + channel, mask=known, other=0.0)
    bias = tl.load(after + channel, mask=known, other=0.0)
    weights = _weights(taps, channel, known, channels, KERNEL)
    zero = tl.zeros((POSITIONS, CHANNELS), tl.float32)
    for tile in range(tl.program_id(0), tl.cdiv(columns, POSITIONS), tl.num_programs(0)):
        place = tile * POSITIONS + tl.arange(0, POSITIONS)[:, None]
        image, column = (place // out_width).to(tl.int64), place % out_width
        mask = (place < columns) & known
        target = outputs + ((image * (out_height * out_width) + column) * channels + channel)
        x = column * STRIDE - left
        source = inputs + ((image * (height * width) + x) * channels + channel)
        pending = _times(zero, DEPTH - 1)
        for r in range(tl.minimum(top // STRIDE, DEPTH - 1), out_height + DEPTH - 1):
            values = ()
            for p in tl.static_range(STRIDE):
                y = r * STRIDE + p - top
                inside = ()
                above = ()
                for j in tl.static_range(KERNEL):
                    seen = (x + j >= 0) & (x + j < width) & (y >= 0) & (y < height)
                    inside = inside + (mask & seen,)
                    above = above + (tl.where(seen, 6.0, 0.0),)
                values = values + _row(
                    source + y * width * channels, inside, above, lift, channels, KERNEL, BEFORE
                )
            sums = ()
            for m in tl.static_range(DEPTH):
                # Row r - m of the outputs; the row of the last m is then complete.
                if m == 0:
                    total = zero
                else:
                    total = pending[m - 1]
                for p in tl.static_range(STRIDE):
                    if p + STRIDE * m < KERNEL:
                        for j in tl.static_range(KERNEL):
                            total += values[p * KERNEL + j] * weights[(p + STRIDE * m) * KERNEL + j]
                sums = sums + (total,)
            row = r - (DEPTH - 1)
            total = _cut(sums[DEPTH - 1] + bias, 6.0)
            tl.store(
                target + row * out_width * channels, total.to(outputs.dtype.element_ty),
                mask=mask & (row >= 0),
            )
            pending = ()
            for m in tl.static_range(DEPTH - 1):
                pending = pending + (sums[m],)


@triton.jit
def _gate(output, slope, gated, mask):
    """Store the gradient below the second ReLU6, and return it."""
    output = output.to(tl.float32)
    slope = tl.where((output > 0) & (output < 6), slope, 0.0)
    tl.store(gated, slope, mask=mask)
    return slope.to(tl.float32)


@triton.jit
def _gate_row(outputs, upper, gated, mask):
    """Load and gate a row of outputs that no input row overlaps."""
    output = tl.load(outputs, mask=mask, other=0.0)
    slope = tl.load(upper, mask=mask, other=0.0)
    return _gate(output, slope, gated, mask)


@triton.jit
def _fetch(
    r, outputs, upper, source, mask, inside, channels, height, width, out_height, out_width, top,
    KERNEL: tl.constexpr, STRIDE: tl.constexpr,
):
    """Load the data of one iteration: output, gradient, inputs at each tap."""
    held = mask & (r < out_height)
    fetched = (
        tl.load(outputs + r * out_width * channels, mask=held, other=0.0),
        tl.load(upper + r * out_width * channels, mask=held, other=0.0),
    )
    for p in tl.static_range(STRIDE):
        y = r * STRIDE + p - top
        for j in tl.static_range(KERNEL):
            at = source + y * width * channels + j * channels
            held = inside[j] & (y >= 0) & (y < height)
            fetched = fetched + (tl.load(at, mask=held, other=0.0),)
    return fetched


@triton.jit
def _lifted(
    fetched, above, lift, first, height,
    KERNEL: tl.constexpr, STRIDE: tl.constexpr, BEFORE: tl.constexpr,
):
    """Inputs of `_fetch` after the first ReLU6, from row `first` on."""
    values = ()
    for p in tl.static_range(STRIDE):
        y = first + p
        for j in tl.static_range(KERNEL):
            value = fetched[2 + p * KERNEL + j].to(tl.float32)
            if BEFORE:
                roof = above[j]
                if STRIDE > 1:
                    roof = tl.where((y >= 0) & (y < height), roof, 0.0)
                value = _cut(value + lift, roof)
            values = values + (value,)
    return values


@triton.jit(do_not_specialize=_SIZES)
def to_filter(
    inputs, before, outputs, upper, gated, sums, columns,
    channels, height, width, out_height, out_width, top, left,
    KERNEL: tl.constexpr, STRIDE: tl.constexpr, BEFORE: tl.constexpr,
    POSITIONS: tl.constexpr, CHANNELS: tl.constexpr,
):
    """Compute partial sums over positions, for each tap and then for the bias."""
    DEPTH: tl.constexpr = (KERNEL - 1) // STRIDE + 1
    channel, known = _channels(channels, POSITIONS, CHANNELS)
    lift = 0.0
    if BEFORE:
        lift = tl.load(before + channel, mask=known, other=0.0)
    zero = tl.zeros((POSITIONS, CHANNELS), tl.float32)
    passed = zero
    products = _times(zero, KERNEL * KERNEL)
    for tile in range(tl.program_id(0), tl.cdiv(columns, POSITIONS), tl.num_programs(0)):
        place = tile * POSITIONS + tl.arange(0, POSITIONS)[:, None]
        image, column = (place // out_width).to(tl.int64), place % out_width
        mask = (place < columns) & known
        at = (image * (out_height * out_width) + column) * channels + channel
        x = column * STRIDE - left
        source = inputs + ((image * (height * width) + x) * channels + channel)
        line = out_width * channels
        window = _times(zero, DEPTH)
        # Output rows above all input rows.
        start = top // STRIDE
        for r in range(start):
            go = at + r * line
            slope = _gate_row(outputs + go, upper + go, gated + go, mask & (r < out_height))
            passed += slope
            window = _pushed(window, slope, DEPTH)
        inside = ()
        above = ()
        for j in tl.static_range(KERNEL):
            seen = (x + j >= 0) & (x + j < width)
            inside = inside + (mask & seen,)
            above = above + (tl.where(seen, 6.0, 0.0),)
        # Products of input rows with the last gradient rows. Each input row is read once, at
        # KERNEL columns, one iteration ahead.
        stop = tl.cdiv(height + top, STRIDE)
        ahead = _fetch(
            start, outputs + at, upper + at, source, mask, inside, channels, height, width,
            out_height, out_width, top, KERNEL, STRIDE,
        )
        for r in range(start, stop):
            fetched = ahead
            ahead = _fetch(
                r + 1, outputs + at, upper + at, source, mask, inside, channels, height, width,
                out_height, out_width, top, KERNEL, STRIDE,
            )
            slope = _gate(fetched[0], fetched[1], gated + at + r * line, mask & (r < out_height))
            passed += slope
            window = _pushed(window, slope, DEPTH)
            values = _lifted(fetched, above, lift, r * STRIDE - top, height, KERNEL, STRIDE, BEFORE)
            added = ()
            for i in tl.static_range(KERNEL):
                for j in tl.static_range(KERNEL):
                    product = values[(i % STRIDE) * KERNEL + j] * window[i // STRIDE]
                    added = added + (products[i * KERNEL + j] + product,)
            products = added
        # Output rows below all input rows.
        for r in range(stop, out_height):
            go = at + r * line
            passed += _gate_row(outputs + go, upper + go, gated + go, mask)
    channel = tl.program_id(1) * CHANNELS + tl.arange(0, CHANNELS)
    row = sums + tl.program_id(0).to(tl.int64) * (KERNEL * KERNEL + 1) * channels + channel
    for k in tl.static_range(KERNEL * KERNEL):
        tl.store(row + k * channels, tl.sum(products[k], axis=0), mask=channel < channels)
    tl.store(row + KERNEL * KERNEL * channels, tl.sum(passed, axis=0), mask=channel < channels)


@triton.jit(do_not_specialize=_SIZES)
def to_inputs(
    inputs, before, taps, gated, lower, sums, columns,
    channels, height, width, out_height, out_width, top, left,
    KERNEL: tl.constexpr, STRIDE: tl.constexpr, BEFORE: tl.constexpr,
    POSITIONS: tl.constexpr, CHANNELS: tl.constexpr,
):
    """Compute columns of the input gradient, STRIDE side by side, and sums over positions."""
    DEPTH: tl.constexpr = (KERNEL - 1) // STRIDE + 1
    channel, known = _channels(channels, POSITIONS, CHANNELS)
    if BEFORE:
        lift = tl.load(before + channel, mask=known, other=0.0)
    weights = _weights(taps, channel, known, channels, KERNEL)
    zero = tl.zeros((POSITIONS, CHANNELS), tl.float32)
    passed = zero
    first = left // STRIDE
    wide = (left + width - 1) // STRIDE - first + 1
    for tile in range(tl.program_id(0), tl.cdiv(columns, POSITIONS), tl.num_programs(0)):
        place = tile * POSITIONS + tl.arange(0, POSITIONS)[:, None]
        image, q = (place // wide).to(tl.int64), first + place % wide
        mask = (place < columns) & known
        source = gated + ((image * (out_height * out_width) + q) * channels + channel)
        x = q * STRIDE - left
        target = (image * (height * width) + x) * channels + channel
        pending = _times(zero, (KERNEL - STRIDE) * STRIDE)
        for r in range((top + height - 1) // STRIDE + 1):
            slopes = ()
            for m in tl.static_range(DEPTH):
                seen = mask & (q - m >= 0) & (q - m < out_width) & (r < out_height)
                slope = tl.load(source + (r * out_width - m) * channels, mask=seen, other=0.0)
                slopes = slopes + (slope.to(tl.float32),)
            totals = ()
            for i in tl.static_range(KERNEL):
                for s in tl.static_range(STRIDE):
                    # Row r * STRIDE + i - top of the inputs, column x + s.
                    if i + STRIDE < KERNEL:
                        total = pending[i * STRIDE + s]
                    else:
                        total = zero
                    for m in tl.static_range(DEPTH):
                        if s + STRIDE * m < KERNEL:
                            total += slopes[m] * weights[i * KERNEL + s + STRIDE * m]
                    totals = totals + (total,)
            for p in tl.static_range(STRIDE):
                y = r * STRIDE + p - top
                for s in tl.static_range(STRIDE):
                    seen = mask & (x + s >= 0) & (x + s < width) & (y >= 0) & (y < height)
                    at = target + (y * width + s) * channels
                    total = totals[p * STRIDE + s]
                    if BEFORE:
                        value = tl.load(inputs + at, mask=seen, other=0.0).to(tl.float32) + lift
                        total = tl.where(seen & (value > 0) & (value < 6), total, 0.0)
                        passed += total
                    tl.store(lower + at, total.to(lower.dtype.element_ty), mask=seen)
            pending = ()
            for k in tl.static_range((KERNEL - STRIDE) * STRIDE):
                pending = pending + (totals[k + STRIDE * STRIDE],)
    if BEFORE:
        channel = tl.program_id(1) * CHANNELS + tl.arange(0, CHANNELS)
        at = sums + tl.program_id(0).to(tl.int64) * channels + channel
        tl.store(at, tl.sum(passed, axis=0), mask=channel < channels)
