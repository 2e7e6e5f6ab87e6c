"""A candidate that answers worse never wins, however fast it is, and the answer says so first."""

import pandas as pd
import pytest
from made_results import write_run
from made_study import demo_study

from servelab.results.answers import AnswersFound
from servelab.results.parse import parse_plan
from servelab.search.decide import decide_stage
from servelab.search.planning import plan_confirm, plan_stage
from servelab.search.proof_plan import judge
from servelab.search.recommended import ChangedAnswers, Recommended
from servelab.study.configuration import Incumbent, baseline

QUESTIONS = 120
BROKEN, SOUND = "q4_0", "q8_0"


def study_content():
    stages = [{"name": "weights", "candidates": [{"model": BROKEN}, {"model": SOUND}]}]
    return demo_study() | {"stages": stages, "answers": {"num_questions": QUESTIONS}}


def answers(wrong=0, other=0, fail=False):
    """Answers of which the first `wrong` are wrong, and the last `other` right in other words."""
    rows = []
    for number in range(QUESTIONS):
        text = "<script>nonsense\x07</script>" if number < wrong else str(number)
        if number >= QUESTIONS - other:
            text += "."
        rows.append(
            {
                "request_index": number,
                "question": f"q{number}",
                "prompt": f"Which number is | {number}?",
                "expected": str(number),
                "grader": "exact",
                "stop": ["\n"],
                "text": None if fail else f"{text}\nmore",
                "output_tokens": 4,
                "finish_reason": "stop",
                "error": "request_timeout: late" if fail else None,
            }
        )
    return rows


def measured(project, plan, runs, given, paces):
    """The stage's tables with the answers and the pace of each candidate by its name."""
    for candidate in plan.candidates:
        for number, run in enumerate(candidate.measured_runs):
            if not (runs / run.run_id).exists():
                asked = given.get(candidate.candidate, answers())
                write_run(runs, run.spec, paces.get(candidate.candidate, 1.0), seed=number, answers=asked)
    return parse_plan(project.study, plan, runs)


@pytest.fixture
def project(make_project):
    return make_project(study_content())


def stage(project):
    return plan_stage(project, "weights", baseline(project.study))


PACES = {BROKEN: 1.6, SOUND: 1.3}


def test_the_next_best_wins_over_a_faster_one_that_changes_answers(project, tmp_path):
    plan = stage(project)
    tables = measured(project, plan, tmp_path, {BROKEN: answers(wrong=60)}, PACES)
    table = tables["table"].to_pandas()
    decision = decide_stage(project.study, plan, table)
    assert decision.winner.candidate == SOUND
    verdicts = {each.candidate: each for each in decision.candidates}
    assert verdicts[BROKEN].verdict == "changes answers"
    assert verdicts[BROKEN].change_percent > 40
    assert "60 of 120 questions right against 120 (allowed loss 2 points)" in verdicts[BROKEN].why
    rows = {row["candidate"]: row for row in table.to_dict("records")}
    assert rows[SOUND]["answers"] in ("same", "cannot tell")
    assert pd.isna(rows[plan.candidates[0].candidate]["answers"])
    assert set(rows[BROKEN]["answers_run_ids"]) == {run.run_id for run in plan.candidates[1].answers}


def test_a_proof_fails_if_its_winner_changes_answers(project, tmp_path):
    winner = Incumbent(candidate=BROKEN, configuration=stage(project).candidates[1].configuration)
    plan = plan_confirm(project, winner, 3)
    table = measured(project, plan, tmp_path, {"winner": answers(wrong=60)}, {"winner": 1.6})["table"].to_pandas()
    verdict = judge(project.study, table, 60.0)
    assert verdict.verdict == "failed" and "changes answers" in verdict.why and not verdict.holds


@pytest.mark.parametrize(
    ("changed", "answers", "first"),
    [
        (True, None, "Answers: not measured."),
        (True, 40, "Answers: 96 % the same."),
        (False, 40, "Answers: the baseline's own: 41 of 60 questions right."),
        (False, 0, "Answers: the baseline's own."),
    ],
)
def test_the_answer_says_first_what_was_found_of_answers(changed, answers, first):
    found = None
    if answers is not None:
        graded = {"graded": 60, "right": 41} if answers else {}
        found = AnswersFound(
            verdict="same", why="96 % the same", questions="embedded", allowed_loss_points=2, asked=60, **graded
        )
    lost = ChangedAnswers(stage="q", candidate="q2_k", change_percent=91.2, why="0 of 60 right against 41")
    recommended = Recommended.model_construct(changed=changed, answers=found, changed_answers=[lost])
    assert recommended.answers_text == [
        first,
        "Not recommended, though +91.2 % in the search: q2_k changes answers: 0 of 60 right against 41.",
    ]
