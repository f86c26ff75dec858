"""Measure the images per second of `bitprint index add` relative to plain pipelines.

    python benchmarks/photos.py FOLDER --make IMAGES --before OTHER_CHECKOUT --csv photos.csv

FOLDER contains JPEG files. With --make it is filled first: images of the folder IMAGES are enlarged
to 1,280 to 3,000 pixels, with noise. All pipelines use EfficientNet-Lite0:

- bitprint: the command with coco-64, which also resizes in two steps, reads every file for its
  digest and writes the index
- learned: the command without a model, while it learns one from images of 224 pixels
- before: the command of another checkout, with the share of bits that differ
- torch: Pillow in two threads, which decodes to a fraction of the size, and batches of 16
- onnxruntime: the same with an exported graph

Each runs in a new process; they run in turn, so that other load on the machine affects all of them.
The rate is that of the images after the first report, "first" is the time from the start of the
process to this report, and "busy" is the CPU time relative to that of all cores after it. Figures
are medians.

Requires `pip install onnx onnxruntime` in a checkout.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

SIDE, BATCH, THREADS = 224, 16, 2
COCO = Path("coco-64")
LEAST, MOST = 1_280, 3_000
ASPECTS = (3 / 4, 2 / 3, 9 / 16)
COLUMNS = (
    *("pipeline", "images", "per_second", "first", "whole", "busy", "bits_changed"),
    *("bitprint_times", "learned_times", "rounds", "seed", "commit", "machine", "cores"),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--make", type=Path, metavar="IMAGES", help="fill the folder with JPEGs")
    parser.add_argument("--images", type=int, default=300)
    parser.add_argument("--before", type=Path, help="another checkout")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--csv", type=Path)
    parser.add_argument("--run", nargs=2, metavar=("PIPELINE", "PLACE"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.run is not None:
        run(given.run[0], given.folder, Path(given.run[1]))
        return
    if given.make is not None:
        make(given.make, given.folder, given.images, given.seed)
    rows = measure(given.folder, given.before, given.rounds)
    facts = {"seed": given.seed, "commit": commit(), "machine": cpu(), "cores": os.cpu_count()}
    for row in rows:
        print("  ".join(f"{name} {row[name]}" for name in COLUMNS if row.get(name) is not None))
    if given.csv is not None:
        with given.csv.open("w", newline="") as file:
            writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
            writer.writeheader()
            writer.writerows(row | facts for row in rows)


def make(source: Path, folder: Path, count: int, seed: int) -> None:
    """Write `count` JPEG files of random images of a folder, enlarged and with noise."""
    folder.mkdir(parents=True, exist_ok=True)
    files = sorted(source.iterdir())
    for number in range(count):
        rng = np.random.default_rng([seed, number])
        long = int(rng.integers(LEAST, MOST + 1))
        short = int(long * rng.choice(ASPECTS))
        size = (long, short) if rng.random() < 0.7 else (short, long)
        image = Image.open(files[rng.integers(len(files))]).convert("RGB")
        pixels = np.asarray(image.resize(size, Image.Resampling.BICUBIC), np.int16)
        noise = rng.integers(-8, 9, (*pixels.shape[:2], 1), np.int16)
        noisy = np.clip(pixels + noise, 0, 255).astype(np.uint8)
        Image.fromarray(noisy).save(folder / f"{number:04}.jpg", quality=88)


def measure(folder: Path, before: Path | None, rounds: int) -> list[dict[str, Any]]:
    """Run all pipelines in turn; return a row for each."""
    home = Path(__file__).resolve().parents[1]
    names = ("bitprint", "learned", "torch", "onnxruntime")
    checkouts = dict.fromkeys(names, home) | ({"before": before} if before else {})
    found: dict[str, list[dict[str, float]]] = {pipeline: [] for pipeline in checkouts}
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        export(place / "network.onnx")
        for _ in range(rounds):
            for pipeline, each in found.items():
                (place / f"{pipeline}.bp").unlink(missing_ok=True)
                begun = time.time()
                done = subprocess.run(
                    [sys.executable, __file__, str(folder), "--run", pipeline, name],
                    env=os.environ | {"PYTHONPATH": f"{checkouts[pipeline]}/src"},
                    check=True,
                    stdout=subprocess.PIPE,
                )
                result = json.loads(done.stdout.splitlines()[-1])
                ended = time.time()
                each.append(result | {"first": result["first"] - begun, "whole": ended - begun})
        changed = bits_changed(place) if before else None
    return [
        {
            "pipeline": pipeline,
            "images": int(each[0]["images"]),
            "per_second": round(median(row["per_second"] for row in each), 1),
            "first": round(median(row["first"] for row in each), 2),
            "whole": round(median(row["whole"] for row in each), 2),
            "busy": round(median(row["busy"] for row in each), 2),
            "bits_changed": changed if pipeline == "before" else None,
            "bitprint_times": times(found["bitprint"], each),
            "learned_times": times(found["learned"], each),
            "rounds": rounds,
        }
        for pipeline, each in found.items()
    ]


def times(ours: list[dict[str, float]], others: list[dict[str, float]]) -> float:
    """Return the median ratio of two rates, by round."""
    pairs = zip(ours, others, strict=True)
    return round(median(our["per_second"] / other["per_second"] for our, other in pairs), 2)


def run(pipeline: str, folder: Path, place: Path) -> None:
    """Run one pipeline in this process; print what was measured."""
    reports: list[tuple[float, float, int]] = []

    def report(done: int, total: int) -> None:
        reports.append((time.time(), time.process_time(), done))

    if pipeline == "torch":
        plain(folder, torch_network(), report)
    elif pipeline == "onnxruntime":
        plain(folder, onnx_network(place / "network.onnx"), report)
    else:
        command(folder, place / f"{pipeline}.bp", None if pipeline == "learned" else COCO, report)
    (start, used, first), (end, in_all, count) = reports[0], reports[-1]
    cores = os.cpu_count() or 1
    print(
        json.dumps(
            {
                "images": count,
                "first": start,
                "per_second": (count - first) / (end - start),
                "busy": (in_all - used) / (end - start) / cores,
            }
        )
    )


def command(
    folder: Path, index: Path, model: Path | None, report: Callable[[int, int], None]
) -> None:
    """Run `bitprint index add`; report the images whose features are computed."""
    from bitprint.cli import _adding

    @contextmanager
    def recorder(title: str) -> Iterator[Callable[[int, int], None]]:
        yield report if title == ("encoding" if model else "learning") else ignore

    _adding.progress_bar = recorder  # type: ignore[attr-defined]
    _adding.add(str(index), [str(folder)], model, None)


def ignore(done: int, total: int) -> None:
    """Take a report of progress that is not measured."""


def plain(
    folder: Path, network: Callable[[NDArray[np.uint8]], Any], report: Callable[[int, int], None]
) -> None:
    """Compute the features of a folder as a short script would."""
    files = sorted(folder.iterdir())

    def decode(file: Path) -> NDArray[np.uint8]:
        image = Image.open(file)
        image.draft("RGB", (SIDE, SIDE))
        return np.asarray(image.convert("RGB").resize((SIDE, SIDE), Image.Resampling.BICUBIC))

    with ThreadPoolExecutor(THREADS) as pool:
        images = pool.map(decode, files)
        for start in range(0, len(files), BATCH):
            batch = [next(images) for _ in files[start : start + BATCH]]
            network(np.stack(batch))
            report(start + len(batch), len(files))


def torch_network() -> Callable[[NDArray[np.uint8]], Any]:
    """Return the network in torch."""
    import torch

    trunk = load_trunk()

    def compute(images: NDArray[np.uint8]) -> Any:
        with torch.inference_mode():
            pixels = torch.from_numpy(images).permute(0, 3, 1, 2)
            return trunk((pixels.float() - 127) / 128).numpy()

    return compute


def onnx_network(path: Path) -> Callable[[NDArray[np.uint8]], Any]:
    """Return the network in onnxruntime."""
    import onnxruntime

    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])

    def compute(images: NDArray[np.uint8]) -> Any:
        pixels = (images.transpose(0, 3, 1, 2).astype(np.float32) - 127) / 128
        return session.run(None, {"pixels": pixels})

    return compute


def export(path: Path) -> None:
    """Write the network as an ONNX file, in another process."""
    lines = f"from benchmarks.photos import export_here; export_here({str(path)!r})"
    subprocess.run(
        [sys.executable, "-W", "ignore", "-c", lines],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(["src", "."])},
        cwd=Path(__file__).resolve().parents[1],
        check=True,
    )


def export_here(path: str) -> None:
    import torch

    torch.onnx.export(
        load_trunk(),
        (torch.zeros(2, 3, SIDE, SIDE),),
        path,
        dynamo=False,
        input_names=["pixels"],
        output_names=["features"],
        dynamic_axes={"pixels": {0: "n"}, "features": {0: "n"}},
    )


def load_trunk() -> Any:
    from bitprint.nets import create_trunk

    return create_trunk("efficientnet-lite0", input_shape=(SIDE, SIDE, 3)).eval()


def bits_changed(place: Path) -> float:
    """Return the share of bits in which the codes of two indexes differ."""
    import bitprint as bp

    with bp.Index.open(place / "bitprint.bp") as one, bp.Index.open(place / "before.bp") as other:
        ids = one.ids()
        changed = one.codes(ids).signs() != other.codes(ids).signs()
    return round(float(changed.mean()), 4)


def commit() -> str:
    done = subprocess.run(
        ["git", "describe", "--always", "--dirty"],
        cwd=Path(__file__).parent,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout.strip()


def cpu() -> str:
    """Return the name of the processor."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.is_file() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()


if __name__ == "__main__":
    main()
