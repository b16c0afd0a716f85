"""How good super-resolved maps are: against the truth pixel by pixel, by spectrum, by distribution, as an ensemble.

PSNR and SSIM favour blur: a map without any small-scale structure scores well. They are never shown alone.
"""

from __future__ import annotations

import numpy as np


def psnr(found: np.ndarray, truth: np.ndarray) -> float:
    """Peak signal-to-noise ratio in dB; the peak is the truth's range."""
    error = float(np.mean((found - truth) ** 2))
    span = float(truth.max() - truth.min())
    return float("inf") if error == 0 else 10 * float(np.log10(span**2 / error))


def ssim(found: np.ndarray, truth: np.ndarray) -> float:
    """Structural similarity (Wang et al. 2004), by scikit-image."""
    from skimage.metrics import structural_similarity

    side = min(7, *(n - (n + 1) % 2 for n in truth.shape))
    span = float(truth.max() - truth.min()) or 1.0
    return float(structural_similarity(truth, found, data_range=span, win_size=side))


def power_spectrum(values: np.ndarray, num_bins: int | None = None) -> tuple[np.ndarray, np.ndarray]:
    """(wavenumbers in cycles per pixel, mean power in rings of wavenumber), mean removed, Hann window applied.

    The window keeps the jump between opposite edges from leaking into small scales.
    """
    height, width = values.shape
    window = np.outer(np.hanning(height + 2)[1:-1], np.hanning(width + 2)[1:-1])
    centred = (values - np.average(values, weights=window)) * window
    power = np.abs(np.fft.fft2(centred)) ** 2 / float(np.sum(window**2))
    ky, kx = np.meshgrid(np.fft.fftfreq(height), np.fft.fftfreq(width), indexing="ij")
    k = np.hypot(kx, ky)
    bins = num_bins or max(4, min(height, width) // 4)
    edges = np.linspace(1 / min(height, width), 0.5, bins + 1)
    index = np.digitize(k, edges) - 1
    centres, means = [], []
    for i in range(bins):
        ring = index == i
        if ring.any():
            centres.append(float(k[ring].mean()))
            means.append(float(power[ring].mean()))
    return np.asarray(centres), np.asarray(means)


def band_power(values: np.ndarray, low: float, high: float) -> float:
    """Power between two wavenumbers in cycles per pixel.

    Methods are compared by its mean over maps divided by the truth's mean. The mean of single maps' ratios will not do:
    a draw and the truth it may be are alike, a and b, but E[a/b] > 1 = E[a]/E[b] however good the draws are.
    """
    k, power = power_spectrum(values)
    return float(power[(k >= low) & (k < high)].sum())


def flux_error(found: np.ndarray, truth: np.ndarray) -> float:
    """Relative error of the mean."""
    return float(found.mean() / truth.mean() - 1)


def wasserstein(found: np.ndarray, truth: np.ndarray) -> float:
    """Distance between the one-point distributions, in standard deviations of the truth."""
    from scipy.stats import wasserstein_distance

    return float(wasserstein_distance(found.ravel(), truth.ravel()) / truth.std())


def gradient_ratio(found: np.ndarray, truth: np.ndarray) -> float:
    """Mean modulus of the gradient over that of the truth: under 1 is blurred, over 1 noisy."""

    def steepness(values: np.ndarray) -> float:
        return float(np.hypot(*np.gradient(values)).mean())

    return steepness(found) / steepness(truth)


def crps(members: np.ndarray, truth: np.ndarray) -> float:
    """Continuous ranked probability score, mean over pixels, by the fair estimator (Ferro 2014).

    ``members`` [members, height, width]. A single member gives its mean absolute error.
    """
    number = len(members)
    error = float(np.abs(members - truth).mean())
    if number == 1:
        return error
    ordered = np.sort(members, axis=0)
    weights = (2 * np.arange(1, number + 1) - number - 1).reshape(-1, 1, 1)
    spread = float((weights * ordered).sum(axis=0).mean()) * 2 / (number * (number - 1))
    return error - spread / 2


def spread_skill(members: np.ndarray, truth: np.ndarray) -> float:
    """Spread of the ensemble over the error of its mean, corrected for its size: 1 when it is neither sure nor unsure."""
    number = len(members)
    variance = float(members.var(axis=0, ddof=1).mean()) * (number + 1) / number
    return float(np.sqrt(variance / np.mean((members.mean(axis=0) - truth) ** 2)))


def bicubic(low: np.ndarray, factor: int) -> np.ndarray:
    """Cubic interpolation of block means, edges repeated: the baseline that knows nothing."""
    from scipy.ndimage import map_coordinates

    height, width = low.shape
    rows = (np.arange(height * factor) + 0.5) / factor - 0.5
    columns = (np.arange(width * factor) + 0.5) / factor - 0.5
    grid = np.meshgrid(rows, columns, indexing="ij")
    return np.asarray(map_coordinates(low, grid, order=3, mode="nearest"))
