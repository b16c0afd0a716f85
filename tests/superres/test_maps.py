"""Maps: what is read, masked, cut, degraded and written, and that coordinates stay true."""

from __future__ import annotations

import numpy as np
import pytest
from astropy.io import fits
from astropy.wcs import WCS
from hypothesis import given
from hypothesis import strategies as st

from genaccel.errors import UserError
from genaccel.superres.maps import (
    DustMap,
    Sphere,
    block_mean,
    brightness_of,
    cropped,
    made_map,
    patches_of,
    read_map,
    split_by_area,
    write_map,
)
from genaccel.superres.synthetic import gaussian_field, synthetic_dust


def wcs_header():
    wcs = WCS(naxis=2)
    wcs.wcs.ctype = ["GLON-TAN", "GLAT-TAN"]
    wcs.wcs.crval = [30.0, 10.0]
    wcs.wcs.crpix = [4.5, 3.5]
    wcs.wcs.cdelt = [-0.1, 0.1]
    return wcs.to_header()


def test_an_image_in_an_extension_with_blanks_units_and_coordinates(tmp_path):
    data = np.arange(48, dtype=np.int16).reshape(6, 8)
    hdu = fits.ImageHDU(data, wcs_header())
    hdu.header["BLANK"], hdu.header["BUNIT"] = 7, "MJy/sr"
    fits.HDUList([fits.PrimaryHDU(), hdu]).writeto(tmp_path / "a.fits")
    found = read_map(tmp_path / "a.fits")
    assert isinstance(found, DustMap)
    assert (found.shape, found.unit) == ((6, 8), "MJy/sr")
    assert (~found.valid).sum() == 1
    assert not found.valid[0, 7]


def test_written_maps_keep_units_and_every_point_of_the_sky(tmp_path):
    low = DustMap("m", np.ones((6, 8)), np.ones((6, 8), bool), "mag", wcs_header())
    write_map(tmp_path / "out.fits", {"mean": np.ones((24, 32)), "deviation": np.zeros((24, 32))}, low, 4)
    with fits.open(tmp_path / "out.fits") as hdus:
        assert [h.name for h in hdus] == ["MEAN", "DEVIATION"]
        assert hdus[0].header["BUNIT"] == "mag"
        fine, coarse = WCS(hdus[0].header), WCS(low.header)
        # The centre of a coarse pixel is the common corner of its four middle fine pixels.
        for x, y in [(0, 0), (3, 2), (7, 5)]:
            np.testing.assert_allclose(
                fine.wcs_pix2world([[4 * x + 1.5, 4 * y + 1.5]], 0), coarse.wcs_pix2world([[x, y]], 0), rtol=1e-9
            )


def test_a_crop_keeps_its_place_on_the_sky():
    whole = DustMap("m", np.zeros((6, 8)), np.ones((6, 8), bool), "", wcs_header())
    part = cropped(whole, 2, 3, 4, 5)
    np.testing.assert_allclose(
        WCS(part.header).wcs_pix2world([[1, 1]], 0), WCS(whole.header).wcs_pix2world([[4, 3]], 0), rtol=1e-12
    )


def broken(tmp_path, name):
    path = tmp_path / f"{name}.fits"
    if name == "text":
        path.write_text("no map")
    elif name == "cube":
        fits.PrimaryHDU(np.zeros((3, 4, 5))).writeto(path)
    elif name == "masked":
        fits.PrimaryHDU(np.full((4, 4), np.nan)).writeto(path)
    elif name == "line":
        fits.PrimaryHDU(np.ones((1, 9))).writeto(path)
    elif name == "objects":
        path = tmp_path / "objects.npy"
        np.save(path, np.array([{}], dtype=object), allow_pickle=True)
    return path


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("absent", "There is no map"),
        ("text", "is no FITS file"),
        ("cube", "no image of two dimensions"),
        ("masked", "Every pixel"),
        ("line", "too narrow"),
        ("objects", "no array of numbers"),
    ],
)
def test_what_is_no_map_is_said(tmp_path, name, words):
    with pytest.raises(UserError) as caught:
        read_map(broken(tmp_path, name))
    assert words in caught.value.message


def test_block_means_preserve_flux_and_masks_spread():
    values = np.arange(32.0).reshape(4, 8)
    valid = np.ones((4, 8), bool)
    valid[0, 5] = False
    means, kept = block_mean(values, 2, valid)
    assert kept.tolist() == [[True, True, False, True], [True] * 4]
    assert means[0, 0] == values[:2, :2].mean()
    assert np.isnan(means[0, 2])
    with pytest.raises(UserError, match="cannot be divided into blocks of 3"):
        block_mean(values, 3)


@given(st.floats(1e-6, 1e6), st.floats(0.1, 3), st.booleans())
def test_units_make_the_round_trip(scale, spread, signed):
    flux = scale * np.exp(spread * np.random.default_rng(0).standard_normal((8, 8)))
    flux = flux - scale if signed else flux
    brightness = brightness_of([made_map("m", flux)])
    assert brightness.kind == ("asinh" if flux.min() <= 0 else "log")
    standard = brightness.forward(flux)
    np.testing.assert_allclose(brightness.backward(standard), flux, rtol=1e-6, atol=1e-9 * scale)
    assert (standard.mean(), standard.std()) == (pytest.approx(0, abs=1e-6), pytest.approx(1))


def test_areas_are_never_on_both_sides():
    maps = [made_map(f"m{i}", np.ones((4, 4)), area=f"a{i // 3}") for i in range(30)]
    split = split_by_area(maps)
    parts = [{m.area for m in part} for part in (split.train, split.validation, split.test)]
    assert all(parts)
    assert not parts[0] & parts[1] | parts[0] & parts[2] | parts[1] & parts[2]
    assert sum(map(len, (split.train, split.validation, split.test))) == 30
    with pytest.raises(UserError, match="2 areas"):
        split_by_area(maps[:6])


def test_patches_of_a_sphere_show_the_sky():
    """A sphere whose value is the galactic latitude's sine: every patch must show just that."""
    from astropy_healpix import HEALPix

    grid = HEALPix(nside=16, order="ring")
    _, lat = grid.healpix_to_lonlat(np.arange(grid.npix))
    patches = patches_of(Sphere("s", np.sin(lat.rad), False, "mag"), 6)
    assert len(patches) == 6
    for patch in patches:
        y, x = np.mgrid[: patch.shape[0], : patch.shape[1]]
        _, latitude = WCS(patch.header).wcs_pix2world(x, y, 0)
        np.testing.assert_allclose(patch.values, np.sin(np.radians(latitude)), atol=0.02)


def test_synthetic_dust_is_seeded_positive_and_has_its_spectrum():
    first, again, other = synthetic_dust(2), synthetic_dust(2), synthetic_dust(2, seed=1)
    assert (first[1].values == again[1].values).all()
    assert not (first[1].values == other[1].values).all()
    assert first[0].values.min() > 0
    field = np.mean(
        [np.abs(np.fft.fft2(gaussian_field((128, 128), np.random.default_rng(i), slope=-3.0))) ** 2 for i in range(20)],
        axis=0,
    )
    k = np.hypot(*np.meshgrid(np.fft.fftfreq(128), np.fft.fftfreq(128)))
    band = (k > 0.03) & (k < 0.4)
    slope, _ = np.polyfit(np.log(k[band]), np.log(field[band]), 1)
    assert slope == pytest.approx(-3.0, abs=0.1)
