"""What the report shows of fine-tuning."""

from __future__ import annotations

from dataclasses import replace

from tests.made_records import fp32, number
from tests.report.test_html import HEADERS, page

from genaccel.report import training


def test_fine_tuning_has_a_table_of_its_own_and_other_figures_are_in_its_details() -> None:
    speed, traffic = number("train_tokens_per_second", 1234.5), number("sent_bytes", 5.4e8, "B", "predicted")
    shown = page(replace(fp32("tuned"), job="finetune", mode="ddp", target="gaudi2", figures=(speed, traffic)))
    assert not [r for r in shown.rows if len(r) == len(HEADERS) and r[-1].startswith("tuned")], (
        "no row among judged models"
    )
    (row,) = [r for r in shown.rows if len(r) == 6 + len(training.COLUMNS)][1:]
    assert row[-1].startswith("tuned")
    assert row[5].startswith("1,234")
    assert set(row[6:-1]) == {"–"}
    text = " ".join(" ".join(shown.texts).split())
    assert "train_tokens_per_second 1234.5 1 measured" in text
    assert "sent_bytes 540,000,000 B predicted" in text
