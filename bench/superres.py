"""Super-resolvers after equal CPU time: genaccel, SR3, regression alone, and genaccel with diffusers' UNet2DModel.

    pip install -c constraints.txt -e '.[superres,bench]'     # diffusers, for its UNet; it leaves torch as it is
    python bench/superres.py MAP MAP MAP [--cpu-minutes 10] [--seeds 3] [--side-by-side 2] [--output runs/bench-superres]

Each seed holds another map out whole, trains on patches of the others (x4, 16 to 64 pixels) in a process of one thread
until it has used its CPU time, data and updates included; draws of genaccel's method, with either UNet, then have their
spectrum calibrated, on top of that time (as recorded). It is judged on the held-out map cut into patches. All contenders
share the loop, the data, the optimizer and the judge; networks have equal parameters. A contender and seed that the output
folder holds is not run again, so an interrupted benchmark goes on with the next one; one of other settings is refused.
Prints Markdown for bench/RESULTS.md, keeps it in table.md beside results and weights, and leaves pictures of our seeds.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

ARMS = ("genaccel", "sr3", "regression", "diffusers")
FACTOR, PATCH, MEMBERS = 4, 64, 4
STEPS = (10, 50)
SHOWN = ("crps", "power_mid_k", "power_high_k", "median_high_k", "psnr", "ssim", "spread_skill")


def resolver_of(arm: str, info: Any) -> Any:
    """The contender's networks."""
    import torch
    from torch import nn

    from genaccel.superres.resolver import Resolver

    if arm != "regression":
        resolver = Resolver(info)
        if arm == "diffusers":
            assert resolver.regression is not None
            resolver.regression = peer_like(resolver.regression)
            resolver.diffusion = peer_like(resolver.diffusion)
        return resolver

    class Regression(Resolver):
        """Trains the mean alone, and draws nothing around it."""

        def forward(self, low: torch.Tensor, high: torch.Tensor, noise: Any) -> torch.Tensor:  # noqa: ARG002
            error: torch.Tensor = (self.regress(self.enlarge(low))[0] - high).square().flatten(1).mean(1)
            return error / self.residual_scale**2

        @torch.no_grad()
        def draw(self, low: torch.Tensor, noise: torch.Tensor, num_steps: int) -> Any:  # noqa: ARG002
            mean, _ = self.regress(self.enlarge(low))
            return mean, mean

    resolver = Regression(info)
    resolver.diffusion = nn.Identity()
    return resolver


def peer_like(network: Any) -> Any:
    """diffusers' UNet2DModel at full resolution for the same maps, as wide as makes its parameters most like ``network``'s."""
    import torch
    from diffusers import UNet2DModel
    from torch import nn

    from genaccel.superres.network import FOLD

    inputs, outputs = (n // FOLD**2 for n in (network.first.in_channels, network.last.out_channels))

    def made(width: int) -> Any:
        return UNet2DModel(
            sample_size=PATCH,
            in_channels=inputs,
            out_channels=outputs,
            layers_per_block=1,
            block_out_channels=(width, 2 * width, 2 * width),
            down_block_types=("DownBlock2D",) * 3,
            up_block_types=("UpBlock2D",) * 3,
            norm_num_groups=8,
            add_attention=False,
        )

    class Peer(nn.Module):
        def __init__(self, unet: nn.Module) -> None:
            super().__init__()
            self.unet = unet

        def forward(self, x: torch.Tensor, t: torch.Tensor, c: torch.Tensor) -> torch.Tensor:
            out: torch.Tensor = self.unet(torch.cat([x, c], dim=1), 1000 * t).sample
            return out

    wanted = count(network)
    width = min(range(8, 129, 8), key=lambda w: abs(count(made(w)) - wanted))
    return Peer(made(width))


def count(module: Any) -> int:
    """Parameters."""
    return sum(p.numel() for p in module.parameters())


def settings_of(args: argparse.Namespace) -> dict[str, Any]:
    """What results must share to stand in one table."""
    names = ("cpu_minutes", "preset", "batch", "rate", "channels_last")
    return {name: getattr(args, name) for name in names} | {"maps": [path.name for path in args.maps]}


def one(args: argparse.Namespace) -> dict[str, Any]:
    """Train one contender on one seed in this process and judge it."""
    import numpy as np
    import torch

    from genaccel.devices import get
    from genaccel.superres.config import DustTrainConfig
    from genaccel.superres.maps import brightness_of, read_map
    from genaccel.superres.resolver import ResolverInfo
    from genaccel.superres.workload import Patches, SuperResolution
    from genaccel.train.average import Average
    from genaccel.train.group import Group
    from genaccel.train.loop import Run, train
    from genaccel.train.meter import Meter
    from genaccel.train.probing import Arithmetic
    from genaccel.train.strategies import wrap
    from genaccel.train.traffic import Traffic

    torch.set_num_threads(1)
    device = get("cpu")
    device.reuse_memory()
    device.seed(args.seed)
    maps = [read_map(path) for path in args.maps]
    held_out = maps.pop(args.seed % len(maps))
    brightness = brightness_of(maps)
    process = "sr3" if args.arm == "sr3" else "rectified-flow"
    module = resolver_of(args.arm, ResolverInfo(args.preset, process, FACTOR, brightness))
    group = Group(device)
    patches = Patches(maps, PATCH, FACTOR, brightness, args.seed)
    workload = SuperResolution(patches, group, args.batch, args.batch)
    batch = workload.batch(range(64))
    module.residual_scale.fill_(float((batch.high - module.enlarge(batch.low)).std()))
    if args.channels_last:
        module.compute_with(Arithmetic(channels_last=True))
    config = DustTrainConfig(global_batch=args.batch, learning_rate=args.rate, seed=args.seed)
    engine = wrap(module.train(), [], config, group)
    average = Average(module, 0.998)
    begin = time.process_time()
    loop = Run(workload, engine, config, group, Meter(group, Traffic(group)), 10**9, after_update=average.update)
    loop.told_to_end = lambda: time.process_time() - begin > 60 * args.cpu_minutes
    outcome = train(loop)
    spent = time.process_time() - begin
    module.load_state_dict(average.mean, strict=False)
    found = {
        "arm": args.arm,
        "seed": args.seed,
        "settings": settings_of(args),
        "held_out": held_out.name,
        "parameters": count(module),
        "images": outcome.step * args.batch,
        "cpu_seconds": spent,
        "loss": float(np.mean(loop.losses[-50:])),
        "peak_memory_bytes": device.peak_memory_bytes(),
    }
    found |= finished(args, module.eval(), workload)
    return found | judged_on(args, module, held_out)


def finished(args: argparse.Namespace, module: Any, workload: Any) -> dict[str, Any]:
    """Calibrate what is genaccel's method, and keep the weights."""
    from safetensors.torch import save_file

    from genaccel.superres.calibration import NUM_PATCHES, calibrate

    begin = time.process_time()
    if args.arm in ("genaccel", "diffusers"):
        batch = workload.batch(range(NUM_PATCHES))
        calibrate(module, batch.low, batch.high, args.seed, STEPS[0])
    spent = time.process_time() - begin
    weights = {name: tensor.contiguous() for name, tensor in module.state_dict().items()}
    save_file(weights, args.output / f"{args.arm}-{args.seed}.safetensors")
    return {"calibration_cpu_seconds": spent, "gains": module.gains.tolist()}


def judged_on(args: argparse.Namespace, module: Any, held_out: Any) -> dict[str, Any]:
    """Figures by number of evaluations, on the held-out map cut into patches."""
    import numpy as np

    from genaccel.superres.evaluation import BANDS, figures_of, judge_maps, write_pictures
    from genaccel.superres.maps import cropped
    from genaccel.superres.quality import band_power

    height, width = held_out.shape
    crops = [cropped(held_out, y, x, PATCH, PATCH) for y in range(0, height, PATCH) for x in range(0, width, PATCH)]
    crops = [c for c in crops if c.valid.all()]
    found: dict[str, Any] = {"patches_judged": len(crops)}
    for steps in STEPS if args.arm != "regression" else STEPS[:1]:
        start = time.process_time()
        judged = judge_maps(module, crops, MEMBERS if args.arm != "regression" else 1, steps, args.seed)
        brightness = module.info.brightness
        figures = figures_of(judged, brightness, "")
        truths = [band_power(brightness.forward(j.truth.values), *BANDS["high"]) for j in judged]
        # A sample is a patch's power over the mean patch's truth: here it is over the truth of its own.
        own = np.mean(truths) / np.array(truths)
        medians = {
            f.name.replace("power", "median"): float(np.median(f.samples * own))
            for f in figures
            if f.name.endswith("power_high_k")
        }
        found[str(steps)] = {f.name: f.value for f in figures} | medians
        found[str(steps)]["judge_cpu_seconds"] = time.process_time() - start
        if args.arm == "genaccel" and steps == STEPS[0]:
            write_pictures(args.output / f"pictures-{args.seed}.png", judged, brightness)
    return found


def row(arm: str, method: str, steps: int, results: list[dict[str, Any]]) -> str:
    """A row of the table: means over seeds with their range."""

    def shown(values: list[float], digits: int) -> str:
        if not values:
            return ""
        return f"{statistics.mean(values):.{digits}f} ({min(values):.{digits}f} - {max(values):.{digits}f})"

    rates = [r["images"] / r["cpu_seconds"] for r in results] if method != "bicubic" else []
    cells = [arm, str(steps) if method == "diffusion" else "", shown(rates, 1)]
    for name in SHOWN:
        values = [v for r in results if (v := r[str(steps)].get(f"{method}_{name}")) is not None]
        cells.append(shown(values, 2 if name == "psnr" else 3))
    return "| " + " | ".join(cells) + " |"


def report(args: argparse.Namespace) -> str:
    """The table of everything in the output folder, as Markdown."""
    results = [json.loads(f.read_text()) for f in sorted(args.output.glob("*.json"))]
    by_arm = {arm: [r for r in results if r["arm"] == arm] for arm in args.arms}
    titles = [
        "contender",
        "evaluations",
        "images / CPU s",
        "CRPS",
        "P(k) mid",
        "P(k) high",
        "its median patch",
        "PSNR, dB",
        "SSIM",
        "spread/skill",
    ]
    lines = ["| " + " | ".join(titles) + " |", "|---|---:|" + "---:|" * (len(titles) - 2)]
    for arm, found in by_arm.items():
        if not found:
            continue
        if arm == "genaccel":
            lines.append(row("bicubic", "bicubic", STEPS[0], found))
            lines.append(row("genaccel's own regression", "regression", STEPS[0], found))
        for steps in STEPS if arm != "regression" else STEPS[:1]:
            lines.append(row(arm, "regression" if arm == "regression" else "diffusion", steps, found))
    for arm, found in by_arm.items():
        if found:
            sizes = ", ".join(str(r["parameters"]) for r in found[:1])
            images = ", ".join(f"{r['images']:,}" for r in found)
            lines.append(f"\n{arm}: {sizes} parameters; images seen, by seed: {images}")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Run what is missing, one process for each contender and seed, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("maps", nargs="+", type=Path)
    parser.add_argument("--cpu-minutes", type=float, default=10)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--side-by-side", type=int, default=2)
    parser.add_argument("--arms", nargs="+", choices=ARMS, default=list(ARMS))
    parser.add_argument("--preset", default="tiny")
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--rate", type=float, default=1e-3)
    parser.add_argument("--channels-last", action="store_true")
    parser.add_argument("--output", type=Path, default=Path("runs/bench-superres"))
    parser.add_argument("--arm", help=argparse.SUPPRESS)
    parser.add_argument("--seed", type=int, help=argparse.SUPPRESS)
    args = parser.parse_args()
    args.output.mkdir(parents=True, exist_ok=True)
    if args.arm:
        result = json.dumps(one(args), indent=1)
        unfinished = args.output / f"{args.arm}-{args.seed}.unfinished"
        unfinished.write_text(result)
        unfinished.rename(args.output / f"{args.arm}-{args.seed}.json")
        return
    wanted = [(arm, seed) for seed in range(args.seeds) for arm in args.arms]

    def start(cell: tuple[str, int]) -> None:
        arm, seed = cell
        found = args.output / f"{arm}-{seed}.json"
        if found.exists():
            if json.loads(found.read_text())["settings"] != settings_of(args):
                raise SystemExit(f"{found} was made with other settings: choose another --output.")
            return
        command = [sys.executable, __file__, *sys.argv[1:], "--arm", arm, "--seed", str(seed)]
        subprocess.run(command, check=True, env=os.environ | {"OMP_NUM_THREADS": "1"})
        print(f"{arm}, seed {seed} done", file=sys.stderr)

    with ThreadPoolExecutor(args.side_by_side) as pool:
        list(pool.map(start, wanted))
    table = report(args)
    (args.output / "table.md").write_text(table)
    print(table, end="")


if __name__ == "__main__":
    main()
