"""Dust maps in and out: FITS images, HEALPix tables and .npy, with their masks, units and coordinates."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from genaccel.errors import UserError, reason_of
from genaccel.store import write_bytes

PATCH_PIXELS = 64  # side of the patches that a sphere is cut into
PATCH_DEGREES = 0.7  # a pixel of theirs; the built-in maps have pixels of 0.92 degrees


@dataclass(frozen=True)
class DustMap:
    """A map: ``values`` [height, width] as read, ``valid`` where a pixel can be used, unit, FITS header and name.

    ``area`` says which part of the sky (or which simulation) it is of: maps of one area are never on both sides of a
    split into training and test.
    """

    name: str
    values: np.ndarray
    valid: np.ndarray
    unit: str = ""
    header: Any = None
    area: str = ""

    @property
    def shape(self) -> tuple[int, int]:
        """(height, width)."""
        height, width = self.values.shape
        return int(height), int(width)


def sha256_of(maps: Sequence[DustMap]) -> str:
    """Tells maps apart by what is in them, names left out."""
    digest = hashlib.sha256()
    for one in maps:
        digest.update(repr((one.shape, one.unit)).encode())
        digest.update(np.where(one.valid, one.values, np.nan).astype(np.float64).tobytes())
    return digest.hexdigest()


@dataclass(frozen=True)
class Sphere:
    """A HEALPix map of the whole sky: ``values`` by pixel, ring or nested."""

    name: str
    values: np.ndarray
    nested: bool
    unit: str
    frame: str = "galactic"


def read_map(path: Path) -> DustMap | Sphere:
    """The map in ``path``: the first 2-D image or HEALPix table of a FITS file, or the array of a .npy file.

    Pixels that are NaN, BLANK or infinite are not valid. ``UserError`` when there is no map, or nothing in it is valid.
    """
    if not path.is_file():
        raise UserError(f"There is no map {path}.", "Give a FITS or .npy file.")
    found = _from_npy(path) if path.suffix == ".npy" else _from_fits(path)
    if isinstance(found, DustMap):
        _check(found, path)
    return found


def _check(found: DustMap, path: Path) -> None:
    if min(found.shape) < 2:
        raise UserError(
            f"The map {path} is {found.shape[0]} x {found.shape[1]} pixels: too narrow.", "Give a larger map."
        )
    if not found.valid.any():
        raise UserError(f"Every pixel of {path} is masked (NaN, BLANK or infinite).", "Give a map that holds data.")


def made_map(name: str, values: Any, unit: str = "", header: Any = None, area: str = "") -> DustMap:
    """A map of ``values``, whose finite pixels are valid."""
    array = np.asarray(values, dtype=np.float64)
    return DustMap(name, array, np.isfinite(array), unit, header, area or name)


def _from_npy(path: Path) -> DustMap:
    try:
        array = np.load(path, allow_pickle=False)
    except (ValueError, OSError, EOFError) as error:
        raise UserError(f"{path} is no array of numbers: {reason_of(error)}.", "Save it with numpy.save.") from None
    if array.ndim != 2 or array.dtype.kind not in "fiu":
        raise UserError(f"{path} holds an array of shape {array.shape}, not a map of two dimensions.", "")
    return made_map(path.stem, array)


def _from_fits(path: Path) -> DustMap | Sphere:
    from astropy.io import fits

    try:
        with fits.open(path) as hdus:
            for hdu in hdus:
                header = hdu.header
                if header.get("PIXTYPE") == "HEALPIX" and hdu.data is not None:
                    column = hdu.columns[0]
                    values = np.asarray(hdu.data[column.name], dtype=np.float64).reshape(-1)
                    nested = str(header.get("ORDERING", "RING")).upper().startswith("NEST")
                    return Sphere(path.stem, values, nested, column.unit or str(header.get("TUNIT1", "")))
                image = _image(hdu)
                if image is not None:
                    return made_map(path.stem, image, str(header.get("BUNIT", "")), header.copy())
    except OSError as error:
        raise UserError(f"{path} is no FITS file: {reason_of(error)}.", "Give a FITS or .npy file.") from None
    raise UserError(f"{path} holds no image of two dimensions and no HEALPix table.", "Give a file with a map in it.")


def _image(hdu: Any) -> np.ndarray | None:
    """The 2-D image of an HDU, less leading axes of length one; None when it has none."""
    if not getattr(hdu, "is_image", False) or hdu.data is None:
        return None
    data = np.asarray(hdu.data)
    while data.ndim > 2 and data.shape[0] == 1:
        data = data[0]
    return data if data.ndim == 2 else None


def patches_of(sphere: Sphere, num_patches: int | None = None) -> list[DustMap]:
    """Gnomonic patches around points that are spread evenly over the sky, by bilinear interpolation.

    Each of twelve areas of the sky is an ``area`` of its own: patches of different areas barely overlap.
    """
    from astropy_healpix import HEALPix

    nside = round((len(sphere.values) / 12) ** 0.5)
    grid = HEALPix(nside=nside, order="nested" if sphere.nested else "ring")
    centres = HEALPix(nside=4, order="nested")
    numbers = np.arange(centres.npix)
    if num_patches is not None:
        numbers = numbers[np.linspace(0, len(numbers) - 1, min(num_patches, len(numbers))).astype(int)]
    found = []
    for number in numbers:
        lon, lat = centres.healpix_to_lonlat([number])
        found.append(_patch(sphere, grid, int(number), float(lon[0].deg), float(lat[0].deg)))
    return [patch for patch in found if patch.valid.mean() > 0.5]


def _patch(sphere: Sphere, grid: Any, number: int, lon: float, lat: float) -> DustMap:
    import astropy.units as u
    from astropy.wcs import WCS

    wcs = WCS(naxis=2)
    wcs.wcs.ctype = ["GLON-TAN", "GLAT-TAN"]
    wcs.wcs.crval = [lon, lat]
    wcs.wcs.crpix = [PATCH_PIXELS / 2 + 0.5, PATCH_PIXELS / 2 + 0.5]
    wcs.wcs.cdelt = [-PATCH_DEGREES, PATCH_DEGREES]
    y, x = np.mgrid[:PATCH_PIXELS, :PATCH_PIXELS]
    lons, lats = wcs.wcs_pix2world(x, y, 0)
    values = grid.interpolate_bilinear_lonlat(lons * u.deg, lats * u.deg, sphere.values)
    return made_map(f"{sphere.name}-{number}", np.asarray(values), sphere.unit, wcs.to_header(), f"sky-{number // 16}")


def write_map(path: Path, planes: dict[str, np.ndarray], like: DustMap, scale: float) -> None:
    """A FITS file with an image for every plane: the first is primary, the others are extensions by name.

    The coordinates are those of ``like`` with pixels ``scale`` times as small. Values are float32 in its unit.
    """
    import io

    from astropy.io import fits

    header = rescaled(like.header, scale)
    hdus: list[Any] = []
    for name, values in planes.items():
        kind = fits.PrimaryHDU if not hdus else fits.ImageHDU
        hdu = kind(np.asarray(values, dtype=np.float32), header)
        hdu.name = name.upper()
        if like.unit:
            hdu.header["BUNIT"] = like.unit
        hdus.append(hdu)
    buffer = io.BytesIO()
    fits.HDUList(hdus).writeto(buffer)
    write_bytes(path, buffer.getvalue())


def rescaled(header: Any, scale: float) -> Any:
    """A copy of the header's coordinates for pixels ``scale`` times as small; pixel centres move with their edges.

    The FITS standard puts the centre of the first pixel at 1, so an edge at 0.5 stays and p becomes (p - 0.5) s + 0.5.
    """
    from astropy.io import fits

    made = fits.Header() if header is None else header.copy()
    for key in list(made):
        if key in ("BLANK", "BSCALE", "BZERO", "CHECKSUM", "DATASUM", "EXTNAME", "EXTVER", "XTENSION"):
            del made[key]
    for axis in (1, 2):
        if f"CRPIX{axis}" in made:
            made[f"CRPIX{axis}"] = (made[f"CRPIX{axis}"] - 0.5) * scale + 0.5
        if f"CDELT{axis}" in made:
            made[f"CDELT{axis}"] = made[f"CDELT{axis}"] / scale
        for other in (1, 2):
            if f"CD{axis}_{other}" in made:
                made[f"CD{axis}_{other}"] = made[f"CD{axis}_{other}"] / scale
    return made


def block_mean(values: np.ndarray, factor: int, valid: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
    """(mean flux of every block of ``factor`` x ``factor`` pixels, which blocks have valid pixels only)."""
    height, width = values.shape
    if height % factor or width % factor:
        raise UserError(
            f"A map of {height} x {width} pixels cannot be divided into blocks of {factor}.",
            "Crop it, or choose --factor.",
        )
    shape = (height // factor, factor, width // factor, factor)
    whole = np.ones(values.shape, dtype=bool) if valid is None else valid
    kept = np.asarray(whole.reshape(shape).all(axis=(1, 3)))
    means = np.where(whole, values, 0.0).reshape(shape).mean(axis=(1, 3))
    return np.where(kept, means, np.nan), kept


@dataclass(frozen=True)
class Brightness:
    """From flux to what the network sees, and back: log, or asinh where flux is not positive; then standardized."""

    kind: str
    softening: float
    mean: float
    deviation: float

    def forward(self, flux: Any) -> Any:
        """Flux -> standardized brightness; works on arrays."""
        bent = np.log(flux) if self.kind == "log" else np.arcsinh(flux / self.softening)
        return (bent - self.mean) / self.deviation

    def backward(self, brightness: Any) -> Any:
        """The inverse of ``forward``."""
        bent = brightness * self.deviation + self.mean
        return np.exp(bent) if self.kind == "log" else np.sinh(bent) * self.softening


def brightness_of(maps: Sequence[DustMap]) -> Brightness:
    """Fitted on the valid pixels of training maps. Negative or zero flux needs asinh, which is linear around zero."""
    flux = np.concatenate([m.values[m.valid].ravel() for m in maps])
    kind = "log" if flux.min() > 0 else "asinh"
    softening = float(np.median(np.abs(flux))) or 1.0
    unscaled = Brightness(kind, softening, 0.0, 1.0).forward(flux)
    return Brightness(kind, softening, float(unscaled.mean()), float(unscaled.std()) or 1.0)


@dataclass(frozen=True)
class MapSplit:
    """Training, validation and test maps, divided by area."""

    train: tuple[DustMap, ...]
    validation: tuple[DustMap, ...]
    test: tuple[DustMap, ...] = field(default=())


def split_by_area(maps: Sequence[DustMap], seed: int = 0, share: float = 0.2) -> MapSplit:
    """About ``share`` of the areas for validation and as many for test, at least one each; all of an area goes together."""
    areas = sorted({m.area for m in maps})
    if len(areas) < 3:
        raise UserError(
            f"There are maps of {len(areas)} areas, but training, validation and test need one each.", "Give more maps."
        )
    order = np.random.default_rng(seed).permutation(areas).tolist()
    number = max(1, round(share * len(areas)))
    chosen = {"validation": set(order[:number]), "test": set(order[number : 2 * number])}
    held = chosen["validation"] | chosen["test"]
    return MapSplit(
        tuple(m for m in maps if m.area not in held),
        tuple(m for m in maps if m.area in chosen["validation"]),
        tuple(m for m in maps if m.area in chosen["test"]),
    )


def cropped(found: DustMap, top: int, left: int, height: int, width: int) -> DustMap:
    """A part of a map; its coordinates move with it."""
    part = slice(top, top + height), slice(left, left + width)
    header = None
    if found.header is not None:
        header = found.header.copy()
        for axis, offset in ((1, left), (2, top)):
            if f"CRPIX{axis}" in header:
                header[f"CRPIX{axis}"] -= offset
    return replace(found, values=found.values[part], valid=found.valid[part], header=header)
