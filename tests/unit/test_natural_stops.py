"""Answers that end by themselves: what is sent, what is an error, what is compared, and how it is marked."""

from __future__ import annotations

import math

import made_run
import pandas as pd
import pyarrow as pa
import pytest
from made_study import stage_rows
from servers.made_load import load

from servelab.core.errors import ConfigError
from servelab.core.identity import run_id
from servelab.engines.adapters import ENGINES
from servelab.measure.session import _body
from servelab.measure.telemetry import server as server_source
from servelab.metrics.definitions import METRICS, Round
from servelab.metrics.tables import schemas
from servelab.metrics.tables.io import record_array
from servelab.metrics.timeline import LENGTH_DEPENDENT
from servelab.report.comparison_section import sides_table
from servelab.search.candidates_table import describe
from servelab.search.decide import decide_stage
from servelab.search.proof_plan import judge
from servelab.study.plan import Plan
from servelab.study.study import CONFIRM

NATURAL = "cpu-sharegpt-natural"


def natural_spec():
    spec = made_run.spec()
    parameters = {**spec.workload.parameters, "ignore_eos": False}
    return spec.model_copy(update={"workload": spec.workload.model_copy(update={"parameters": parameters})})


def test_what_forces_the_length_is_not_sent():
    forced = made_run.spec()
    body = {"ignore_eos": True, "top_k": 1}
    forced = forced.model_copy(update={"served": forced.served.model_copy(update={"request_body": body})})
    natural = forced.model_copy(update={"workload": natural_spec().workload})
    assert _body(forced) == body and _body(natural) == {"top_k": 1}
    assert not forced.natural_stops and natural.natural_stops and run_id(forced) != run_id(natural)
    assert all("ignore_eos" in ENGINES.get(name).request_body for name in ENGINES.names())


@pytest.mark.parametrize("metric", sorted(LENGTH_DEPENDENT.keys() - {"capacity_per_s", "goodput_per_s"}))
def test_a_figure_that_depends_on_lengths_is_refused_as_objective(metric, study_content, make_project):
    study_content["workloads"] = [NATURAL]
    study_content["objective"] |= {"metric": metric, "on": NATURAL, "constraints": {}}
    study_content["hardware"]["price_per_accelerator_hour"] = 1.0
    with pytest.raises(ConfigError, match=rf"objective.metric: `{metric}` depends .*use `{LENGTH_DEPENDENT[metric]}`"):
        make_project(study_content)
    study_content["objective"]["metric"] = LENGTH_DEPENDENT[metric]
    assert make_project(study_content).has_natural_stops(NATURAL)


def rows_of(stage, lengths, workload=NATURAL):
    table, rounds = stage_rows(
        {"baseline": [100.0, 101.0, 99.0], "winner": [120.0, 121.0, 119.0]}, stage=stage, workload=workload
    )
    return table.assign(natural_length_tokens=lengths), rounds


@pytest.fixture
def natural_study(study_content, make_project):
    study_content["workloads"] = [NATURAL]
    study_content["objective"] |= {"metric": "output_tokens_per_s", "on": NATURAL, "constraints": {}}
    return make_project(study_content).study


def test_verdict_proof_and_report_say_how_long_answers_are(natural_study):
    table, _ = rows_of("stage", [80.0, 60.0])
    plan = Plan(study="s", stage="stage", title="", applies=True, reason="", candidates=[])
    said = "answers end by themselves: 60 output tokens a request, the {} 80 (-25 %)"
    assert decide_stage(natural_study, plan, table).candidates[1].why.endswith(said.format("incumbent's"))
    proof, _ = rows_of(CONFIRM, [80.0, 60.0])
    assert judge(natural_study, proof, None).why.endswith(said.format("baseline's"))
    summary = describe(natural_study, {NATURAL: "ShareGPT"})
    metrics = pd.DataFrame(
        [
            {"run_id": proof["run_ids"][1][0], "metric": name, "mean": value}
            for name, value in (("draft_acceptance_percent", 62.0), ("draft_accepted_length_tokens", 2.4))
        ]
    )
    rows = {row[0].text: [cell.text for cell in row[1:]] for row in sides_table(summary, proof, metrics, {}).rows}
    assert rows["Answers that end by themselves"][0].startswith("80.0 output tokens; only figures of an output token")
    assert rows["Tokens drafted ahead"] == ["–", "62.0 % accepted, 2.40 tokens a step"]
    without = sides_table(summary, proof, metrics.assign(mean=math.nan), {}).rows
    assert "Tokens drafted ahead" not in {row[0].text for row in without}


PAGES = {
    "vllm": """vllm:spec_decode_num_drafts_total{engine="0"} %d
vllm:spec_decode_num_draft_tokens_total{engine="0"} %d
vllm:spec_decode_num_accepted_tokens_total{engine="0"} %d
""",
    "llama.cpp": """llamacpp:spec_decode_num_drafts_total %d
llamacpp:spec_decode_num_draft_tokens_total %d
llamacpp:spec_decode_num_accepted_tokens_total %d
""",
}


def observed(readings):
    """Both metrics of a round with these (time, reading)."""
    rows = [
        {"round": 0, "time_s": time, "metric": each.metric, "value": each.value, "source": "server"}
        for time, page in readings
        for each in page
    ]
    samples = record_array(pa.Table.from_pylist(rows, schema=schemas.TELEMETRY))
    data = Round(record_array(schemas.RUN_REQUESTS.empty_table()), telemetry=samples)
    names = ("draft_acceptance_percent", "draft_accepted_length_tokens")
    return [METRICS.get(name).observe(data).tolist() for name in names]


@pytest.mark.parametrize("engine", PAGES)
def test_what_drafts_gave_is_counted_during_the_load(engine):
    names = ENGINES.get(engine).metric_names
    pages = [(-1.0, (7, 21, 9)), (0.0, (10, 30, 12)), (5.0, (20, 60, 30)), (9.0, (60, 180, 72))]
    read = [(time, server_source.parse(PAGES[engine] % counts, names)) for time, counts in pages]
    assert observed(read) == [[pytest.approx(100 * 60 / 150)], [pytest.approx(1 + 60 / 50)]]
    nothing = [(time, server_source.parse(PAGES[engine] % (0, 0, 0), names)) for time, _ in pages]
    assert observed(nothing) == [[], []]


def test_a_shorter_answer_is_an_error_where_lengths_are_set(tmp_path, server):
    for natural_stops, errors in ((False, ["output_length: 5 tokens instead of 6"]), (True, [None])):
        records = load(tmp_path, server, ["too short"], natural_stops=natural_stops)
        assert [record["error"] for record in records] == errors
