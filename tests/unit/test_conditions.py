"""Conditions on a comparison: each answer where it belongs, how often it is wrong, and the exit code."""

import copy
import math
import random
import re
import shlex
from pathlib import Path

import pytest
import yaml
from made_results import CRASHED, small_project, write_study
from servelab_command import run_servelab

from servelab.core.errors import ConfigError
from servelab.report.compare.comparison_table import compare_studies
from servelab.report.compare.conditions import (
    read_condition,
    try_conditions,
    verdict_of,
)
from servelab.report.compare.sides import read_side

ROOT = Path(__file__).parents[2]
SLOWER = read_condition("total_tokens_per_s < -3%")
LATER = read_condition("ttft_ms > +5%")


@pytest.fixture(scope="module")
def folder_of(tmp_path_factory):
    """Folder of a finished study whose server is that many times as fast."""
    project = small_project(tmp_path_factory.mktemp("study"))
    made = {}

    def make(pace=1.0, **run):
        name = f"{pace}-{sorted(run)}"
        if name not in made:
            results = tmp_path_factory.mktemp("results") / "results"
            made[name] = write_study(results, project, pace=pace, day=1 + len(made), **run)
        return made[name]

    return make


def verdict(folder_of, before, after, *conditions, answers=True):
    comparison = compare_studies(read_side(before, "old"), read_side(after, "new"))
    return verdict_of(try_conditions(comparison, conditions or [SLOWER], answers=answers))


def test_each_answer(folder_of):
    base = folder_of()
    assert verdict(folder_of, base, folder_of(0.7)) == "worse"
    assert verdict(folder_of, base, folder_of(1.5)) == "better"
    assert verdict(folder_of, base, base) == "same"
    assert verdict(folder_of, base, folder_of(0.97)) == "cannot tell"
    assert verdict(folder_of, base, folder_of(0.97), read_condition("total_tokens_per_s < -30%")) == "same"
    assert verdict(folder_of, base, folder_of(0.7), LATER) == "worse"
    assert verdict(folder_of, base, folder_of(1.5), LATER) == "better"


def test_a_new_failure_is_worse_and_what_is_missing_cannot_be_told(folder_of):
    base, broken = folder_of(), folder_of(1.0, failed={"max_num_seqs=8": CRASHED})
    assert verdict(folder_of, base, broken, answers=False) == "worse"
    assert verdict(folder_of, broken, base, answers=False) in ("better", "cannot tell")
    comparison = compare_studies(read_side(base, "old"), read_side(folder_of(1.2), "new"))
    for run in comparison.b.runs:
        run.starts = dict(run.starts) | {LATER.metric: []}
    (finding,) = try_conditions(comparison, [LATER], answers=True)
    assert finding.word == "cannot tell"
    assert verdict_of([]) == "cannot tell"


def of_200(folder_of, true_percent, conditions, answers=True, sd_percent=2.5, starts=3):
    """Counts of verdicts over 200 studies whose starts are drawn anew around a true change of every metric."""
    comparison = compare_studies(read_side(folder_of(), "old"), read_side(folder_of(1.01), "new"))
    draw, counts = (
        random.Random(f"{true_percent} {answers}"),
        dict.fromkeys(("better", "same", "worse", "cannot tell"), 0),
    )
    for _ in range(200):
        sides = [copy.copy(side) for side in (comparison.a, comparison.b)]
        for side, change in zip(sides, (0.0, true_percent), strict=True):
            object.__setattr__(side, "runs", [copy.copy(run) for run in side.runs])
            for run in side.runs:
                scatter = [draw.gauss(0, sd_percent / 100) for _ in range(starts)]
                faster = [(1 + change / 100) * math.exp(each) for each in scatter]
                run.starts = dict(run.starts) | {
                    "total_tokens_per_s": [500 * each for each in faster],
                    "ttft_ms": [80 / each for each in faster],
                }
        drawn = compare_studies(*sides)
        counts[verdict_of(try_conditions(drawn, conditions, answers=answers))] += 1
    return counts


@pytest.mark.parametrize("answers", [True, False])
def test_at_most_one_verdict_in_twenty_is_wrong(folder_of, answers):
    both = [SLOWER, LATER]
    none = of_200(folder_of, 0.0, both, answers)
    assert none["worse"] <= 10, none
    on_the_limit = of_200(folder_of, -3.0, [SLOWER], answers)
    assert on_the_limit["worse"] <= 17 and on_the_limit["same"] + on_the_limit["better"] <= 17, on_the_limit
    beyond = of_200(folder_of, -5.0, both, answers)
    assert beyond["same"] + beyond["better"] <= 10, beyond


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("total_tokens_per_s", "write a metric, < or >"),
        ("total_tokens_per_s < -3", "write a metric, < or >"),
        ("total_tokens_per_s <= -3%", "write a metric, < or >"),
        ("tokens < -3%", "tokens is no metric"),
        ("total_tokens_per_s > 3%", "worse where it is lower"),
        ("ttft_ms < -3%", "worse where it is higher"),
        ("total_tokens_per_s < -100%", "write a smaller limit"),
    ],
)
def test_a_condition_that_is_none_is_refused(text, said):
    with pytest.raises(ConfigError, match=re.escape(said)):
        read_condition(text)


def test_the_documents_ci_job_fails_on_a_slower_release(folder_of, tmp_path):
    (block,) = re.findall(r"```yaml\n(jobs:.*?)```", (ROOT / "docs/results.md").read_text(), re.DOTALL)
    step = yaml.safe_load(block)["jobs"]["serving-speed"]["steps"][-1]["run"]
    words = shlex.split(step.replace("\\\n", " "))
    before, after = words[2:4]
    assert words[:2] == [".venv/bin/servelab", "compare"] and before.endswith(after)
    replaced = {before: folder_of(), after: folder_of(0.7)}
    ended = run_servelab(*(replaced.get(word, word) for word in words[1:]), cwd=tmp_path)
    assert ended.returncode == 3, ended.stderr
    assert "Verdict: worse" in ended.stdout
