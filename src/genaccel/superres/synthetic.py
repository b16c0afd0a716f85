"""Synthetic dust: the exponential of an anisotropic Gaussian field with a power-law spectrum, with filaments. Seeded."""

from __future__ import annotations

import numpy as np

from genaccel.superres.maps import DustMap, made_map


def wavenumbers(height: int, width: int) -> tuple[np.ndarray, np.ndarray]:
    """(ky, kx) in cycles per pixel, as numpy's FFT orders them, [height, width] each."""
    ky, kx = np.meshgrid(np.fft.fftfreq(height), np.fft.fftfreq(width), indexing="ij")
    return ky, kx


def gaussian_field(
    shape: tuple[int, int],
    generator: np.random.Generator,
    slope: float = -2.9,
    anisotropy: float = 0.0,
    angle: float = 0.0,
) -> np.ndarray:
    """A periodic Gaussian field of zero mean and unit variance whose power falls as k to the ``slope``.

    ``anisotropy`` in 0..1 stretches structures along ``angle`` (radians from the x axis).
    """
    ky, kx = wavenumbers(*shape)
    along, across = kx * np.cos(angle) + ky * np.sin(angle), ky * np.cos(angle) - kx * np.sin(angle)
    k = np.sqrt(along**2 * (1 + anisotropy) ** 2 + across**2 * (1 - anisotropy / 2) ** 2)
    k[0, 0] = 1.0
    amplitude = k ** (slope / 2)
    amplitude[0, 0] = 0.0
    field = np.fft.ifft2(np.fft.fft2(generator.standard_normal(shape)) * amplitude).real
    return np.asarray(field / field.std())


def synthetic_dust(
    number: int, size: int = 128, seed: int = 0, slope: float = -2.9, contrast: float = 0.6, filaments: float = 0.5
) -> list[DustMap]:
    """``number`` maps of ``size`` x ``size`` pixels, in arbitrary units around 1; each is an area of its own.

    ``filaments`` adds ridges: the negative modulus of a second, anisotropic field is largest along lines.
    """
    maps = []
    for i in range(number):
        generator = np.random.default_rng([seed, i])
        angle = generator.uniform(0, np.pi)
        smooth = gaussian_field((size, size), generator, slope, 0.3, angle)
        ridges = -np.abs(gaussian_field((size, size), generator, slope, 0.8, angle + generator.normal(0, 0.2)))
        ridges = (ridges - ridges.mean()) / ridges.std()
        total = smooth + filaments * ridges
        maps.append(
            made_map(f"synthetic-{seed}-{i}", np.exp(contrast * total / total.std()), area=f"synthetic-{seed}-{i}")
        )
    return maps
