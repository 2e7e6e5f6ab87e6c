"""Failed requests and disturbed runs, wherever runs are compared."""

import pytest
from made_run import evidence, records, spec
from made_study import stage_rows
from test_parse import write

from servelab.results.checks import CHECKS, check_run, disturbance, verdict
from servelab.results.parse import parse_plan
from servelab.search.candidates_table import CandidatesStage, candidates_table
from servelab.search.planning import plan_stage
from servelab.search.verdict import comparison_row, noise_of_sides
from servelab.search.verdict import judge as verdict_of_sides
from servelab.study.configuration import baseline

BUSY = "busy machine: others used 43.0 % of the CPUs"
STEADY = [100, 101, 99]
FASTER = [150, 151, 149]


@pytest.fixture
def project(study_content, make_project):
    return make_project(study_content)


def finding(check, level="suspect"):
    return {"check": check, "level": level, "saw": f"saw {check}", "action": None}


# what disturbance is


def test_a_busy_machine_and_an_odd_round_mean_that_a_run_was_disturbed():
    assert {entry.name for entry in CHECKS if entry.means_disturbed} == {"busy_machine", "disturbed_round"}
    assert disturbance([finding("busy_machine"), finding("client_cpu")]) == "busy machine: saw busy_machine"
    both = [finding("disturbed_round"), finding("busy_machine")]
    assert disturbance(both) == "disturbed round: saw disturbed_round; busy machine: saw busy_machine"
    assert disturbance([finding("busy_machine", "ok"), finding("client_cpu", "invalid")]) is None


def test_a_disturbed_run_is_suspect_and_a_quiet_one_is_not_disturbed():
    assert disturbance(check_run(evidence())) is None
    rates = dict(enumerate([100.0, 101.0, 40.0]))
    rounds = dict(evidence().rounds) | {"total_tokens_per_s": rates}
    found = check_run(evidence(rounds=rounds))
    assert disturbance(found).startswith("disturbed round: round 2") and verdict(found)[0] != "ok"


def test_the_table_says_what_disturbed_a_run(project, tmp_path):
    plan = plan_stage(project, "sequences", baseline(project.study))
    for run_id in plan.run_ids():
        write(tmp_path / run_id)
    slow = [dict(row) for row in records(spec().protocol)]
    for row in slow:
        if row["round"] == 1:
            for name in ("sent_s", "first_token_s", "last_token_s", "end_s", "started_s"):
                row[name] = 3 * row[name]
            row["chunk_gaps_ms"] = [3 * gap for gap in row["chunk_gaps_ms"]]
    write(tmp_path / plan.candidates[1].runs[0].run_id, slow, sampled=False)
    table = parse_plan(project.study, plan, tmp_path)["table"].to_pandas()
    assert table["disturbed"][1].startswith("disturbed round: round 1")
    assert table["disturbed"].drop(1).isna().all()


# versions and studies


def judge(study, before, after):
    return verdict_of_sides(study, before, after, noise=noise_of_sides([before, after]))


class Side:
    def __init__(self, values, rate=1.0, disturbed=None):
        row = {"outcome": "ok", "reason": None, "message": None, "success_rate": rate, "disturbed": disturbed}
        self.row, self.values = comparison_row(row, values), values


def test_two_versions_are_compared_if_requests_fail_in_both(study):
    word, why, change = judge(study, Side(STEADY, 0.97), Side(FASTER, 0.98))
    assert word == "better" and change.value == pytest.approx(50, abs=0.01)
    assert "; before: 97.00 % of the requests succeeded" in why and "; after: 98.00 %" in why
    assert judge(study, Side(STEADY), Side(FASTER, 0.98))[0] == "new failure"
    assert judge(study, Side(STEADY, 0.98), Side(FASTER))[0] == "fixed failure"
    assert judge(study, Side(STEADY), Side(FASTER))[0] == "better"


def test_a_disturbed_version_is_not_compared(study):
    assert judge(study, Side(STEADY, disturbed=BUSY), Side(FASTER)) == (
        "not comparable",
        f"before: disturbed, {BUSY}",
        None,
    )
    assert judge(study, Side(STEADY), Side(FASTER, disturbed=BUSY))[1] == f"after: disturbed, {BUSY}"


# the table of candidates


def test_the_table_of_candidates_counts_failed_requests_as_a_failure(project):
    plan = plan_stage(project, "sequences", baseline(project.study))
    table, _ = stage_rows({"base": STEADY, "a": STEADY, "b": STEADY, "c": STEADY}, success_rate={"a": 0.9, "b": 0.995})
    ids = [[run.run_id for run in each.runs] for each in plan.candidates]
    table = table.assign(run_id=[each[0] for each in ids], run_ids=ids, accelerator_s=1.0, load_accelerator_s=1.0)
    rows = candidates_table(project.study, [CandidatesStage(plan, table, None)]).to_pylist()
    assert [row["outcome"] for row in rows] == ["tried", "failed", "tried", "tried"]
    assert rows[1]["reason"] == "90.00 % of the requests succeeded, 99 % are required"
