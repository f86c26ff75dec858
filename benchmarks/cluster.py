"""Compare encoding on a local Ray cluster with the local encoder; the last line is the ratio.

    python benchmarks/cluster.py --images 4096

Both encode the same JPEG files with the same model, ITQ on the features of a network, on the same
cores, and run in turn. The local encoder decodes in one thread per core and computes with all
threads. Ray runs one worker per core; its rate is also measured without the start of the workers.
The codes must be equal.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from PIL import Image

import bitprint as bp
from bitprint.cluster import connect, encode_collection, read_codes
from bitprint.data import draw_shapes
from bitprint.data.decoding import decode_ahead
from bitprint.photos.encoder import Encoder, Features
from bitprint.photos.files import list_pictures

REPEATS = 3
BATCH = 256


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--images", type=int, default=4_096)
    parser.add_argument("--side", type=int, default=400, help="height and width of the files")
    parser.add_argument("--features", default="efficientnet-lite0")
    given = parser.parse_args()
    cores = os.cpu_count() or 1
    torch.set_num_threads(cores)
    with tempfile.TemporaryDirectory() as place, connect("local"):
        root, run = Path(place) / "photos", Path(place) / "run"
        write_images(root, given.images, given.side)
        encoder = learn(root, run, given.features)
        local, whole, running = [], [], []
        for turn in range(REPEATS):
            seconds, codes = encode_here(encoder, root)
            local.append(seconds)
            seconds, started = encode_on_ray(run, root, Path(place) / f"out-{turn}")
            whole.append(seconds)
            running.append(started)
            parts = [part.codes for part in read_codes(Path(place) / f"out-{turn}")]
            if bp.Codes.concatenate(parts) != codes:
                sys.exit("the codes differ")
    rate = given.images / min(local)
    print(f"{encoder.describe()}, {given.images:,} JPEG files of {given.side} x {given.side}")
    print(f"{cores} cores, best of {REPEATS} runs each, equal codes:")
    print(f"  local encoder{rate:27.0f} images/s")
    print(f"  Ray, including worker start    {given.images / min(whole):6.0f} images/s")
    print(f"  Ray, after its first partition{max(running):10.0f} images/s")
    print(f"ratio {given.images / min(whole) / rate:.2f} including worker start")
    print(f"ratio {max(running) / rate:.2f}")


def write_images(root: Path, count: int, side: int) -> None:
    """Write drawn scenes as JPEG files of side x side pixels."""
    root.mkdir()
    for number, pixels in enumerate(draw_shapes(count, size=64).pixels):
        picture = Image.fromarray(pixels).resize((side, side), Image.Resampling.BICUBIC)
        picture.save(root / f"{number:06d}.jpg", quality=90)


def learn(root: Path, run: Path, name: str) -> Encoder:
    features = Features(name)
    paths = [picture.path for picture in list_pictures(root).pictures[:512]]
    vectors = [features(batch.pixels) for batch in decode_ahead(paths, features.size, BATCH)]
    hasher = bp.create("itq", bits=64).fit(np.concatenate(vectors))
    hasher.save(run, features=name, size=features.size)
    return Encoder.load(run)


def encode_here(encoder: Encoder, root: Path) -> tuple[float, bp.Codes]:
    """Return the time of the local encoder in seconds, from folder to codes, and the codes."""
    start = time.perf_counter()
    paths = [picture.path for picture in list_pictures(root).pictures]
    batches = decode_ahead(paths, encoder.size, BATCH)
    codes = bp.Codes.concatenate([encoder.encode_squares(batch.pixels) for batch in batches])
    return time.perf_counter() - start, codes


def encode_on_ray(run: Path, root: Path, out: Path) -> tuple[float, float]:
    """Return the time of Ray in seconds, and images per second after the first partition."""
    seen: list[tuple[float, int]] = []

    def note(done: int, total: int) -> None:
        seen.append((time.perf_counter(), done))

    start = time.perf_counter()
    encode_collection(run, root, out, partition=BATCH, progress=note)
    seconds = time.perf_counter() - start
    (first, before), (last, done) = seen[0], seen[-1]
    return seconds, (done - before) / (last - first)


if __name__ == "__main__":
    main()
