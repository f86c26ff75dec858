"""Slow, literal GIST of one image in float64, following LMgist step by step."""

import numpy as np


def reference_gist(image):
    """(side, side, 3), or gray (side, side) -> (512,)."""
    gray = image.astype(np.float64)
    if gray.ndim == 3:
        gray = (gray[:, :, 0] + gray[:, :, 1] + gray[:, :, 2]) / 3
    gray = gray - gray.min()
    gray = 255 * gray / max(1, gray.max())
    side = len(gray)
    output = np.pad(prefilter(gray), 32, "symmetric")
    spectrum = np.fft.fft2(output)
    edges = np.fix(np.linspace(0, side, 5)).astype(int)
    features = []
    for scale in range(4):
        for orientation in range(8):
            gain = gabor(side + 64, scale, orientation)
            response = np.abs(np.fft.ifft2(spectrum * gain))[32 : 32 + side, 32 : 32 + side]
            for column in range(4):
                for row in range(4):
                    cell = response[edges[row] : edges[row + 1], edges[column] : edges[column + 1]]
                    features.append(cell.mean())
    return np.array(features)


def prefilter(gray):
    x = np.pad(np.log(gray + 1), 5, "symmetric")
    if len(x) % 2:
        x = np.pad(x, (0, 1), "symmetric")
    n = len(x)
    fx, fy = np.meshgrid(np.arange(-n / 2, n / 2), np.arange(-n / 2, n / 2))
    s1 = 4 / np.sqrt(np.log(2))
    gf = np.fft.fftshift(np.exp(-(fx**2 + fy**2) / s1**2))
    o = x - np.real(np.fft.ifft2(np.fft.fft2(x) * gf))
    local = np.sqrt(np.abs(np.fft.ifft2(np.fft.fft2(o**2) * gf)))
    o = o / (0.2 + local)
    return o[5 : 5 + len(gray), 5 : 5 + len(gray)]


def gabor(n, scale, orientation):
    cycles = np.arange(-(n // 2), n - n // 2)
    fx, fy = np.meshgrid(cycles, cycles)
    fr = np.fft.ifftshift(np.sqrt(fx**2 + fy**2))
    t = np.fft.ifftshift(np.angle(fx + 1j * fy))
    f0 = 0.3 / 1.85**scale
    s = 16 * 8**2 / 32**2
    tr = t + np.pi * orientation / 8
    tr = tr + 2 * np.pi * (tr < -np.pi) - 2 * np.pi * (tr > np.pi)
    return np.exp(-10 * 0.35 * (fr / n / f0 - 1) ** 2 - 2 * s * np.pi * tr**2)
