"""The winner map: which of two configurations is better from which load on, and what is said of it."""

import made_run
import pandas as pd
import pytest
import sample_study
from made_study import demo_study, stage_rows

from servelab.results.compare_with_baseline import improvements
from servelab.search.decision import Decision
from servelab.search.planning import plan_confirm
from servelab.search.proof import BASELINE, WINNER
from servelab.search.recommend import recommend
from servelab.search.recommendation_text import render_recommendation
from servelab.search.recommended import MapLevel, Recommended
from servelab.search.winner_map import BOTH, load_ranges
from servelab.study.configuration import Incumbent, apply, baseline
from servelab.study.study import CONFIRM, Candidate


def level(load, *best):
    nothing = dict.fromkeys(["change_percent", "change_ci95_low_percent", "change_ci95_high_percent"])
    return MapLevel(load=load, workload="", best=[*best], pairs=3, **nothing)


@pytest.mark.parametrize(
    ("levels", "ranges"),
    [
        ([level(1, WINNER), level(16, WINNER)], [([WINNER], 1, 16)]),
        (
            [level(4, BASELINE), level(16, BASELINE), level(64, WINNER)],
            [([BASELINE], 4, 16), (BOTH, 16, 64), ([WINNER], 64, 64)],
        ),
        ([level(1, *BOTH), level(4, WINNER), level(16, *BOTH)], [(BOTH, 1, 4), ([WINNER], 4, 4), (BOTH, 4, 16)]),
        ([level(1, *BOTH), level(4, *BOTH)], [(BOTH, 1, 4)]),
    ],
)
def test_ranges_of_measured_loads(levels, ranges):
    assert [(each.best, each.from_load, each.to_load) for each in load_ranges(levels)] == ranges


LOADS = [1, 4, 16]
PROVED = {
    1: {"baseline": [100, 101, 99], "winner": [90, 90, 90]},
    4: {"baseline": [100, 101, 99], "winner": [95, 96, 95]},
    16: {"baseline": [100, 101, 99], "winner": [140, 141, 139]},
}


@pytest.fixture
def answer(make_project, tmp_path):
    """The recommendation of a study with a curve, after such a proof."""

    def make(proved=PROVED, has_winner=True, decisions=(), validity=None, **objective):
        content = demo_study()
        content["workloads"] = [{"name": "cpu-sharegpt", "load": {"max_concurrency": LOADS}}]
        content["objective"] |= {"on": "cpu-sharegpt-c16", "margin_percent": 3, **objective}
        project = make_project(content)
        start = baseline(project.study)
        winner = apply(start.configuration, Candidate(options={"max_num_seqs": 8}))
        plan = plan_confirm(project, Incumbent(candidate="a", configuration=winner) if has_winner else start, 3)
        made = [
            stage_rows(starts, stage=CONFIRM, workload=f"cpu-sharegpt-c{load}", validity=validity)
            for load, starts in proved.items()
        ]
        table, rounds = (pd.concat(frames, ignore_index=True) for frames in zip(*made, strict=True))
        for run, side in table[["run_id", "candidate"]].itertuples(index=False):
            (tmp_path / run).mkdir(exist_ok=True)
            made_run.manifest(made_run.spec(), command=["start", side]).write(tmp_path / run / "manifest.json")
        gains = improvements(table, rounds, rounds.assign(definition=None)).to_pandas()
        titles = {name: name for name in project.study.workloads}
        return recommend(project.study, plan, table, gains, tmp_path, titles, 40.0, decisions)

    return make


def test_the_answer_names_who_is_better_from_which_load_on(answer, tmp_path):
    (found,) = answer().winner_maps
    assert [each.load for each in found.levels] == LOADS
    assert [each.best for each in found.levels] == [["baseline"], ["baseline"], ["winner"]]
    assert found.levels[2].change_percent == pytest.approx(40, abs=1)
    assert found.text == (
        "Curve cpu-sharegpt, by Total tokens/s per accelerator: up to 4 in flight the baseline is better; from 4 to 16 "
        "in flight baseline and winner cannot be told apart; from 16 in flight the winner is better; measured from 1 "
        "to 16 in flight."
    )


def test_the_map_is_in_the_terminal_and_survives_its_file(answer, tmp_path):
    made = answer()
    made.write(tmp_path / "recommended.json")
    read = Recommended.read(tmp_path / "recommended.json")
    assert read == made
    assert made.winner_maps[0].text in render_recommendation(read, tmp_path / "report.html").splitlines()


def test_a_side_that_failed_at_a_load_is_not_the_best_there(answer):
    proved = PROVED | {1: PROVED[1] | {"baseline": "failed"}}
    (found,) = answer(proved).winner_maps
    assert found.levels[0].best == ["winner"]
    assert found.levels[0].why.startswith("baseline: ")


def test_a_candidate_that_could_not_be_judged_is_named_unless_a_later_stage_judged_it(answer):
    row = sample_study.decision("engine")

    def decided(**verdicts):
        one = row["candidates"][0]
        found = [one | {"candidate": name, "verdict": verdict} for name, verdict in verdicts.items()]
        return Decision.model_validate(row | {"stage": "sequences", "candidates": found})

    found = answer(decisions=[decided(b="cannot tell", c="cannot tell"), decided(c="worse")], has_winner=False)
    assert found.untold == ["b"] and "The search could not judge b, as runs were disturbed." in found.note
    assert render_recommendation(found, "report.html").startswith(
        "cpu-smollm2: Cannot tell, so keep the baseline: runs"
    )
    found = answer(decisions=[decided(b="worse", c="not run")])
    assert not found.untold and "The budget left out 1 of the search's candidates." in found.note


def test_for_latency_the_lower_side_is_better(answer):
    (found,) = answer(metric="ttft_ms", per="deployment").winner_maps
    assert [each.best for each in found.levels] == [["winner"], ["winner"], ["baseline"]]


def test_without_a_winner_nothing_is_proved(answer):
    proved = {load: {"baseline": starts["baseline"][:1]} for load, starts in PROVED.items()}
    assert answer(proved, has_winner=False).winner_maps == []
