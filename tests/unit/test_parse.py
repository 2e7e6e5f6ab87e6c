"""A stage's tables from the folders of its runs: figures, what the checks made of them, and what broken folders say."""

import json

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from made_run import ROUNDS, records, spec, telemetry

from servelab import schemas
from servelab.clients import LoadStats
from servelab.errors import ServelabError
from servelab.parse import TABLES, parse_plan
from servelab.plan import baseline, plan_stage
from servelab.validity import CHECKS

OK = {"outcome": "ok", "reason": None, "message": None, "rounds": ROUNDS, "success_rate": 1.0}
OK |= {"accelerator_s": 30.0, "load_s": 12.0}
STATS = [LoadStats(wall_s=4.0, cpu_s=0.2, unread_p99_ms=0.4).model_dump(mode="json")] * ROUNDS


@pytest.fixture
def stage(study_content, make_project, tmp_path):
    """A stage whose runs all went well, and the folder of its runs."""
    project = make_project(study_content)
    plan = plan_stage(project, "sequences", baseline(project))
    for run_id in plan.run_ids():
        write(tmp_path / "runs" / run_id)
    return project.study, plan, tmp_path / "runs"


def write(folder, rows=None, sampled=True, **status):
    folder.mkdir(parents=True, exist_ok=True)
    rows = records(spec().protocol) if rows is None else rows
    pq.write_table(pa.Table.from_pylist(rows, schema=schemas.RUN_REQUESTS), folder / "requests.parquet")
    (folder / "status.json").write_text(json.dumps(OK | {"server_starts": 1, "client_rounds": STATS} | status))
    if sampled:
        samples = pa.Table.from_pandas(telemetry(rows), schema=schemas.TELEMETRY, preserve_index=False)
        pq.write_table(samples, folder / "telemetry.parquet")


def parsed(stage):
    return {name: table.to_pandas() for name, table in parse_plan(*stage).items()}


def test_every_run_has_every_check_and_a_timeline(stage):
    tables = parsed(stage)
    assert set(tables) == set(TABLES)
    for run_id in stage[1].run_ids():
        checks = tables["checks"][tables["checks"]["run_id"] == run_id]
        assert sorted(checks["check"]) == CHECKS.names()
        assert set(tables["timeline"][tables["timeline"]["run_id"] == run_id]["round"]) == set(range(ROUNDS))
    assert list(tables["table"]["validity"]) == ["ok"] * len(stage[1].candidates)
    assert tables["table"]["validity_note"].isna().all()


def test_what_a_check_found_is_in_the_candidates_row(stage):
    _, plan, runs = stage
    busy = [row | {"first_token_s": row["last_token_s"], "chunk_gaps_ms": []} for row in records(spec().protocol)]
    first, second = plan.run_ids()[:2]
    write(runs / first, busy)
    write(runs / second, server_starts=ROUNDS + 2)
    table = parsed(stage)["table"].set_index("run_id")
    assert table.loc[first, "validity"] == "invalid" and "zero itl: 120 of 120" in table.loc[first, "validity_note"]
    assert table.loc[second, "validity_note"] == "server restarted: 5 starts of the server for 3 rounds"


def test_a_failed_run_has_no_checks(stage):
    _, plan, runs = stage
    failed = plan.run_ids()[1]
    write(runs / failed, [], outcome="failed", reason="crashed", message="the telling line", success_rate=0.0)
    tables = parsed(stage)
    row = tables["table"].set_index("run_id").loc[failed]
    assert row["outcome"] == "failed" and pd.isna(row["validity"])
    assert failed not in set(tables["checks"]["run_id"]) | set(tables["metrics"]["run_id"])


def test_a_run_without_telemetry_says_what_could_not_be_looked_at(stage):
    _, plan, runs = stage
    bare = plan.run_ids()[0]
    (runs / bare / "telemetry.parquet").unlink()
    write(runs / bare, sampled=False, client_rounds=[])
    checks = parsed(stage)["checks"]
    levels = checks[checks["run_id"] == bare].set_index("check")["level"]
    assert {levels[name] for name in ("busy_machine", "clocks_throttled", "client_cpu")} == {"not applicable"}
    assert levels["failed_requests"] == "ok"


@pytest.mark.parametrize("name", ["status.json", "requests.parquet", "telemetry.parquet"])
def test_a_broken_run_folder_is_named(stage, name):
    _, plan, runs = stage
    (runs / plan.run_ids()[0] / name).write_text("no")
    with pytest.raises(ServelabError, match=rf"{plan.run_ids()[0]}: not a complete run .* remove the folder"):
        parse_plan(*stage)


def test_several_processes_parse_as_one_does(stage, monkeypatch):
    alone = parse_plan(*stage)
    monkeypatch.setattr("servelab.parse._RUNS_A_PROCESS", 1)
    assert parse_plan(*stage, processes=2) == alone
    _, plan, runs = stage
    (runs / plan.run_ids()[0] / "requests.parquet").write_text("no")
    with pytest.raises(ServelabError, match=f"{plan.run_ids()[0]}: not a complete run"):
        parse_plan(*stage, processes=2)
