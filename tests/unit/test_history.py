"""Versions of an engine side by side, from folders of runs: order, figures, verdicts, and the answers kept."""

import math
import shutil
from statistics import fmean

import made_results
import made_run
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from made_place import AFTER, BEFORE
from made_results import CRASHED
from made_results import write_run as write
from made_run import records

from servelab.archive.contents import referenced_runs
from servelab.core.errors import ServelabError
from servelab.metrics.tables import schemas
from servelab.metrics.tables.io import write_table
from servelab.results.parse import parse_plan
from servelab.results.past_runs import PastTimes, configuration_id, past_runs
from servelab.search.planning import plan_confirm, plan_stage
from servelab.search.versions import (
    StudyAnswer,
    answers_table,
    build_history,
    make_answer,
    question_id,
    read_answers,
    study_versions,
    versions_id,
)
from servelab.study.configuration import baseline

OLDER = {"version": "2026.9.11063", "environment_sha256": "0" * 64}
OLDEST = {"version": "2026.2.1", "environment_sha256": "1" * 64}


@pytest.fixture
def project(study_content, make_project):
    return make_project(study_content)


@pytest.fixture
def plans(project):
    start = baseline(project.study)
    stages = [plan_stage(project, stage.name, start) for stage in project.study.stages]
    return [*stages, plan_confirm(project, start, 1)]


def at(spec, **engine):
    """The same specification at another version of its engine."""
    return spec.model_copy(update={"engine": spec.engine.model_copy(update=engine)})


def planned(plans, stage=0):
    """Specifications of the first start of a stage's candidates, in order."""
    return [candidate.runs[0].spec for candidate in plans[stage].candidates if candidate.runs]


def rows(project, plans, runs):
    table = build_history(project, plans, runs)
    assert table.schema.equals(schemas.HISTORY)
    return table.to_pandas().to_dict("records")


def test_a_faster_version_is_better_by_the_figures_of_both_runs(project, plans, tmp_path):
    now = planned(plans)[0]
    again = now.model_copy(update={"start": "search-1"})
    before, second = (write(tmp_path, at(each, **OLDER), seed=1 + seed) for seed, each in enumerate((now, again)))
    after = write(tmp_path, now, pace=1.25, day=9)
    (row,) = rows(project, plans, tmp_path)
    assert (row["version_before"], row["version_after"]) == ("2026.9.11063", "2026.10.11549")
    assert (row["run_id_before"], row["run_id_after"]) == (before.name, after.name)
    assert (row["candidate"], row["workload"], row["engine"]) == ("baseline", "cpu-sharegpt", "llama.cpp")
    assert row["configuration_id"] == configuration_id(now.model_dump(mode="json"))
    assert row["measured_at_after"] == "2026-11-09T12:00:00+00:00"
    assert row["verdict"] == "better"

    def rate(folder):
        frame = pd.read_parquet(folder / "requests.parquet")
        tokens = frame["input_tokens"] + frame["output_tokens"]
        rounds = [part for _, part in frame.groupby("round")]
        return fmean(tokens[part.index].sum() / (part["end_s"].max() - part["sent_s"].min()) for part in rounds)

    starts = [rate(before), rate(second)]
    assert row["value_before"] == pytest.approx(fmean(starts)) and row["value_after"] == pytest.approx(rate(after))
    assert row["ci95_low_before"] < row["value_before"] < row["ci95_high_before"]
    assert pd.isna(row["ci95_low_after"])  # one start
    # the noise between starts: 2.5 % with 3 degrees of freedom, and the two starts of the older version
    scatter = (math.log(starts[1]) - math.log(starts[0])) ** 2 / 2
    half = 2.77645 * math.sqrt((3 * 0.025**2 + scatter) / 4 * (1 / 2 + 1))  # t(0.975, 4)
    log = math.log(rate(after)) - fmean(map(math.log, starts))
    change = [row[name] for name in ("change_percent", "change_ci95_low_percent", "change_ci95_high_percent")]
    assert change == pytest.approx([100 * math.expm1(end) for end in (log, log - half, log + half)], rel=1e-4)


def test_starts_of_a_proof_come_before_those_of_the_search(project, plans, tmp_path):
    now = planned(plans)[0]
    write(tmp_path, at(now, **OLDER), pace=1.5)
    proved = [now.model_copy(update={"start": f"proof-{number}"}) for number in range(2)]
    before = [write(tmp_path, at(each, **OLDER), seed=seed) for seed, each in enumerate(proved)]
    write(tmp_path, now, seed=7)
    (row,) = rows(project, plans, tmp_path)
    assert row["run_id_before"] in {folder.name for folder in before}
    assert abs(row["change_percent"]) < 5


def test_a_history_is_the_same_from_only_the_runs_that_it_names(project, plans, tmp_path):
    """As in an archive, which has only these: after an upgrade of a baseline with two starts, and of a proof."""
    first, again = (run.spec for run in plans[0].candidates[0].runs)
    other = planned(plans)[1]
    proved = [other.model_copy(update={"start": f"proof-{number}"}) for number in range(2)]
    specs = [first, again, *proved]
    starts = [write(tmp_path / "all", at(spec, **OLDER), seed=seed) for seed, spec in enumerate(specs)]
    starts += [write(tmp_path / "all", spec, pace=1.1, day=9, seed=9 + seed) for seed, spec in enumerate(specs)]
    write(tmp_path / "all", at(other, **OLDER), pace=3.0)  # of the search, which a proof replaces
    history = build_history(project, plans, tmp_path / "all")
    write_table(history, tmp_path / "history.parquet")
    named = referenced_runs([tmp_path / "history.parquet"])
    assert set(named) == {folder.name for folder in starts}
    for name in named:
        shutil.copytree(tmp_path / "all" / name, tmp_path / "named" / name)
    assert build_history(project, plans, tmp_path / "named").equals(history)


def test_the_server_starts_of_a_version_are_one_side(project, plans, tmp_path):
    first, again = (run.spec for run in plans[0].candidates[0].runs)
    assert (first.start, again.start) == ("search-0", "search-1")
    write(tmp_path, at(first, **OLDER))
    kept = write(tmp_path, first, pace=1.25, day=2)
    write(tmp_path, again, pace=1.75, day=3)
    (row,) = rows(project, plans, tmp_path)
    assert row["run_id_after"] == kept.name and row["verdict"] == "no difference"  # two starts say too little
    assert row["value_after"] == pytest.approx(1.5 * row["value_before"], rel=0.02)  # the mean of 1.25 and 1.75 times
    assert row["ci95_low_after"] < 0 < row["ci95_high_after"]  # of two starts that differ much
    write(tmp_path, at(again, **OLDER), **CRASHED)
    (row,) = rows(project, plans, tmp_path)
    assert row["verdict"] == "fixed failure"  # a server that starts only sometimes is a finding


def test_versions_are_in_the_order_of_packages_not_of_text_or_time(project, plans, tmp_path):
    now = planned(plans)[0]
    for day, spec in enumerate((now, at(now, **OLDEST), at(now, **OLDER)), 1):
        write(tmp_path, spec, day=day)
    found = [(row["version_before"], row["version_after"]) for row in rows(project, plans, tmp_path)]
    assert found == [("2026.2.1", "2026.9.11063"), ("2026.9.11063", "2026.10.11549")]


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
    made_run.seal(folder)
    write(tmp_path, now)
    (row,) = rows(project, plans, tmp_path)
    assert (row["verdict"], row["outcome_before"], row["validity_before"]) == ("not comparable", "invalid", "invalid")
    assert row["why"].startswith("before: invalid: ")


def test_a_past_run_that_was_changed_is_named_and_not_compared(project, plans, tmp_path):
    """Any change: test_seal.py."""
    now = planned(plans)[0]
    folder = write(tmp_path, at(now, **OLDER))
    write(tmp_path, now)
    faster = [row | {"end_s": row["end_s"] / 2} for row in records(now.protocol)]
    pq.write_table(pa.Table.from_pylist(faster, schema=schemas.RUN_REQUESTS), folder / "requests.parquet")
    with pytest.raises(ServelabError, match=rf"{folder.name}: not a complete run \(requests.parquet: was changed"):
        build_history(project, plans, tmp_path)


def test_an_option_that_the_new_version_refuses_is_a_new_failure(study_content, make_project, tmp_path):
    study_content["engines"]["vllm"] = {"version": "0.32.0"}  # has the option that llama.cpp lacks
    study_content["stages"][0]["candidates"].append({"options": {"expert_parallel": True}})
    project = make_project(study_content)
    plan = plan_stage(project, "sequences", baseline(project.study))
    refused = plan.candidates[-1]
    assert refused.refused and not refused.runs
    spec = at(plan.candidates[0].runs[0].spec, **OLDER).model_copy(update={"options": {"expert_parallel": True}})
    write(tmp_path, spec)
    (row,) = rows(project, [plan], tmp_path)
    assert (row["verdict"], row["outcome_after"]) == ("new failure", "refused")
    assert pd.isna(row["run_id_after"])
    assert row["version_after"] == "2026.10.11549"
    assert "expert_parallel" in row["why"]


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
    assert times.of_visit([first]).accelerator_s == 10.0  # the same configuration
    assert times.of_visit([third]).accelerator_s == 15.0  # the same engine and shape
    assert times.of_visit([at(third, name="vllm")]).accelerator_s == 15.0  # the same shape
    other = third.model_copy(update={"protocol": third.protocol.model_copy(update={"warmup_requests": 9})})
    assert times.about_s(other) is times.of_visit([third, other]) is None
    assert not PastTimes(tmp_path / "nowhere")


@pytest.fixture
def answered(project, plans, tmp_path):
    """The study with all runs of its first stage, and its answer: the second candidate."""
    runs = tmp_path / "runs"
    for day, candidate in enumerate(plans[0].candidates, 1):
        for run in candidate.runs:
            write(runs, run.spec, day=day)
    table = parse_plan(project.study, plans[0], runs)["table"].to_pandas()
    start, winner = table.iloc[0], table.iloc[1]
    recommended = made_results.recommended(
        project,
        plans[0],
        change_percent=5.0,
        command="llama-server",
        run_id=winner["run_id"],
        baseline_run_id=start["run_id"],
    )
    return make_answer(project, recommended, winner["candidate"], table, runs), winner


def test_an_answer_says_where_its_winner_was_measured(answered, project, plans, tmp_path):
    """A driver was upgraded between two versions of the engine: the history shows both."""
    now, _ = answered
    engine = now.versions["llama.cpp"].model_copy(update=OLDER)
    before = now.model_copy(update={"versions": {"llama.cpp": engine}, "place": BEFORE})
    table = answers_table(project, {"0" * 20: before, "1" * 20: now.model_copy(update={"place": AFTER})}).to_pylist()
    assert [row["place"] for row in table] == [BEFORE.digest, AFTER.digest]
    assert [row["measured_on"].split(", ")[1] for row in table] == ["driver 550.54.15", "driver 570.86.10"]
    (unknown,) = answers_table(project, {"0" * 20: now.model_copy(update={"place": None})}).to_pylist()
    assert unknown["place"] is unknown["measured_on"] is None


def test_answers_are_kept_apart_by_versions_and_compared_in_their_order(answered, project, plans, tmp_path):
    now, _ = answered
    engine = now.versions["llama.cpp"].model_copy(update=OLDER)
    other = now.recommended.model_copy(update={"configuration": plans[0].candidates[0].configuration})
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
    with pytest.raises(ServelabError, match=r"x\.json: .*; restore it, or remove"):
        read_answers(tmp_path)
    assert set(StudyAnswer.model_fields) >= {"versions", "question", "recommended"}
