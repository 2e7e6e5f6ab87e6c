"""Versions of an engine side by side, from folders of runs: order, figures, verdicts, and the answers kept."""

import json

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from made_results import write_run as write
from made_run import ROUNDS, records

from servelab import schemas
from servelab.answers import Answer, make_answer, question_id, read_answers, study_versions, versions_id
from servelab.errors import ServelabError
from servelab.history import answers_table, build_history
from servelab.parse import parse_plan
from servelab.past_runs import PastTimes, configuration_id, past_runs
from servelab.plan import baseline, plan_stage
from servelab.statistics import ratio_ci95
from servelab.study import COMPARISON

OLDER = {"version": "2026.9.11063", "environment_sha256": "0" * 64}
OLDEST = {"version": "2026.2.1", "environment_sha256": "1" * 64}
CRASHED = {"outcome": "failed", "reason": "crashed", "message": "Segmentation fault", "rounds": 0, "success_rate": 0.0}


@pytest.fixture
def project(study_content, make_project):
    return make_project(study_content)


@pytest.fixture
def plans(project):
    stages = [stage.name for stage in project.study.stages]
    return [plan_stage(project, stage, baseline(project)) for stage in [*stages, COMPARISON]]


def at(spec, **engine):
    """The same specification at another version of its engine."""
    return spec.model_copy(update={"engine": spec.engine.model_copy(update=engine)})


def planned(plans, stage=0):
    """Specifications of a stage's candidates, in order."""
    return [run.spec for candidate in plans[stage].candidates for run in candidate.runs]


def rows(project, plans, runs):
    table = build_history(project, plans, runs)
    assert table.schema.equals(schemas.HISTORY)
    return table.to_pandas().to_dict("records")


def test_one_version_has_no_history(project, plans, tmp_path):
    for spec in planned(plans):
        write(tmp_path, spec)
    assert rows(project, plans, tmp_path) == []


def test_a_faster_version_is_better_by_the_figures_of_both_runs(project, plans, tmp_path):
    now = planned(plans)[0]
    before, after = write(tmp_path, at(now, **OLDER), seed=1), write(tmp_path, now, pace=1.25, day=9)
    (row,) = rows(project, plans, tmp_path)
    assert (row["version_before"], row["version_after"]) == ("2026.9.11063", "2026.10.11549")
    assert (row["run_id_before"], row["run_id_after"]) == (before.name, after.name)
    assert (row["candidate"], row["workload"], row["engine"]) == ("baseline", "cpu-sharegpt", "llama.cpp")
    assert row["configuration_id"] == configuration_id(now.model_dump(mode="json"))
    assert row["measured_at_after"] == "2026-11-09T12:00:00+00:00"
    assert row["verdict"] == "better"

    def rates(folder):
        frame = pd.read_parquet(folder / "requests.parquet")
        tokens = frame["input_tokens"] + frame["output_tokens"]
        rounds = [part for _, part in frame.groupby("round")]
        return [tokens[part.index].sum() / (part["end_s"].max() - part["sent_s"].min()) for part in rounds]

    change = ratio_ci95(rates(before), rates(after))
    assert row["value_after"] == pytest.approx(sum(rates(after)) / ROUNDS)
    assert row["change_percent"] == pytest.approx(change.value)
    assert row["change_ci95_low_percent"] == pytest.approx(change.low)
    assert row["change_ci95_low_percent"] < row["change_percent"] < row["change_ci95_high_percent"]
    assert row["ci95_low_before"] < row["value_before"] < row["ci95_high_before"]


@pytest.mark.parametrize(("pace", "verdict"), [(0.8, "worse"), (1.001, "no difference"), (1.25, "better")])
def test_verdicts_are_those_that_decide_a_stage(pace, verdict, project, plans, tmp_path):
    now = planned(plans)[0]
    write(tmp_path, at(now, **OLDER))
    write(tmp_path, now, pace=pace, seed=1)
    (row,) = rows(project, plans, tmp_path)
    assert row["verdict"] == verdict


def test_versions_are_in_the_order_of_packages_not_of_text_or_time(project, plans, tmp_path):
    now = planned(plans)[0]
    for day, spec in enumerate((now, at(now, **OLDEST), at(now, **OLDER)), 1):
        write(tmp_path, spec, day=day)
    found = [(row["version_before"], row["version_after"]) for row in rows(project, plans, tmp_path)]
    assert found == [("2026.2.1", "2026.9.11063"), ("2026.9.11063", "2026.10.11549")]


def test_one_version_in_two_environments_is_in_order_of_time(project, plans, tmp_path):
    now = planned(plans)[0]
    write(tmp_path, now, day=2)
    write(tmp_path, at(now, environment_sha256="2" * 64), day=1)
    (row,) = rows(project, plans, tmp_path)
    assert (row["version_before"], row["environment_sha256_before"]) == (row["version_after"], "2" * 64)


@pytest.mark.parametrize(
    ("before", "after", "verdict", "why"),
    [
        ({}, CRASHED, "new failure", "crashed: Segmentation fault"),
        (CRASHED, {}, "fixed failure", "before: crashed: Segmentation fault"),
        (CRASHED, CRASHED, "still fails", "crashed: Segmentation fault"),
        (
            CRASHED,
            CRASHED | {"reason": "out_of_memory", "message": "no memory"},
            "still fails",
            "out_of_memory: no memory (before: crashed: Segmentation fault)",
        ),
    ],
)
def test_failures_are_new_fixed_or_the_same(before, after, verdict, why, project, plans, tmp_path):
    now = planned(plans)[1]
    write(tmp_path, at(now, **OLDER), **before)
    write(tmp_path, now, **after)
    (row,) = rows(project, plans, tmp_path)
    assert (row["verdict"], row["why"]) == (verdict, why)
    assert pd.isna(row["change_percent"])
    assert (row["outcome_before"], row["outcome_after"]) == tuple("failed" if s else "ok" for s in (before, after))


def test_an_invalid_run_is_not_compared_and_says_why(project, plans, tmp_path):
    now = planned(plans)[0]
    folder = write(tmp_path, at(now, **OLDER))
    busy = [row | {"first_token_s": row["last_token_s"], "chunk_gaps_ms": []} for row in records(now.protocol)]
    pq.write_table(pa.Table.from_pylist(busy, schema=schemas.RUN_REQUESTS), folder / "requests.parquet")
    write(tmp_path, now)
    (row,) = rows(project, plans, tmp_path)
    assert (row["verdict"], row["outcome_before"], row["validity_before"]) == ("not comparable", "invalid", "invalid")
    assert row["why"].startswith("before: invalid: ")


def test_an_option_that_the_new_version_refuses_is_a_new_failure(study_content, make_project, tmp_path):
    study_content["engines"]["vllm"] = {"version": "0.32.0"}  # has the option that llama.cpp lacks
    study_content["stages"][0]["candidates"].append({"options": {"expert_parallel": True}})
    project = make_project(study_content)
    plan = plan_stage(project, "sequences", baseline(project))
    refused = plan.candidates[-1]
    assert refused.refused and not refused.runs
    spec = at(plan.candidates[0].runs[0].spec, **OLDER).model_copy(update={"options": {"expert_parallel": True}})
    write(tmp_path, spec)
    (row,) = rows(project, [plan], tmp_path)
    assert (row["verdict"], row["outcome_after"]) == ("new failure", "refused")
    assert pd.isna(row["run_id_after"])
    assert row["version_after"] == "2026.10.11549"
    assert "expert_parallel" in row["why"]


def test_another_machine_is_told(project, plans, tmp_path):
    now = planned(plans)[0]
    write(tmp_path, at(now, **OLDER), kernel="5.10")
    write(tmp_path, now)
    (row,) = rows(project, plans, tmp_path)
    assert row["machine_changes"] == "kernel 5.10 → 6.1"


@pytest.mark.parametrize("part", ["arguments", "options", "environment_variables", "protocol", "objective"])
def test_a_run_that_differs_in_anything_else_is_not_compared(part, project, plans, tmp_path):
    now = planned(plans)[0]
    changed = {
        "arguments": {"--mlock": None},
        "options": {"threads": 1},
        "environment_variables": {"A": "1"},
        "protocol": now.protocol.model_copy(update={"warmup_requests": 3}),
        "objective": "output_tokens_per_s",
    }
    write(tmp_path, at(now, **OLDER).model_copy(update={part: changed[part]}))
    write(tmp_path, now)
    assert rows(project, plans, tmp_path) == []


def test_a_specification_of_another_shape_is_another_configuration(project, plans, tmp_path):
    """Defaults of today are not read into runs of yesterday."""
    now = planned(plans)[0]
    folder = write(tmp_path, at(now, **OLDER))
    spec = json.loads((folder / "spec.json").read_text())
    del spec["protocol"]["settle_requests"]
    (folder / "spec.json").write_text(json.dumps(spec))
    write(tmp_path, now)
    assert rows(project, plans, tmp_path) == []


def test_what_is_no_run_is_left_out_and_a_broken_one_is_named(project, plans, tmp_path):
    now = planned(plans)[0]
    older = write(tmp_path, at(now, **OLDER))
    write(tmp_path, now)
    for name in ("a" * 20, f".{'b' * 20}.part"):
        (tmp_path / name).mkdir()
    (tmp_path / ("c" * 20)).mkdir()
    (tmp_path / ("c" * 20) / "spec.json").write_text("{")
    (tmp_path / ("c" * 20) / "status.json").write_text("{}")
    assert len(list(past_runs(tmp_path))) == 2
    (older / "requests.parquet").write_text("no table")
    with pytest.raises(ServelabError, match=f"{older.name}: not a complete run"):
        build_history(project, plans, tmp_path)


def test_time_is_told_from_the_runs_most_alike(project, plans, tmp_path):
    first, second, third = planned(plans)[:3]
    write(tmp_path, at(first, **OLDER), **CRASHED, accelerator_s=10.0)
    write(tmp_path, at(second, **OLDER), **CRASHED, accelerator_s=20.0)
    times = PastTimes(tmp_path)
    assert times.about_s(first) == 10.0  # the same configuration
    assert times.about_s(third) == 15.0  # the same engine and shape
    assert times.about_s(at(third, name="vllm")) == 15.0  # the same shape
    other = third.protocol.model_copy(update={"warmup_requests": 9})
    assert times.about_s(third.model_copy(update={"protocol": other})) is None
    assert not PastTimes(tmp_path / "nowhere")


@pytest.fixture
def answered(project, plans, tmp_path):
    """The study with all runs of its first stage, and its answer: the second candidate."""
    runs = tmp_path / "runs"
    for day, spec in enumerate(planned(plans), 1):
        write(runs, spec, day=day)
    table = parse_plan(project.study, plans[0], runs)["table"].to_pandas()
    start, winner = table.iloc[0], table.iloc[1]
    recommended = {
        "engine": "llama.cpp",
        "engine_version": "2026.10.11549",
        "command": "llama-server",
        "configuration": {"options": {"max_num_seqs": 8}},
        "objective": "total_tokens_per_s",
        "per": "accelerator",
        "improvements": [{"workload": "cpu-sharegpt", "change_percent": 5.0}],
        "run_id": winner["run_id"],
        "baseline_run_id": start["run_id"],
    }
    return make_answer(project, recommended, winner["candidate"], table, runs), winner


def test_an_answer_has_the_winners_figure_and_when_it_was_measured(answered):
    answer, winner = answered
    assert answer.value == winner["objective_value"]
    assert answer.measured_at == "2026-11-02T12:00:00+00:00"
    assert answer.winner == winner["candidate"]


def test_answers_are_kept_apart_by_versions_and_compared_in_their_order(answered, project, tmp_path):
    now, _ = answered
    engine = now.versions["llama.cpp"].model_copy(update=OLDER)
    other = now.recommended | {"configuration": {"options": {}}}
    older = now.model_copy(update={"versions": {"llama.cpp": engine}, "winner": "baseline", "recommended": other})
    for answer in (now, older):
        (tmp_path / f"{versions_id(answer.versions)}.json").write_text(answer.model_dump_json())
    answers = read_answers(tmp_path)
    assert answers == {versions_id(now.versions): now, versions_id(older.versions): older}
    table = answers_table(project, answers)
    assert table.schema.equals(schemas.ANSWERS)
    found = table.to_pandas()
    assert list(found["versions"]) == ["llama.cpp 2026.9.11063", "llama.cpp 2026.10.11549"]
    assert list(found["is_current"]) == [False, True]
    assert list(found["winner_changed"]) == [None, True]
    assert list(found["same_question"]) == [True, True]
    assert list(found["change_percent"]) == [5.0, 5.0]


def test_another_question_is_told_and_another_title_is_none(study_content, make_project):
    project = make_project(study_content)
    titled = make_project(study_content | {"title": "Another title"})
    assert question_id(titled) == question_id(project)
    asked = make_project(study_content | {"protocol": {"warmup_requests": 9}})
    assert question_id(asked) != question_id(project)
    assert versions_id(study_versions(asked)) == versions_id(study_versions(project))


def test_a_broken_answer_is_named(tmp_path):
    (tmp_path / "x.json").write_text("{}")
    with pytest.raises(ServelabError, match=r"x\.json: not an answer of a study"):
        read_answers(tmp_path)
    assert set(Answer.model_fields) >= {"versions", "question", "recommended"}
