"""From files of maps to files of super-resolved ensembles."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from genaccel import console, devices
from genaccel.errors import UserError
from genaccel.records import Record, Setting
from genaccel.store import check_writable, write_record
from genaccel.superres.builtin import load_maps
from genaccel.superres.config import JudgeMapsConfig, SampleConfig
from genaccel.superres.evaluation import figures_of, judge_maps, write_pictures
from genaccel.superres.maps import DustMap, Sphere, patches_of, read_map, sha256_of, write_map
from genaccel.superres.resolver import load_resolver
from genaccel.superres.sampling import check_memory, super_resolve
from genaccel.superres.showing import pictures_of, spectra_of


def resolve_files(config: SampleConfig) -> list[dict[str, Any]]:
    """Super-resolve every map of ``config`` and write it; returns what was written, a row for each map."""
    config.check()
    check_writable(config.output)
    resolver = load_resolver(config.model)
    factor = resolver.info.factor
    if config.factor not in (None, factor):
        raise UserError(
            f"The model in {config.model} enlarges {factor} times, not {config.factor} times.",
            f"Leave --factor out, or train one with 'genaccel superres train --factor {config.factor}'.",
        )
    device = devices.get(config.device)
    resolver.to(device.torch_device())
    maps: list[DustMap] = []
    for path in config.maps:
        found = read_map(path)
        maps += patches_of(found, config.patches) if isinstance(found, Sphere) else [found]
    for low in maps:
        check_memory(resolver, low.shape, config.members, config.tile, device.memory_bytes())
    rows = []
    with console.progress("Super-resolving", len(maps)) as advance:
        for number, low in enumerate(maps):
            ensemble = super_resolve(
                resolver, low, config.members, config.steps, config.seed + number, config.preserve_flux, config.tile
            )
            planes = {"mean": ensemble.mean, "deviation": ensemble.deviation, "regression": ensemble.regression}
            planes |= {f"member{i + 1}": member for i, member in enumerate(ensemble.members)}
            file = config.output / f"{low.name}_x{factor}.fits"
            write_map(file, planes, low, factor)
            sizes = {k: " x ".join(map(str, v)) for k, v in (("from", low.shape), ("to", ensemble.mean.shape))}
            rows.append({"map": low.name, "members": config.members, "file": str(file)} | sizes)
            advance(low.name)
    return rows


def judge_files(config: JudgeMapsConfig, settings: dict[str, Setting]) -> tuple[Record, Path]:
    """Judge a model on maps of areas that it was not trained on; writes pictures and a record."""
    config.check()
    check_writable(config.output)
    check_writable(config.runs)
    resolver = load_resolver(config.model)
    device = devices.get(config.device)
    resolver.to(device.torch_device())
    trained_on = set(resolver.info.trained_areas)
    maps = [m for m in load_maps(config.data) if m.area not in trained_on and m.valid.all()][: config.limit]
    with console.progress("Judging", len(maps)) as advance:
        judged = judge_maps(resolver, maps, config.members, config.steps, config.seed, advance)
    pictures = config.output / "pictures.png"
    write_pictures(pictures, judged, resolver.info.brightness)
    protocol = f"x{resolver.info.factor}, {config.members} members, {config.steps} evaluations each, flux preserved"
    figures = figures_of(judged, resolver.info.brightness, protocol)
    if resolver.regression is None:  # then its place is taken by the enlarged map
        figures = [f for f in figures if not f.name.startswith("regression_")]
    record = Record(
        job="superres",
        label=f"{resolver.info.process} {resolver.info.size} x{resolver.info.factor}, judged",
        model=f"superres-{resolver.info.size}",
        mode=resolver.info.process,
        target=device.NAME,
        config=settings,
        environment=devices.environment(device),
        figures=tuple(figures),
        data={", ".join(config.data): sha256_of(maps)},
        details={
            "maps": [m.name for m in maps],
            "spectra": spectra_of(judged, resolver.info.brightness),
            "pictures": pictures_of(judged, resolver.info.brightness),
        },
        artefacts={"pictures": str(pictures)},
    )
    return record, write_record(record, config.runs)
