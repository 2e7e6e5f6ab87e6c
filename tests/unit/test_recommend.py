"""The answer: what the proof supports and nothing else, its gain on every workload, and what could not be compared."""

import math

import made_run
import pandas as pd
import pytest
from made_study import stage_rows

from servelab.results.compare_with_baseline import improvements
from servelab.search.planning import plan_confirm
from servelab.search.recommend import recommend
from servelab.search.recommendation_text import answer_text, render_recommendation
from servelab.study.configuration import Incumbent, apply, baseline
from servelab.study.plan import LeftOut
from servelab.study.study import CONFIRM, CONFIRM_FIRST, Candidate

VARIABLES = {"OMP_NUM_THREADS": "2"}
STEADY = [100, 101, 99]
OPTION = Candidate(options={"max_num_seqs": 8})


@pytest.fixture
def answer(study_content, make_project, tmp_path):
    """The recommendation after proofs with these values of starts, by candidate and workload."""

    def make(starts_by_workload, overrides=OPTION, validity=None, promised=60.0, change=None, left_out=None):
        study_content["workloads"] = list(starts_by_workload)
        project = make_project(study_content)
        winner = apply(baseline(project.study).configuration, overrides)
        plan = plan_confirm(project, Incumbent(candidate="a", configuration=winner), 3)
        plan = plan.model_copy(update={"left_out": left_out})
        made = [
            stage_rows(starts, stage=CONFIRM, workload=name, validity=validity)
            for name, starts in starts_by_workload.items()
        ]
        table, rounds = (pd.concat(frames, ignore_index=True) for frames in zip(*made, strict=True))
        if change:
            change(table)
        for run, side in table[["run_id", "candidate"]].itertuples(index=False):
            (tmp_path / run).mkdir(exist_ok=True)
            ran = {"command": ["server", "--model", f"a {side}"], "environment_variables": VARIABLES}
            made_run.manifest(made_run.spec(), **ran).write(tmp_path / run / "manifest.json")
        gains = improvements(table, rounds, rounds.assign(definition=None)).to_pandas()
        titles = {name: name.title() for name in study_content["workloads"]}
        return recommend(project.study, plan, table, gains, tmp_path, titles, promised)

    return make


def test_gain_on_every_workload_and_the_failure_on_one(answer):
    recommended = answer(
        {
            "cpu-sharegpt": {"baseline": STEADY, "winner": [150, 151, 149]},
            "cpu-short": {"baseline": STEADY, "winner": "out_of_memory"},
        }
    )
    assert recommended.changed and recommended.evidence == "proof"
    assert recommended.command.endswith("--parallel 8")
    assert recommended.launch_command == "env OMP_NUM_THREADS=2 server --model 'a winner'"
    assert recommended.served_on == "a cpu (2 CPUs)"  # one accelerator, whose figures are not divided by two
    gain, failure = recommended.improvements
    assert gain.change_percent == pytest.approx(50, abs=0.1) and gain.n == 3 and gain.failed is None
    assert gain.verdict == "better" and failure.verdict == "failed"
    assert failure.change_percent is None
    assert failure.failed == "winner: out_of_memory: the telling line"
    assert recommended.losses == [failure]
    said = render_recommendation(recommended, "results/report.html")
    assert "+50.0 %" in said and "out_of_memory: the telling line" in said and "results/report.html" in said


def test_what_was_promised_and_what_was_found_stand_side_by_side(answer):
    recommended = answer({"cpu-sharegpt": {"baseline": STEADY, "winner": [150, 151, 149]}}, promised=81.0)
    proof = recommended.proof
    assert (proof.verdict, proof.pairs, proof.promised_change_percent) == ("better", 3, 81.0)
    assert proof.wanted_half_width_percent == pytest.approx(40.5)  # half of the promise
    assert proof.smallest_change_percent == pytest.approx(
        (proof.change_ci95_high_percent - proof.change_ci95_low_percent) / 2 / 1.5, rel=0.05
    )
    said = render_recommendation(recommended, "report.html")
    assert "Proof: the gain holds: the search promised +81.0 %, 3 pairs of fresh starts found +50.0 %" in said


def test_the_next_best_is_recommended_and_why_is_in_the_first_five_lines(answer):
    why = "60 of 120 questions right against 120 (allowed loss 2 points)"
    left_out = LeftOut(candidate="prefix caching", change_percent=60.4, why=why)
    recommended = answer({"cpu-sharegpt": {"baseline": STEADY, "winner": [150, 151, 149]}}, left_out=left_out)
    assert recommended.changed and recommended.proof.candidate == "a"
    assert [(each.stage, each.candidate) for each in recommended.changed_answers] == [(CONFIRM_FIRST, "prefix caching")]
    first = render_recommendation(recommended, "report.html").splitlines()[:5]
    assert f"Not recommended, though +60.4 % in the search: prefix caching changes answers: {why}." in first


@pytest.mark.parametrize(("promised", "though"), [(60.0, ", though +60.0 % in the search"), (None, "")])
def test_a_proof_that_fails_on_answers_is_said_first(answer, promised, though):
    def lose(table):
        table.loc[table["candidate"] == "winner", ["answers", "answers_note"]] = ["changes answers", "3 of 9 right"]

    starts = {"cpu-sharegpt": {"baseline": STEADY, "winner": [150, 151, 149]}}
    recommended = answer(starts, promised=promised, change=lose)
    assert not recommended.changed and recommended.proof.verdict == "failed"
    first = render_recommendation(recommended, "report.html").splitlines()[:5]
    assert f"Not recommended{though}: a changes answers: 3 of 9 right." in first


NOT_PROVED = {"worse": [80, 81, 79], "same": [100.5, 101.5, 99.5], "cannot tell": [130, 95, 110], "failed": "crashed"}


@pytest.mark.parametrize("verdict", NOT_PROVED)
def test_the_baseline_is_kept_unless_the_proof_holds(answer, verdict):
    recommended = answer({"cpu-sharegpt": {"baseline": STEADY, "winner": NOT_PROVED[verdict]}})
    assert recommended.proof.verdict == verdict
    assert not recommended.changed and recommended.improvements == []
    assert "--parallel 8" not in recommended.command
    assert recommended.run_id == recommended.baseline_run_id
    assert "options" not in recommended.configuration.model_fields_set or not recommended.configuration.options
    assert recommended.proof.proposed.options == {"max_num_seqs": 8}
    assert recommended.proof.proposed_command == "env OMP_NUM_THREADS=2 server --model 'a winner'"
    assert recommended.proof.workloads[0].workload == "cpu-sharegpt"
    said = render_recommendation(recommended, "report.html")
    first = {"cannot tell": "Cannot tell, so keep the baseline: the proof found +1", "failed": "failed in the proof"}
    assert first.get(verdict, f"the search proposed is {verdict} in the proof") in said.splitlines()[0]
    assert ("; 1 of 3 starts of the winner is 27 % higher." in said.splitlines()[0]) == (verdict == "cannot tell")
    assert "Proposed by the search, not recommended:" in said and "the search promised +60.0 %" in said


def test_a_disturbed_proof_keeps_the_baseline(answer):
    def disturb(table):
        for row in (0, 1):
            table.at[row, "start_delays_percent"] = [math.nan, math.nan, 0.0]

    recommended = answer({"cpu-sharegpt": {"baseline": [50, 101, 99], "winner": [150, 151, 149]}}, change=disturb)
    assert recommended.proof.verdict == "disturbed" and recommended.proof.pairs == 1
    assert not recommended.changed and recommended.improvements == []


def test_a_winner_that_misses_a_constraint_in_the_proof_is_not_recommended(answer):
    def miss(table):
        table["constraints_missed"] = [None, "ttft_ms p99 must be at most 2000 and is 2500"]

    recommended = answer({"cpu-sharegpt": {"baseline": STEADY, "winner": [150, 151, 149]}}, change=miss)
    assert not recommended.changed and recommended.proof.verdict == "failed"
    assert "the winner: constraint missed: ttft_ms p99" in recommended.proof.why


@pytest.mark.parametrize("missed", [True, False])
def test_where_only_the_baseline_cannot_be_used_the_winner_is_recommended_without_a_figure(answer, missed):
    def miss(table):
        table["constraints_missed"] = ["ttft_ms p99 must be at most 2000 and is 2500" if missed else None, None]

    starts = {"baseline": STEADY if missed else "crashed", "winner": [150, 151, 149]}
    recommended = answer({"cpu-sharegpt": starts}, change=miss)
    assert recommended.changed and recommended.proof.verdict == "better"
    assert recommended.proof.change_percent is None and "the baseline: " in recommended.proof.why
    assert recommended.proof.why.startswith("only the winner can be used")
    said = answer_text(recommended).text
    assert ("→" if missed else "150 total tokens/s per accelerator (not comparable, baseline: crashed), ") in said


def test_a_baseline_that_fails_now_and_then_proves_nothing(answer):
    def fail_once(table):
        table.at[0, "outcome"], table.at[0, "reason"] = "failed", "crashed"

    recommended = answer({"cpu-sharegpt": {"baseline": STEADY, "winner": [150, 151, 149]}}, change=fail_once)
    assert not recommended.changed and recommended.proof.verdict == "failed"


def test_a_baseline_that_won_is_recommended(answer):
    recommended = answer({"cpu-sharegpt": {"baseline": STEADY}}, Candidate(label="nothing"), promised=None)
    assert not recommended.changed and recommended.improvements == [] and recommended.proof is None
    assert recommended.evidence == "nothing to prove"
    assert recommended.run_id == recommended.baseline_run_id
    assert "Keep the baseline: the search found no candidate" in render_recommendation(recommended, "report.html")
    recommended = answer({"cpu-sharegpt": {"baseline": "crashed"}}, Candidate(label="nothing"), promised=None)
    assert "No answer: no candidate can be used, and the baseline neither: failed:" in answer_text(recommended).text


def test_another_number_format_is_named_in_the_command(answer):
    recommended = answer({"cpu-sharegpt": {"baseline": STEADY, "winner": [150, 151, 149]}}, Candidate(model="q4_0"))
    assert recommended.model == "SmolLM2-135M-Instruct-q4_0"
    assert recommended.command == "llama-server --model SmolLM2-135M-Instruct-q4_0"
    assert "quality of the answers was not" in render_recommendation(recommended, "report.html")


def test_what_the_checks_found_is_carried_and_said(answer):
    starts = {"cpu-sharegpt": {"baseline": STEADY, "winner": [150, 151, 149]}}
    recommended = answer(starts, validity={"baseline": "suspect", "winner": "suspect"})
    for place in (recommended, recommended.improvements[0]):
        assert place.validity == "suspect" and place.validity_note == "what makes winner suspect"
        assert place.baseline_validity == "suspect" and place.baseline_validity_note == "what makes baseline suspect"
    said = render_recommendation(recommended, "report.html")
    assert "† suspect, baseline: what makes baseline suspect" in said
    assert "† suspect, measured beside it: what makes winner suspect" in said


def test_a_loss_is_said(answer):
    recommended = answer(
        {
            "cpu-sharegpt": {"baseline": STEADY, "winner": [150, 151, 149]},
            "cpu-short": {"baseline": STEADY, "winner": [80, 81, 79]},
        }
    )
    assert [row.verdict for row in recommended.improvements] == ["better", "worse"]
    said = render_recommendation(recommended, "report.html")
    assert "but it is worse or failed on 1 workload" in said and "; worse: " in said and "-20.0 %" in said
