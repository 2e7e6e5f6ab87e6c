"""The winner map: which of two configurations is better from which load on, and what is said of it."""

import math

import made_run
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import sample_study
from made_study import demo_study, stage_rows
from planted_crossing import study_at

from servelab.metrics.tables.schemas import CURVES
from servelab.results.compare_with_baseline import improvements
from servelab.search.decision import CHANGES_ANSWERS, Decision
from servelab.search.planning import plan_confirm
from servelab.search.proof import BASELINE, WINNER
from servelab.search.recommend import recommend
from servelab.search.recommendation_text import render_recommendation
from servelab.search.recommended import Recommended
from servelab.search.winner_map import BOTH, Level, Range, load_ranges
from servelab.study.configuration import Incumbent, apply, baseline
from servelab.study.study import CONFIRM, Candidate


def level(load, *percents, only=None):
    return Level(load, {f"p-{number}": math.log1p(each / 100) for number, each in enumerate(percents)}, only)


def test_one_side_is_better_at_all_loads():
    ranges, crossings = load_ranges([level(1, 9, 10, 11), level(16, 4, 5, 6)])
    assert ranges == [Range((WINNER,), 1, 16)]
    assert crossings == []


def test_a_crossing_lies_between_the_loads_that_tell_the_two_apart():
    ranges, (crossing,) = load_ranges([level(4, -11, -10, -9), level(16, -5.5, -5, -4.5), level(64, 9, 10, 11)])
    assert [each.best for each in ranges] == [(BASELINE,), BOTH, (WINNER,)]
    assert (ranges[0].first, ranges[-1].last) == (4, 64)
    assert [one.last for one in ranges[:-1]] == [other.first for other in ranges[1:]]
    assert (crossing.below, crossing.above) == (BASELINE, WINNER)
    assert 16 < crossing.low < crossing.at < crossing.high < 64
    assert (ranges[1].first, ranges[1].last) == (crossing.low, crossing.high)


def test_more_noise_gives_a_wider_interval():
    def width(noise):
        _, (found,) = load_ranges([level(4, -20 - noise, -20, -20 + noise), level(16, 20 - noise, 20, 20 + noise)])
        return found.high / found.low

    assert 1 < width(0.1) < width(1) < width(3)


def test_where_noise_hides_the_difference_both_are_named():
    ranges, crossings = load_ranges([level(1, -5, 5, 1), level(4, 9, 10, 11), level(16, 12, -20, 3)])
    assert [each.best for each in ranges] == [BOTH, (WINNER,), BOTH]
    assert ranges[0].first == 1 and ranges[-1].last == 16
    assert crossings == []


def test_a_side_without_figures_loses_there_and_the_crossing_has_no_estimate():
    ranges, (crossing,) = load_ranges([level(1, 9, 10, 11), level(4, 5, 6, 7), level(16, only=BASELINE)])
    assert ranges == [Range((WINNER,), 1, 4), Range(BOTH, 4, 16), Range((BASELINE,), 16, 16)]
    assert (crossing.low, crossing.at, crossing.high) == (4, None, 16)


def test_no_range_rests_on_what_is_between_two_loads_alone():
    ranges, _ = load_ranges([level(1, -30, 30, 1), level(4, 30, -30, 1)])
    assert ranges == [Range(BOTH, 1, 4)]


def test_one_pair_tells_nothing_apart():
    assert load_ranges([level(1, 50), level(4, 50)])[0] == [Range(BOTH, 1, 4)]


@pytest.mark.parametrize("pairs", [3, 8])
def test_a_planted_crossing_is_within_its_interval(pairs):
    draw = np.random.default_rng(20)
    found = [study_at(draw, 40.0, pairs, 0.01) for _ in range(100)]
    assert sum(low <= 40.0 <= high for low, high, _ in found) >= 95
    assert sum(is_named for _, _, is_named in found) >= 90


LOADS = [1, 4, 16]
PROVED = {
    1: {"baseline": [100, 101, 99], "winner": [90, 90, 90]},
    4: {"baseline": [100, 101, 99], "winner": [95, 96, 95]},
    16: {"baseline": [100, 101, 99], "winner": [140, 141, 139]},
}
SEARCHED = {1: {"baseline": 100.0, "a": 91.0, "b": 99.0}, 16: {"baseline": 100.0, "a": 139.0, "b": 180.0}}


@pytest.fixture
def answer(make_project, tmp_path):
    """The recommendation of a study with a curve, after such a proof and such a search."""

    def make(proved=PROVED, searched=SEARCHED, has_winner=True, decisions=(), validity=None, **objective):
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
        return recommend(
            project.study, plan, table, gains, tmp_path, titles, 40.0, None, decisions, curves_of(searched)
        )

    return make


def curves_of(searched):
    rows = [
        {
            "curve": "cpu-sharegpt",
            "load": "max_concurrency",
            "level": load,
            "workload": f"cpu-sharegpt-c{load}",
            "stage": "sequences",
            "candidate": name,
            "engine": "llama.cpp",
            "command": f"serve {'winner' if name == 'a' else name}",
            "starts": 1,
            "outcome": "ok",
            "validity": "ok",
            "objective_value": value,
        }
        for load, values in searched.items()
        for name, value in values.items()
    ]
    return pa.Table.from_pylist(rows, schema=CURVES).to_pandas()


def test_the_answer_names_who_is_better_from_which_load_on(answer, tmp_path):
    (found,) = answer().winner_maps
    assert [each.load for each in found.levels] == LOADS
    assert [each.best for each in found.levels] == [["baseline"], ["baseline"], ["winner"]]
    assert found.levels[2].change_percent == pytest.approx(40, abs=1)
    (crossing,) = found.crossings
    assert 4 < crossing.ci95_low < crossing.at < crossing.ci95_high < 16
    assert found.text.startswith(
        "cpu-sharegpt, Total tokens/s per accelerator by load. "
        f"Proved: up to {crossing.ci95_low:.3g} in flight the baseline is better"
    )
    assert f"from {crossing.ci95_high:.3g} in flight the winner is better; measured from 1 to 16" in found.text
    assert found.text.endswith("In the search alone, not proved, the best was baseline or b at 1; b at 16 in flight.")
    assert found.commands == {"baseline": "start baseline", "winner": "start winner"}


def test_the_map_is_in_the_terminal_and_survives_its_file(answer, tmp_path):
    made = answer()
    made.write(tmp_path / "recommended.json")
    read = Recommended.read(tmp_path / "recommended.json")
    assert read == made
    lines = render_recommendation(read, tmp_path / "report.html").splitlines()
    at = lines.index("Best by load:")
    assert lines[at + 1].strip() == made.winner_maps[0].text
    assert lines[at + 2].strip() == "baseline: start baseline"


def test_a_side_that_failed_at_a_load_is_not_the_best_there(answer):
    proved = PROVED | {1: PROVED[1] | {"baseline": "failed"}}
    (found,) = answer(proved).winner_maps
    assert found.levels[0].best == ["winner"]
    assert found.levels[0].why.startswith("baseline: ")
    assert found.crossings[0].below == "winner" and found.crossings[0].at is None


def test_a_candidate_that_changes_answers_is_not_named(answer):
    row = sample_study.decision("engine")
    row |= {
        "stage": "sequences",
        "candidates": [row["candidates"][0] | {"candidate": "b", "verdict": CHANGES_ANSWERS}],
    }
    (found,) = answer(decisions=[Decision.model_validate(row)]).winner_maps
    assert found.text.endswith("In the search alone, not proved, the best was baseline at 1; winner at 16 in flight.")


def test_a_candidate_that_could_not_be_judged_is_named_unless_a_later_stage_judged_it(answer):
    row = sample_study.decision("engine")

    def decided(**verdicts):
        one = row["candidates"][0]
        found = [one | {"candidate": name, "verdict": verdict} for name, verdict in verdicts.items()]
        return Decision.model_validate(row | {"stage": "sequences", "candidates": found})

    found = answer(decisions=[decided(b="cannot tell", c="cannot tell"), decided(c="worse")], has_winner=False)
    assert found.untold == ["b"] and found.note == "The search could not judge b, as runs were disturbed."
    assert render_recommendation(found, "report.html").startswith(
        "cpu-smollm2: Cannot tell, so keep the baseline: runs"
    )
    assert answer(decisions=[decided(b="worse")]).note is None


def test_suspect_runs_are_said(answer):
    made = answer(validity={"winner": "suspect"}).winner_maps[0]
    assert [each.is_suspect for each in made.levels] == [True] * 3
    assert "measured from 1 to 16 in flight (suspect at 1, 4, 16)." in made.text
    assert "suspect" not in answer().winner_maps[0].text


def test_for_latency_the_lower_side_is_better(answer):
    (found,) = answer(metric="ttft_ms", per="deployment").winner_maps
    assert [each.best for each in found.levels] == [["winner"], ["winner"], ["baseline"]]


def test_without_a_winner_nothing_is_proved(answer):
    proved = {load: {"baseline": starts["baseline"][:1]} for load, starts in PROVED.items()}
    (found,) = answer(proved, has_winner=False).winner_maps
    assert not found.levels and not found.ranges and not found.crossings
    assert "Proved" not in found.text and "not proved" in found.text
