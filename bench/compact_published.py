"""Make the package's tables of published rows from the full ones: figures, sources and the conditions that matter.

    python bench/compact_published.py ../shared/published

Rows that say the same thing twice are kept once; notes keep only the words that the readers of rows understand.
"""

from __future__ import annotations

import csv
import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

from genaccel.predict.rows import INFERENCE_COLUMNS, TRAINING_COLUMNS, read_table

WORDS = re.compile(
    r"framework=[\w.-]+|micro \d+|grad_accum \d+|act_ckpt True|gradient checkpointing|full AC|op SAC|SAC|compile|"
    r"activation ckpt|optimizer in bwd|act offload|8bit|interleaved|local batch \d+|final samples [\d.]+|"
    r"no-xformers|xformers|SUSPECT|placeholder|classification|ablation(?:: baseline)?|chunked|PT_HPU_LAZY_MODE=0|eager|"
    r"padded, not|batch per device|\d+xH\d+\w*|\d+xMI\d+\w*|x\d+_TRT|\d+xGH\w*"
)
FOLDER = Path(__file__).resolve().parents[1] / "src/genaccel/catalogue/published"


def compact(table: Path, to: Path) -> int:
    """Write the compact form of ``table``; returns the number of rows."""
    kind, rows = read_table(table)
    columns = TRAINING_COLUMNS if kind == "training" else INFERENCE_COLUMNS
    seen = set()
    with to.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, columns, lineterminator="\n")
        writer.writeheader()
        for row in rows:
            row["notes"] = "; ".join(dict.fromkeys(WORDS.findall(row["notes"])))
            key = tuple(row.values())
            if key not in seen:
                seen.add(key)
                writer.writerow(row)
    return len(seen)


def main() -> None:
    """Both tables of the folder that is given."""
    source = Path(sys.argv[1])
    for table, name in (("finetune.csv", "training.csv"), ("inference_diffusion.csv", "inference.csv")):
        print(f"{name}: {compact(source / table, FOLDER / name)} rows")


if __name__ == "__main__":
    main()
