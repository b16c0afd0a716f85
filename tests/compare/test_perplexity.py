from __future__ import annotations

from dataclasses import replace

import pytest
from tests.made_records import ENVIRONMENT, PROTOCOL, TEXT, fake, fp32, real

from genaccel.compare.numbers import known
from genaccel.compare.perplexity import group_records, perplexity_change
from genaccel.records import Figure


def test_groups_split_by_model_protocol_and_text_and_keep_fp32_first() -> None:
    other_text = {"details": {"text": TEXT | {"sha256": "b" * 64}}}
    records = [
        real("1"),
        fake("2"),
        fp32("3"),
        fake("4", protocol="another window"),
        fake("5", **other_text),
        fake("6", model="other"),
        fake("7", perplexity=None),
    ]
    groups = {(g.model, g.protocol, g.text_sha256[:1]): [r.id for r in g.records] for g in group_records(records)}
    assert groups == {
        ("other", PROTOCOL, "a"): ["6"],
        ("tiny", "another window", "a"): ["4"],
        ("tiny", PROTOCOL, "a"): ["3", "2", "1"],
        ("tiny", PROTOCOL, "b"): ["5"],
        ("tiny", "", ""): ["7"],
    }
    assert list(groups)[-1] == ("tiny", "", ""), "what was not judged comes last"


def test_change_against_fp32() -> None:
    change = perplexity_change(fake(perplexity=21.0), fp32(perplexity=20.0))
    assert change is not None
    assert (change.value, change.share, change.kind, change.reference.id) == (1.0, 0.05, "measured", "base")
    assert change.margin is None


def test_change_is_predicted_when_either_side_is() -> None:
    predicted = replace(fake(), figures=(Figure("perplexity", 21.0, "1", "predicted", PROTOCOL),))
    change = perplexity_change(predicted, fp32())
    assert change is not None
    assert change.kind == "predicted"


def test_unlike_protocols_are_refused() -> None:
    with pytest.raises(ValueError, match="unlike protocols"):
        perplexity_change(fake(protocol="another window"), fp32())


def test_margin_is_paired_by_window() -> None:
    # Differences 1 and 3 nats: their sum has the standard error sqrt(2) * stdev = 2, over 20 tokens 0.1 nats a token,
    # and a perplexity of 21 moves by 2.1; 95 % are 1.96 times that. The windows' own levels (30 and 300) cancel.
    base = fp32(details={"tokens_by_window": [10, 10], "nll_by_window": [30.0, 300.0]})
    other = fake(details={"tokens_by_window": [10, 10], "nll_by_window": [31.0, 303.0]})
    change = perplexity_change(other, base)
    assert change is not None
    assert change.margin == pytest.approx(1.96 * 2.1, rel=1e-4)


@pytest.mark.parametrize(
    "details",
    [
        {"tokens_by_window": [10], "nll_by_window": [31.0]},
        {"tokens_by_window": [10, 11], "nll_by_window": [31.0, 303.0]},
        {"tokens_by_window": [10, 10], "nll_by_window": [31.0]},
        {"tokens_by_window": [10, 10], "nll_by_window": ["31", None]},
        {"tokens_by_window": [0, 0], "nll_by_window": [31.0, 303.0]},
        {"tokens_by_window": [10, 10]},
        {"tokens_by_window": "10", "nll_by_window": 3},
    ],
)
def test_no_margin_from_unlike_windows(details: dict[str, object]) -> None:
    base = fp32(details={"tokens_by_window": [10, 10], "nll_by_window": [30.0, 300.0]})
    change = perplexity_change(fake(details=details), base)
    assert change is not None
    assert change.margin is None


def test_reference_has_the_same_weights_then_the_same_environment_then_is_the_latest() -> None:
    elsewhere = replace(ENVIRONMENT, accelerator="Other CPU")
    old = fp32("old", created="2026-01-01T00:00:00.000+00:00")
    new = fp32("new", created="2026-01-02T00:00:00.000+00:00", environment=elsewhere)
    foreign = fp32(
        "foreign", created="2026-01-03T00:00:00.000+00:00", details={"model_fingerprint": "beef", "text": TEXT}
    )
    (group,) = group_records([foreign, new, old, fake()])

    def reference_of(**changes: object) -> str | None:
        found = group.reference(replace(fake(), **changes))  # type: ignore[arg-type]
        return found.id if found else None

    assert reference_of() == "old"
    assert reference_of(environment=elsewhere) == "new"
    assert reference_of(environment=replace(ENVIRONMENT, python="3.12")) == "new"
    assert reference_of(details={"model_fingerprint": "beef"}) == "foreign"
    assert reference_of(details={"model_fingerprint": "cafe"}) is None
    assert reference_of(details={}, environment=elsewhere) == "new", "a checkpoint's record has no fingerprint"


@pytest.mark.parametrize("value", [None, float("nan"), float("inf")])
def test_a_value_that_is_no_number_is_unknown(value: float | None) -> None:
    assert known(fp32(perplexity=value), "perplexity") is None
    assert known(fp32(), "never_taken") is None
    assert perplexity_change(fake(perplexity=value), fp32()) is None
    assert perplexity_change(fake(), fp32(perplexity=value)) is None
    assert perplexity_change(fake(), None) is None
