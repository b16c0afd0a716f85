"""Plans and sensitivity reports: prefixes, exact bytes, files that round-trip and files that are refused."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from genaccel.errors import UserError
from genaccel.plans import (
    FORMATS,
    LayerScore,
    ModelLayout,
    PrecisionPlan,
    SensitivityReport,
    WeightInfo,
    find_format,
    load_plan,
    load_sensitivity,
)


def layout(num_layers: int = 12, tied: bool = True) -> ModelLayout:
    weights = [WeightInfo("model.embed_tokens", (100, 64), None, "embedding")]
    for i in range(num_layers):
        weights += [WeightInfo(f"model.layers.{i}.{n}", (64, 64), i, "linear") for n in ("attn.q_proj", "mlp.up_proj")]
    weights.append(WeightInfo("lm_head", (100, 64), None, "head", "model.embed_tokens" if tied else None))
    return ModelLayout("model.layers", num_layers, tuple(weights), other_elements=10)


def test_bytes_by_hand():
    assert FORMATS["int8"].num_bytes((64, 32)) == 64 * 32 + 64 * 4
    assert FORMATS["fp16"].num_bytes((64, 32)) == 64 * 32 * 2
    assert FORMATS["int4_g32"].num_bytes((64, 64)) == 64 * 64 // 2 + 64 * 2 * 4
    made = layout(2)
    formats = made.resolve({"model": "int8"})
    assert made.fp32_bytes == 4 * (6400 + 4 * 4096 + 10)
    assert made.num_bytes(formats) == (6400 + 400) + 4 * (4096 + 256) + 40


def test_an_untied_head_is_counted_too():
    assert layout(1, tied=False).fp32_bytes - layout(1).fp32_bytes == 4 * 6400


def test_the_longest_prefix_wins_and_numbers_are_whole():
    formats = layout().resolve({"model": "int8", "model.layers.1": "bf16", "model.layers.1.mlp.up_proj": "fp16"})
    assert formats["model.layers.1.attn.q_proj"].name == "bf16"
    assert formats["model.layers.1.mlp.up_proj"].name == "fp16"
    assert formats["model.layers.10.mlp.up_proj"].name == "int8"
    assert formats["lm_head"].name == "int8"


@pytest.mark.parametrize(
    ("formats", "sentence", "hint"),
    [
        ({"model": "int8", "model.layers.12": "bf16"}, "names 'model.layers.12'", "model.layers.1"),
        ({"model": "int8", "model.layers.1.mlp.up_pro": "bf16"}, "up_pro'", "model.layers.1.mlp.up_proj"),
        ({"model": "int8", "": "bf16"}, "names ''", ""),
        ({"model.layers": "int8"}, "leaves out model.embed_tokens", '"model.embed_tokens" = '),
        ({"model": "int9"}, "no format 'int9'", "int8"),
        ({"model": "int8", "lm_head": "bf16"}, "share one tensor", "Remove the line for lm_head"),
        ({"model": "int4_g128"}, "multiple of 128 inputs, but model.embed_tokens has 64", "group size"),
    ],
)
def test_a_plan_that_does_not_fit_says_why(formats, sentence, hint):
    with pytest.raises(UserError) as caught:
        layout().resolve(formats)
    assert sentence in caught.value.message
    assert hint in caught.value.hint


@given(
    st.dictionaries(st.text(min_size=1), st.sampled_from(sorted(FORMATS)), min_size=1, max_size=5),
    st.text(),
    st.text(),
)
def test_a_plan_survives_its_file_whatever_the_names(tmp_path_factory, formats, model, method):
    path = tmp_path_factory.mktemp("plan") / "plan.toml"
    plan = PrecisionPlan(model, "cpu", method, formats)
    try:
        text = plan.to_toml().encode("utf-8")
    except UnicodeEncodeError:  # a lone surrogate is no text
        return
    path.write_bytes(text)
    assert load_plan(path) == plan


def test_a_sensitivity_report_survives_its_file(tmp_path):
    report = SensitivityReport(
        "m", "magnitude", (LayerScore(0, "l.0", 0.25, 7), LayerScore(1, "l.1", 0.5, 9)), {"p": 0.3}
    )
    report.save(tmp_path / "s.json")
    assert load_sensitivity(tmp_path / "s.json") == report
    assert [s.layer for s in report.ranked()] == [1, 0]


PLAN = 'schema_version = 1\nmodel = "m"\ntarget = "cpu"\nmethod = "x"\n[formats]\n"a" = "int8"\n'


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (PLAN.replace("schema_version = 1", "schema_version = 2"), "schema version 2"),
        (PLAN.replace("schema_version = 1\n", ""), "schema version None"),
        (PLAN.replace("model", "modle"), "unknown key 'modle' (Did you mean model"),
        (PLAN.replace('"int8"', "8"), "8 is not str"),
        (PLAN.replace('method = "x"\n', ""), "'method'"),
        (PLAN + '[format]\n"b" = "int8"\n', "unknown key 'format' (Did you mean formats"),
        (PLAN.replace('"a" = "int8"', 'model.layers.0 = "int8"'), "key 'model' holds a table"),
        (PLAN.replace('[formats]\n"a" = "int8"', 'formats = "int8"'), "formats"),
        (PLAN + '"a" = "bf16"\n', "is not TOML"),
        ("not toml at all [", "is not TOML"),
    ],
)
def test_a_plan_file_that_is_wrong_is_refused(tmp_path, text, sentence):
    (tmp_path / "plan.toml").write_text(text)
    with pytest.raises(UserError) as caught:
        load_plan(tmp_path / "plan.toml")
    assert sentence in caught.value.message
    assert "plan.toml" in caught.value.message


def test_dotted_names_without_quotes_get_the_hint_to_quote_them(tmp_path):
    (tmp_path / "plan.toml").write_text(PLAN.replace('"a"', "model.layers.0"))
    with pytest.raises(UserError) as caught:
        load_plan(tmp_path / "plan.toml")
    assert '"model.layers.0"' in caught.value.hint


@pytest.mark.parametrize("load", [load_plan, load_sensitivity])
@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda p: None, "No such file"),
        (lambda p: p.mkdir(), "Is a directory"),
        (lambda p: p.write_bytes(b"\xff"), "not UTF-8"),
    ],
)
def test_a_file_that_cannot_be_read_is_named(tmp_path, load, make, sentence):
    make(tmp_path / "it")
    with pytest.raises(UserError) as caught:
        load(tmp_path / "it")
    assert sentence in caught.value.message
    assert str(tmp_path / "it") in caught.value.message


SCORE = {"layer": 0, "name": "a", "score": 1.0, "num_weights": 1}


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"metrik": "x"}, "unknown key 'metrik' (Did you mean metric"),
        ({"scores": [SCORE | {"score": float("nan")}]}, "nan is not finite"),
        ({"scores": [SCORE | {"scroe": 1.0}]}, "unknown key 'scroe' (Did you mean score"),
        ({"scores": {}}, "scores: {} is not a list"),
        ({"model": 7}, "7 is not str"),
        ({"scores": [{"layer": "0", "name": "a", "score": 1.0, "num_weights": 1}]}, "'0' is not int"),
        ({"schema_version": 0}, "schema version 0"),
    ],
)
def test_a_sensitivity_file_that_is_wrong_is_refused(tmp_path, change, sentence):
    good = {"model": "m", "metric": "magnitude", "scores": [], "settings": {}, "schema_version": 1}
    (tmp_path / "s.json").write_text(json.dumps(good))
    assert load_sensitivity(tmp_path / "s.json").metric == "magnitude"
    (tmp_path / "s.json").write_text(json.dumps(good | change))
    with pytest.raises(UserError) as caught:
        load_sensitivity(tmp_path / "s.json")
    assert sentence in caught.value.message


@pytest.mark.parametrize("text", ["[]", "3", "null", "{"])
def test_a_sensitivity_file_that_holds_something_else_is_refused(tmp_path, text):
    (tmp_path / "s.json").write_text(text)
    with pytest.raises(UserError, match=r"does not hold a table|is not JSON"):
        load_sensitivity(tmp_path / "s.json")


def test_equal_scores_rank_by_layer():
    scores = tuple(LayerScore(i, f"l.{i}", s, 1) for i, s in enumerate([0.5, 0.9, 0.5, 0.9]))
    assert [s.layer for s in SensitivityReport("m", "x", scores[::-1]).ranked()] == [1, 3, 0, 2]


def test_a_score_that_is_no_number_is_not_written(tmp_path):
    report = SensitivityReport("m", "magnitude", (LayerScore(0, "l.0", float("nan"), 7),))
    with pytest.raises(ValueError, match="JSON"):
        report.save(tmp_path / "s.json")
    assert not list(tmp_path.iterdir())


PREFIXES = ["model", "model.embed_tokens", "model.layers", "lm_head"]
PREFIXES += [f"model.layers.{i}{rest}" for i in (0, 1, 10, 11) for rest in ("", ".attn", ".attn.q_proj", ".mlp")]


@given(st.dictionaries(st.sampled_from(PREFIXES), st.sampled_from(["fp32", "bf16", "int8", "int4_g64"])))
def test_resolving_follows_the_longest_run_of_whole_names(formats):
    """Against a second reading of the rule: cut names from the end until what is left is a key."""
    made = layout(tied=False)
    expected = {}
    for weight in made.weights:
        parts = weight.name.split(".")
        found = [".".join(parts[:n]) for n in range(len(parts), 0, -1) if ".".join(parts[:n]) in formats]
        expected[weight.name] = formats[found[0]] if found else None
    if None in expected.values():
        missing = next(name for name, form in expected.items() if form is None)
        with pytest.raises(UserError, match=f"leaves out {missing}"):
            made.resolve(formats)
    else:
        assert {name: form.name for name, form in made.resolve(formats).items()} == expected


def test_an_unknown_format_offers_the_nearest():
    with pytest.raises(UserError) as caught:
        find_format("fp8_e4m4")
    assert "fp8_e4m3" in caught.value.hint
