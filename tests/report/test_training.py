"""What the report shows of fine-tuning."""

from __future__ import annotations

from dataclasses import replace

from tests.made_records import fp32, number
from tests.report.test_html import HEADERS, page


def test_fine_tuning_has_a_table_of_its_own_and_other_figures_are_in_its_details() -> None:
    speed, traffic = number("train_tokens_per_second", 1234.5), number("sent_bytes", 5.4e8, "B", "predicted")
    shown = page(replace(fp32("tuned"), job="finetune", mode="ddp", target="gaudi2", figures=(speed, traffic)))
    assert not [r for r in shown.rows if len(r) == len(HEADERS) and r[-1].startswith("tuned")], (
        "no row among judged models"
    )
    (head, row) = [r for r in shown.rows if r[0] in ("run", "tiny fp32") and "trained" in shown.rows[0]]
    assert row[-1].startswith("tuned")
    assert dict(zip(head, row, strict=True)) == {
        "run": "tiny fp32", "trained": "ddp", "ran on": "cpu env. 1", "tokens/s": "1,234 m", "record": "tuned"
    }  # fmt: skip
    text = " ".join(" ".join(shown.texts).split())
    assert "unknown of all: per device, step, s" in text
    assert "train_tokens_per_second 1234.5 1 measured" in text
    assert "sent_bytes 540,000,000 B predicted" in text
