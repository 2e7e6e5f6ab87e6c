"""Predictions, and the prior of the search: broken tables are refused, and a wrong prior is not trusted."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import yaml

from servelab.archive.contents import _own_files
from servelab.assets.sources import MODEL_PROBES, Probe
from servelab.core.errors import ConfigError, Outage
from servelab.core.yaml_file import read_yaml
from servelab.metrics.tables.io import Floats
from servelab.search import predict_study
from servelab.search.course import follow
from servelab.search.forecast import forecast
from servelab.search.options_space import space_of
from servelab.search.predict import _PROMPT_TOKENS, _SEQUENCES, PredictedServer, Sent, Steps, broken, predict, query_of
from servelab.search.predict_study import _key, predictions_of
from servelab.search.prior import Prior
from servelab.search.project import load_project
from servelab.search.simulate import Measured, run_search
from servelab.study.configuration import key_of
from servelab.study.predictions import Predictions

ROOT = Path(__file__).parents[2]
SERVED = PredictedServer("vllm", "NVIDIA H100 80GB HBM3", "bfloat16", 2.0, 1, 1, 1, False, 256, 8192, 400_000)
HEAD = "combinations, each beside others of its engine; all may be several times too fast"
SENT = Sent(1000, 220, 200, 1000)


def steps(one_ms: float, each_ms: float = 0.05) -> Steps:
    tokens = np.array(_PROMPT_TOKENS)[:, None] * 0.08
    ms: Floats = one_ms + tokens + each_ms * np.array(_SEQUENCES)[None]
    return Steps(ms, "kernel-timings")


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    content = read_yaml(ROOT / "config/studies/cpu-smollm2.yaml")
    counts = {"a": 4, "b": 4, "c": 3}
    stages = [
        {
            "name": name,
            "candidates": [{"label": f"{name}={at}", "arguments": {f"--x-{name}": at}} for at in range(1, count)],
        }
        for name, count in counts.items()
    ]
    content |= {"study": "prior", "stages": stages, "search": {"strategy": "adaptive"}, "proof": {}}
    content |= {"workloads": [content["objective"]["on"]]}
    file = tmp_path_factory.mktemp("prior") / "prior.yaml"
    file.write_text(yaml.safe_dump(content, sort_keys=False))
    return load_project(file, ROOT)


def test_tables_that_cannot_be_right_are_refused():
    """The decode times at TP 1, 2, 4, 8: vLLM's `fp8_block`, which hardly fall, and `bfloat16`."""
    block, sound = (22.1, 19.5, 18.0, 16.9), (24.3, 13.4, 8.2, 5.7)
    assert "22.2 ms on 1 devices, and 19.6 on 2" in (
        broken(dict(zip((1, 2, 4, 8), map(steps, block), strict=True))) or ""
    )
    assert broken(dict(zip((1, 2, 4, 8), map(steps, sound), strict=True))) is None
    assert "256 sequences take" in (broken({1: steps(20, each_ms=0)}) or "")
    assert broken({1: steps(math.nan)}) == "has steps without a time"


def test_a_prediction_follows_what_limits_a_server():
    found = predict(SERVED, steps(20), SENT)
    assert found is not None
    more = predict(replace(SERVED, sequences=64), steps(20), SENT)
    assert more is not None and more.total_tokens_per_s < found.total_tokens_per_s and more.tpot_ms < found.tpot_ms
    little = predict(replace(SERVED, kv_tokens=4_000), steps(20), SENT)
    assert little is not None and little.total_tokens_per_s < more.total_tokens_per_s
    assert predict(replace(SERVED, kv_tokens=300), steps(20), SENT) is None
    copies = predict(replace(SERVED, copies=2), steps(20), SENT)
    assert copies is not None and copies.output_tokens_per_s > 1.3 * found.output_tokens_per_s
    assert found.total_tokens_per_s == pytest.approx(2.1 * found.output_tokens_per_s)


def predicted(project, logs, error=0.15):
    variants = space_of(project.study).variants
    values = {key_of(each.configuration): float(np.exp(log)) for each, log in zip(variants, logs, strict=True)}
    return replace(project, predictions=Predictions(values=values, error=error))


def searched(project, truth):
    """Positions in the order of measurement, the search's winner, and what its last stage left out."""
    variants = space_of(project.study).variants
    at_of, seen = {key_of(each.configuration): at for at, each in enumerate(variants)}, []
    draw = np.random.default_rng(3)

    def measure(configuration, load, start):
        seen.append(at_of[key_of(configuration)])
        return Measured([100 * float(np.exp(truth[seen[-1]] + draw.normal(0, 0.01))) for _ in range(2)], 60.0)

    past = run_search(project, measure)
    return list(dict.fromkeys(seen)), at_of[key_of(past[-1].winner.configuration)], past


@pytest.fixture(scope="module")
def truth(project):
    draw = np.random.default_rng(5)
    return draw.uniform(-0.5, 0.5, len(space_of(project.study)))


def test_a_right_prior_finds_the_best_first_and_leaves_out_what_is_far_slower(project, truth):
    order, winner, past = searched(predicted(project, truth), truth)
    best = int(truth.argmax())
    assert order[1] == best and truth[winner] == pytest.approx(truth[best], abs=0.03)
    lines = next(stage.decision.predicted for stage in reversed(past) if stage.decision.predicted)
    assert lines and all(line.endswith("%, not measured") and "predicted -" in line for line in lines)
    names = [each.name for each in space_of(project.study).variants]
    left = {names.index(line.rsplit(": ", 1)[0]) for line in lines}
    assert 0 not in left and not left & set(order) and best not in left


@pytest.fixture(scope="module")
def without(project, truth):
    """As `searched`, without a prior."""
    return searched(project, truth)


@pytest.mark.parametrize("wrong", ["shuffled", "reversed", "scaled"])
def test_a_wrong_prior_loses_nothing(project, truth, without, wrong):
    logs = {"shuffled": np.random.default_rng(1).permutation(truth), "reversed": -truth, "scaled": 3 + 2 * truth}[wrong]
    order, winner, past = searched(predicted(project, logs), truth)
    order_without, winner_without, _ = without
    assert truth[winner] >= truth[winner_without] - 0.03
    assert len(order) <= 1.2 * len(order_without) + 1
    if wrong != "scaled":
        assert not past[-1].decision.predicted


def test_nothing_is_left_out_between_engines_nor_before_the_prior_is_confirmed(project):
    variants = [each.configuration for each in space_of(project.study).variants]
    engines = [each.model_copy(update={"engine": "a" if at % 2 else "b"}) for at, each in enumerate(variants)]
    values = {key_of(each): 100.0 if each.engine == "a" else 10.0 for each in engines}
    prior = Prior(Predictions(values=values, error=0.1), engines, space_of(project.study).levels, 1)
    assert not prior.left_out(1.0, 20).any() and (prior.below_best() == 1).all()
    values[key_of(engines[3])] = 60.0
    prior = Prior(Predictions(values=values, error=0.1), engines, space_of(project.study).levels, 1)
    assert np.flatnonzero(prior.left_out(1.0, 20)).tolist() == [3]
    assert not prior.left_out(0.5, 20).any() and not prior.left_out(1.0, 2).any()


@pytest.fixture(scope="module")
def h100(tmp_path_factory):
    """The study of Qwen3-32B with a prior, and predictions of a roofline for it."""
    content = read_yaml(ROOT / "config/studies/qwen3-32b-h100.yaml")
    content |= {"search": {"strategy": "adaptive", "prior": "kernel-timings"}}
    file = tmp_path_factory.mktemp("h100") / "qwen3-32b-h100.yaml"
    file.write_text(yaml.safe_dump(content, sort_keys=False))
    config = read_yaml(ROOT / "config/recorded/qwen3-32b-h100/study.yaml")["model"]["config"]
    return load_project(file, ROOT), predictions_of(load_project(file, ROOT), None, config)


def test_a_roofline_predicts_without_tables(h100):
    project, found = h100
    assert len(found.values) == len(space_of(project.study)) and found.error == 0.35
    assert {(each.source, each.error_percent) for each in found.figures.values()} == {("roofline", 99)}
    speed = {each.name: found.values[key_of(each.configuration)] for each in space_of(project.study).variants}
    assert speed["FP8"] > speed["vLLM"] > 1000
    content = read_yaml(project.file) | {"search": {"strategy": "staged", "prior": "kernel-timings"}}
    staged = project.file.with_name("staged") / project.file.name
    staged.parent.mkdir()
    staged.write_text(yaml.safe_dump(content, sort_keys=False))
    with pytest.raises(ConfigError, match=r"search.prior: staged does not use it"):
        load_project(staged, ROOT)


def test_a_plan_shows_predictions_in_a_colour_of_their_own_and_plans_by_them(h100, tmp_path, monkeypatch):
    project, found = h100
    made = "servelab run qwen3-32b-h100 -- results/studies/qwen3-32b-h100/predicted.json"
    monkeypatch.chdir(tmp_path)
    assert forecast(project, Path("results")).lines()[-2:] == [
        f"  predicted, not measured: 0 {HEAD}",
        f"    not yet; without an accelerator: {made}",
    ]
    file = tmp_path / made.rpartition(" ")[2]
    file.parent.mkdir(parents=True)
    found.model_copy(update={"refused": ["vllm fp8_block: a reason"]}).write(file)
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    plan = forecast(project, Path("results"))
    head, first, *others, refused = [line for line in plan.lines() if "\033[35m" in line]
    assert head == f"  \033[35mpredicted, not measured: 8 {HEAD}\033[0m" and len(others) == 7
    assert "tokens/s, TTFT " in first and ", ± 99 % by roofline" in first
    assert refused == "  \033[35m  not used: vllm fp8_block: a reason\033[0m"
    best = max(found.values, key=found.values.__getitem__)
    names = {key_of(each.configuration): each.name for each in space_of(project.study).variants}
    assert next(iter(plan.predicted.figures)) == names[best]
    (design, *_) = follow(project, Path("results"))
    assert [each.candidate for each in design.plan.candidates][1] == names[best]
    assert next(follow(project, tmp_path / "none")).plan != design.plan
    unpriored = load_project(ROOT / "config/studies/qwen3-32b-h100.yaml", ROOT)
    assert forecast(unpriored, Path("results")).predicted is None
    file.write_text("{}")  # of another version
    assert "not yet" in forecast(project, Path("results")).lines()[-1]


def test_a_model_that_nothing_knows_is_said_and_a_silent_source_changes_no_predictions(h100, monkeypatch):
    project, _ = h100
    answers = iter([Probe(False, "no such repository", "check `id`"), Probe(None, "no answer", "try again")])
    monkeypatch.setattr(MODEL_PROBES, "get", lambda kind: lambda source, time_s: next(answers))
    found = predictions_of(project, None)
    assert not found.figures and found.refused == [
        "Qwen/Qwen3-32B: neither the tables nor its source have a config.json that is known"
    ]
    with pytest.raises(Outage, match="no answer; try again"):
        predictions_of(project, None)


def test_an_engine_without_one_of_its_tables_is_predicted_by_a_roofline_alone(h100, monkeypatch):
    project, roofline = h100
    config = read_yaml(ROOT / "config/recorded/qwen3-32b-h100/study.yaml")["model"]["config"]

    def tables(project, python, served, config, sent):
        known = [each for each in served if each.engine != "vllm" or each.weights == "bfloat16"]
        return {_key(query_of(each, "Qwen/Qwen3-32B", config, sent)): steps(20) for each in known}, []

    monkeypatch.setattr(predict_study, "_tables", tables)
    found = predictions_of(project, Path("python"), config)
    by = {json.loads(key)["engine"]: figure.source for key, figure in found.figures.items()}
    assert by == {"vllm": "roofline", "sglang": "kernel-timings", "tensorrt-llm": "kernel-timings"}
    vllm = {key: value for key, value in roofline.values.items() if json.loads(key)["engine"] == "vllm"}
    assert vllm.items() <= found.values.items()


def test_an_archive_has_predictions_and_no_file_of_an_earlier_workflow(tmp_path):
    here = ("predicted.json", "study.json", "stages/first/plan.json", "stages/first/rounds.parquet")
    for name in (*here, "other.json", "stages/first/timeline.parquet", "stages/gone/plan.json"):
        file = tmp_path / "studies/a" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("{}")
    found = [
        file.relative_to(tmp_path / "studies/a").as_posix() for file in _own_files(tmp_path, "studies/a", ["first"])
    ]
    assert found == sorted(here)
