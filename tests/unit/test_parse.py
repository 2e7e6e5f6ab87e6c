"""A stage's tables from the folders of its runs: figures, what the checks made of them, and what broken folders say."""

import statistics

import made_run
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from made_run import ROUNDS, records, spec, telemetry

from servelab.core.errors import ServelabError
from servelab.metrics.tables import schemas
from servelab.results.checks import CHECKS
from servelab.results.parse import TABLES, parse_plan
from servelab.search.planning import plan_stage
from servelab.study.configuration import baseline


@pytest.fixture
def stage(study_content, make_project, tmp_path):
    """A stage whose runs all went well, and the folder of its runs."""
    project = make_project(study_content)
    plan = plan_stage(project, "sequences", baseline(project.study))
    for run_id in plan.run_ids():
        write(tmp_path / "runs" / run_id)
    return project.study, plan, tmp_path / "runs"


def write(folder, rows=None, sampled=True, busy=None, **status):
    folder.mkdir(parents=True, exist_ok=True)
    rows = records(spec().protocol) if rows is None else rows
    pq.write_table(pa.Table.from_pylist(rows, schema=schemas.RUN_REQUESTS), folder / "requests.parquet")
    made_run.status(load_s=12.0, **status).write(folder / "status.json")
    if sampled:
        samples = pa.Table.from_pandas(telemetry(rows, **(busy or {})), schema=schemas.TELEMETRY, preserve_index=False)
        pq.write_table(samples, folder / "telemetry.parquet")


def parsed(stage):
    return {name: table.to_pandas() for name, table in parse_plan(*stage).items()}


def test_every_run_has_every_check(stage):
    tables = parsed(stage)
    assert set(tables) == set(TABLES)
    for run_id in stage[1].run_ids():
        checks = tables["checks"][tables["checks"]["run_id"] == run_id]
        assert sorted(checks["check"]) == CHECKS.names()
    assert list(tables["table"]["validity"]) == ["ok"] * len(stage[1].candidates)
    assert tables["table"]["validity_note"].isna().all()


def test_every_table_has_one_mean_of_a_latency_whatever_the_size_of_its_rounds(study_content, make_project, tmp_path):
    """A round of 40 answers, and two of 10 that take 1 and 2 s longer: over requests the mean would be half."""
    study_content["objective"] |= {"metric": "ttft_ms"}
    project = make_project(study_content)
    plan = plan_stage(project, "sequences", baseline(project.study))
    rows = [
        row | {name: row[name] + row["round"] for name in ("first_token_s", "last_token_s", "end_s")}
        for row in records(spec().protocol)
        if row["round"] == 0 or row["request_index"] < 10
    ]
    for run_id in plan.run_ids():
        write(tmp_path / run_id, rows, sampled=False)
    tables = {name: table.to_pandas() for name, table in parse_plan(project.study, plan, tmp_path).items()}
    of_run = {name: table[table["run_id"] == plan.run_ids()[0]] for name, table in tables.items()}
    metric = of_run["metrics"].set_index("metric").loc["ttft_ms"]
    values = of_run["rounds"].set_index("metric").loc["ttft_ms", "value"]
    assert metric["n"] == 60 and metric["mean"] > 1000
    assert metric["mean"] == pytest.approx(values.mean())
    row = of_run["table"].iloc[0]
    assert row["objective_value"] == row["ttft_ms_mean"] == metric["mean"]
    assert (row["objective_ci95_low"] + row["objective_ci95_high"]) / 2 == pytest.approx(metric["mean"])


@pytest.fixture
def incumbent(stage):
    """Writes the runs of the incumbent, three server starts, and returns its row and the tables."""
    study, plan, runs = stage
    first = plan.candidates[0]
    starts = [first.runs[0].model_copy(update={"start": f"search-{n}", "run_id": f"{n}" * 20}) for n in range(3)]
    plan = plan.model_copy(update={"candidates": [first.model_copy(update={"runs": starts})]})

    def make(*changes):
        for number, change in enumerate(changes):
            pace = change.pop("pace", 1.0)
            rows = [row | {name: row[name] / pace for name in TIMES} for row in records(spec().protocol, number)]
            outcome = change.get("outcome", "ok")
            write(runs / (f"{number}" * 20), [] if outcome == "failed" else rows, job_id=f"job-{number}", **change)
        tables = parsed((study, plan, runs))
        (row,) = tables["table"].to_dict("records")
        return row, tables

    return make


TIMES = ("scheduled_s", "started_s", "sent_s", "first_token_s", "last_token_s", "end_s")
T_2 = 4.30265  # t(0.975, 2), from a printed table


def test_the_starts_of_a_candidate_are_one_row_with_an_interval_over_starts(incumbent):
    row, tables = incumbent({"pace": 1.0}, {"pace": 1.1}, {"pace": 1.3})
    assert row["run_id"] == "0" * 20 and list(row["run_ids"]) == [f"{n}" * 20 for n in range(3)]
    assert list(row["start_labels"]) == ["search-0", "search-1", "search-2"] and row["starts"] == 3
    assert list(row["start_jobs"]) == ["job-0", "job-1", "job-2"] and not any(row["start_delays_percent"])
    rounds = tables["rounds"][tables["rounds"]["metric"] == row["objective"]]
    values = [rounds[rounds["start"] == start]["value"].mean() for start in row["start_labels"]]
    assert list(row["start_values"]) == pytest.approx(values)
    half = T_2 * statistics.stdev(values) / 3**0.5
    mean = statistics.fmean(values)
    found = [row["objective_value"], row["objective_ci95_low"], row["objective_ci95_high"]]
    assert found == pytest.approx([mean, mean - half, mean + half], rel=1e-4)
    ttft = tables["metrics"][tables["metrics"]["metric"] == "ttft_ms"]
    assert row["ttft_ms_p99"] == pytest.approx(ttft["p99"].mean()) and len(ttft) == 3
    assert row["rounds"] == 3 * ROUNDS and row["accelerator_s"] == 90.0 and row["load_accelerator_s"] == 36.0


def test_a_start_that_fails_is_the_candidates_finding(incumbent):
    crash = {"outcome": "failed", "reason": "crashed", "message": "the telling line", "success_rate": 0.0}
    row, _ = incumbent({}, {**crash, "requests": 0}, {})
    assert (row["outcome"], row["reason"]) == ("failed", "crashed")
    assert row["message"] == "the telling line (1 of 3 starts failed: search-1)"
    assert list(row["start_labels"]) == ["search-0", "search-2"] and row["starts"] == 2
    assert len(row["run_ids"]) == 3 and row["success_rate"] == 1.0


def test_the_worst_start_decides_the_validity_and_is_named(incumbent):
    row, _ = incumbent({}, {"server_starts": ROUNDS + 2}, {})
    assert row["validity"] == "invalid"
    assert row["validity_note"] == "search-1: server restarted: 5 starts of the server for 3 rounds"


BUSY = {"others_cpu_percent": 43.0, "delayed_percent": 21.0}


def test_a_disturbed_start_counts_only_if_there_is_no_other(incumbent):
    row, _ = incumbent({}, {}, {"busy": BUSY})
    assert list(row["start_labels"]) == ["search-0", "search-1", "search-2"] and row["starts"] == 2
    assert list(row["start_delays_percent"]) == [0, 0, 21]
    assert pd.isna(row["disturbed"]) and row["validity"] == "suspect"
    assert len(row["run_ids"]) == 3 and row["rounds"] == 3 * ROUNDS
    row, _ = incumbent({"busy": BUSY}, {"busy": BUSY}, {"busy": BUSY})
    assert row["starts"] == 3 and all(row["start_delays_percent"] > 0) and "busy machine" in row["disturbed"]


LATE = {"outcome": "failed", "reason": "round_timeout", "message": "late"}


def test_a_start_that_failed_while_it_was_disturbed_is_no_result(incumbent):
    """It counts only if no start went well, and is then marked; a failure of a quiet one is a result."""
    lost = LATE | {"disturbed": "waited"}
    row, _ = incumbent({}, dict(lost), {})
    assert (row["outcome"], list(row["start_labels"])) == ("ok", ["search-0", "search-2"]) and len(row["run_ids"]) == 3
    row, _ = incumbent(dict(lost), dict(lost), dict(lost))
    assert (row["outcome"], row["disturbed"]) == ("failed", "waited")
    row, _ = incumbent(dict(lost), dict(LATE), dict(lost))
    assert row["outcome"] == "failed" and pd.isna(row["disturbed"])


@pytest.mark.parametrize("name", ["status.json", "requests.parquet", "telemetry.parquet"])
def test_a_broken_run_folder_is_named(stage, name):
    _, plan, runs = stage
    (runs / plan.run_ids()[0] / name).write_text("no")
    with pytest.raises(ServelabError, match=rf"{plan.run_ids()[0]}: not a complete run .* run again"):
        parse_plan(*stage)
