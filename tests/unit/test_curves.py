"""Curves: one workload at several loads, each point a run of its own, all of a configuration on one server start."""

import made_run
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from made_results import write_run, write_study
from made_study import demo_study

from servelab.core.errors import ConfigError, ServelabError
from servelab.measure.outcome import Outcome
from servelab.measure.visits import Saturated
from servelab.metrics.tables import schemas
from servelab.metrics.tables.io import read_table, read_tables
from servelab.report.answer_section import _load_text
from servelab.results.curves import MOST_POINTS, condensed, curves_table, device_series
from servelab.results.parse import parse_plan
from servelab.search.candidates_table import describe
from servelab.search.forecast import forecast
from servelab.search.planning import plan_confirm, plan_stage
from servelab.search.proof_plan import judge
from servelab.search.strategies import _sizes
from servelab.study.configuration import Incumbent, apply, baseline
from servelab.study.project import StudySummary
from servelab.study.study import Candidate

ON = "cpu-sharegpt"
CLOSED = {"max_concurrency": [4, 1, 16]}
RATES = {"request_rate": [1, 2, 4]}


def with_curve(load, on=ON, others=(), **changes):
    """The demo study with a curve on the workload that decides, one stage and no recheck."""
    content = demo_study()
    content["workloads"] = [{"name": ON, "load": load}, *others]
    content["objective"]["on"] = on
    content["stages"] = content["stages"][:1]
    content["search"] = {"strategy": "staged", "recheck": False}
    return content | changes


def first_stage(project):
    return plan_stage(project, project.study.stages[0].name, baseline(project.study))


def levels(runs):
    return [run.spec.protocol.max_concurrency or run.spec.protocol.request_rate for run in runs]


def test_one_server_start_serves_all_points_the_lowest_first(make_project):
    project = make_project(with_curve(CLOSED, on=f"{ON}-c4"))
    plan = first_stage(project)
    jobs = plan.jobs()
    starts = sum(len({run.start for run in candidate.runs}) for candidate in plan.candidates)
    assert len(jobs) == starts == 2 + 3  # the baseline has two
    for job in jobs:
        (visit,) = job
        assert levels(visit) == [1, 4, 16]
        assert len({run.start for run in visit}) == 1
    assert all(levels(candidate.runs) == [4] * len(candidate.runs) for candidate in plan.candidates)


LOADS = {
    "closed": (CLOSED, [1, 2, 4, 16], [1, 16], ON),
    "rates": (RATES, [1, 2, 3, 4], [2, 4], f"{ON}-r2"),
}


@pytest.mark.parametrize("case", LOADS)
def test_a_point_more_measures_one_run_a_start_and_a_point_less_none(make_project, tmp_path, case):
    load, more, fewer, on = LOADS[case]
    (of,) = load
    plan = first_stage(make_project(with_curve(load, on)))
    measured = set(plan.run_ids())
    starts = len(plan.jobs())
    added = forecast(make_project(with_curve({of: more}, on)), tmp_path, measured.__contains__)
    assert added.known == starts
    project = make_project(with_curve({of: fewer}, on))
    assert set(first_stage(project).run_ids()) < measured
    assert forecast(project, tmp_path, measured.__contains__).known == 0


def open_spec(rate, unless_saturated=True, **changes):
    run = made_run.spec(protocol={"request_rate": rate, "max_concurrency": None})
    return run.model_copy(update={"unless_saturated": unless_saturated, **changes})


def sent(spec):
    """What a server of four slots made of it."""
    return Outcome(records=[pa.Table.from_pylist(made_run.records(spec.protocol), schema=schemas.RUN_REQUESTS)])


SLOW, FAST = 1, 1000


def test_what_is_above_a_saturated_rate_is_not_sent():
    seen = Saturated()
    seen.note(open_spec(SLOW), sent(open_spec(SLOW)))
    assert seen.below(open_spec(FAST)) is None
    seen.note(open_spec(FAST), sent(open_spec(FAST)))
    assert seen.below(open_spec(2 * FAST)) == "not sent at 2000 requests/s: the server was saturated at 1000"
    assert seen.below(open_spec(SLOW)) is None
    assert seen.below(open_spec(2 * FAST, unless_saturated=False)) is None
    other = open_spec(SLOW).workload.model_copy(update={"kind": "other"})
    assert seen.below(open_spec(2 * FAST, workload=other)) is None


def test_the_stages_table_has_what_decides_and_the_other_points_are_beside_it(make_project, tmp_path):
    project = make_project(with_curve(CLOSED, on=f"{ON}-c4"))
    plan = first_stage(project)
    for candidate in plan.candidates:
        for run in candidate.measured_runs:
            write_run(tmp_path, run.spec)
    tables = {name: table.to_pandas() for name, table in parse_plan(project.study, plan, tmp_path).items()}
    assert set(tables["table"]["workload"]) == {f"{ON}-c4"}
    assert list(tables["table"]["candidate"]) == [candidate.candidate for candidate in plan.candidates]
    assert list(tables["points"]["workload"]) == [f"{ON}-c1", f"{ON}-c16"] * len(plan.candidates)
    assert set(tables["metrics"]["run_id"]) == set(plan.run_ids())
    seconds = 30.0  # of each run that `write_run` makes
    assert list(tables["table"]["accelerator_s"]) == [3 * 2 * seconds] + [3 * seconds] * (len(plan.candidates) - 1)
    assert set(_sizes(plan.candidates[1]).values()) == {sum(run.load_size for run in plan.candidates[1].measured_runs)}


@pytest.fixture
def curves(make_project, tmp_path):
    """The curves of a finished study of rates, whose winner was saturated at the second of three rates."""
    project = make_project(with_curve(RATES, f"{ON}-r1"))
    faster = apply(baseline(project.study).configuration, Candidate(options={"max_num_seqs": 8}))
    winner = Incumbent(candidate="faster", configuration=faster)
    plan = plan_confirm(project, winner, 2)
    left_out = {"outcome": "saturated", "reason": "saturated", "message": "not sent", "rounds": 0, "requests": 0}
    for run in plan.candidates[1].runs:
        if run.workload == f"{ON}-r4":
            write_run(tmp_path / "results/runs", run.spec, **left_out)
    folder = write_study(tmp_path / "results", project, winner)
    stages = [path for path in sorted((folder / "stages").iterdir()) if path.name != "confirm"] + [
        folder / "stages/confirm"
    ]
    tables, points = (
        read_tables([stage / f"{name}.parquet" for stage in stages], schemas.STAGE_TABLE)
        for name in ("table", "points")
    )
    summary = StudySummary.read(folder / "study.json")
    return (
        project,
        read_table(folder / "stages/confirm/table.parquet"),
        curves_table(summary, tables, points).to_pandas(),
    )


def test_the_table_of_curves_has_each_configuration_at_each_point(curves):
    _, _, found = curves
    for (_, _), rows in found.groupby(["stage", "candidate"]):
        assert list(rows["level"]) == [1, 2, 4]
        assert list(rows["decides"]) == [True, False, False]
    assert list(found["stage"].drop_duplicates()) == ["sequences", "confirm"]
    baseline_rows = found[(found["stage"] == "sequences") & (found["candidate"] == "baseline")]
    assert baseline_rows["total_tokens_per_s_ci95_low"].notna().all()  # two server starts
    assert list(found[found["candidate"] == "winner"]["outcome"]) == ["ok", "ok", "saturated"]
    assert found["objective_value"].notna().sum() == len(found) - 1


def test_a_side_that_was_saturated_alone_is_worse_there(curves):
    project, table, _ = curves
    verdict = judge(project.study, table, None, f"{ON}-r4")
    assert (verdict.verdict, verdict.why) == ("worse", "not sent (2 of 2 starts saturated: " + labels(table) + ")")
    swapped = table.assign(
        position=1 - table["position"], candidate=table["candidate"].map({"baseline": "winner", "winner": "baseline"})
    )
    assert judge(project.study, swapped, None, f"{ON}-r4").verdict == "better"
    both = table[table["candidate"] == "winner"]
    both = pd.concat([both.assign(position=0, candidate="baseline"), both])
    assert judge(project.study, both, None, f"{ON}-r4").verdict == "same"


def labels(table):
    plan_labels = table[(table["candidate"] == "baseline")]["start_labels"].iloc[0]
    return ", ".join(plan_labels)


MISTAKES = {
    "both": ({**CLOSED, **RATES}, ON, ["workloads", "one of them only"]),
    "twice": ({"max_concurrency": [1, 4, 1]}, ON, ["a point twice"]),
    "a capacity without limits": ({"capacity": {"of": "max_concurrency"}}, ON, ["capacity", "needs `slos`"]),
    "too few requests": (
        {"capacity": {"of": "request_rate", "slos": {"ttft_ms": {"p99": 1}}}},
        ON,
        ["load.capacity.slos.ttft_ms", "send 100 or more, or limit `p90`"],
    ),
    "which rate decides": (RATES, ON, ["objective.on", "curve of rates", f"{ON}-r1, {ON}-r2, {ON}-r4"]),
}


@pytest.mark.parametrize("case", MISTAKES)
def test_a_mistake_is_one_line_with_key_and_fix(make_project, case):
    load, on, expected = MISTAKES[case]
    with pytest.raises(ConfigError) as raised:
        make_project(with_curve(load, on))
    message = str(raised.value)
    assert "\n" not in message
    assert all(part in message for part in expected), message


def test_capacity_is_an_objective_of_searched_loads_only(make_project):
    study = with_curve({"capacity": {"of": "request_rate", "lowest": 2, "slos": {"ttft_ms": {"p90": 2000}}}})
    study["objective"]["metric"], study["protocol"]["max_concurrency"] = "capacity_per_s", 8
    project = make_project(study)
    assert project.study.capacity_of(ON).lowest == 2 and project.study.protocol_of(ON).request_rate == 2
    assert "most requests/s with ttft_ms p90 of at most 2000" in project.study.workloads[ON].titled("ShareGPT")
    assert _load_text(describe(project.study, {})) == ""
    specs = [run.spec for candidate in first_stage(project).candidates for run in candidate.runs]
    assert {(spec.capacity.of, spec.protocol.rounds, spec.most_rounds) for spec in specs} == {("request_rate", 1, 24)}
    for metric in ("capacity_in_flight", "capacity_per_s"):
        study["objective"]["metric"] = metric
        study["workloads"] = study["workloads"] if metric == "capacity_in_flight" else [ON]
        with pytest.raises(ConfigError, match=f"{metric} needs it on every workload; write"):
            make_project(study)


# what charts draw of telemetry


def sample(round_number: int, time_s: float, metric: str, value: float, source: str = "nvml", device: str | None = "0"):
    names = ("round", "time_s", "source", "device", "metric", "value")
    return dict(zip(names, (round_number, time_s, source, device, metric, value), strict=True))


@pytest.fixture
def sampled(tmp_path):
    folder = tmp_path / "runs/a"
    folder.mkdir(parents=True)
    samples = [sample(0, time, "power_w", 300.0 + time) for time in range(-2, 5)]
    pq.write_table(pa.Table.from_pylist(samples, schema=schemas.TELEMETRY), folder / "telemetry.parquet")
    return folder.parent


def of_runs(*run_ids: str, outcome: str = "ok") -> pd.DataFrame:
    return pd.DataFrame([{"study": "s", "run_id": run, "workload": "w", "outcome": outcome} for run in run_ids])


def test_a_long_round_of_several_devices_has_few_points_with_their_means():
    rows = [
        sample(0, time, "power_w", 100.0 + 200 * device, device=str(device)) for time in range(600) for device in (0, 1)
    ]
    rows += [sample(0, time, "clock_sm_mhz", 1.0) for time in range(600)]
    found = pd.DataFrame(condensed(pd.DataFrame(rows)))
    assert len(found) == MOST_POINTS and set(found["metric"]) == {"power_w"}
    assert found["value"].tolist() == pytest.approx([200.0] * MOST_POINTS)
    assert found["time_s"].is_monotonic_increasing


def test_a_run_that_failed_is_left_out_and_a_broken_file_is_named(sampled):
    assert len(device_series(of_runs("a", outcome="failed"), sampled)) == 0
    (sampled / "a/telemetry.parquet").write_text("no table")
    with pytest.raises(ServelabError, match=r"a/telemetry\.parquet: not a readable Parquet file"):
        device_series(of_runs("a"), sampled)
