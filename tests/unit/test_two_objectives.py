"""Two objectives at once: what is best in each is proved by its own metric, through whole simulated studies."""

import random

import pytest
from made_search import choices

from servelab.core.errors import ConfigError
from servelab.search.simulate import Measured, simulate_project

BOTH = {"": (100, 400), "A": (140, 420), "B": (90, 200), "AB": (130, 300)}  # tokens/s and TTFT by choices


@pytest.fixture
def study_of(two, study_content):
    del study_content["objective"]["metric"]

    def make(*pareto, **search):
        return two(objective={"pareto": list(pareto or ("total_tokens_per_s", "ttft_ms.p99"))}, **search)

    return make


def simulated(project, values, noise=0.003):
    draw = random.Random(1)

    def measure(configuration, load, start):
        speed, latency = (value * draw.gauss(1, noise) for value in values[choices(configuration)])
        return Measured([speed], 60.0, second=latency)

    return simulate_project(project, measure)


@pytest.mark.parametrize("strategy", ["adaptive", "grid"])
def test_the_best_in_each_is_proved_by_its_own_metric(study_of, strategy):
    found = simulated(study_of(strategy=strategy), BOTH)
    assert [(choices(each.winner), each.verdict) for each in (found, found.second)] == [
        ("A", "better"),
        ("B", "better"),
    ]
    assert (found.change.value, found.second.change.value) == pytest.approx((40, -50), abs=2)
    figures = [(each.value, each.second_value) for each in found.front]
    assert figures == [pytest.approx(BOTH[name], rel=0.02) for name in ("A", "AB", "B")]


def test_what_is_best_in_both_is_measured_once_and_where_nothing_differs_the_baseline_is_kept(study_of):
    worlds = (BOTH | {"A": (140, 190)}, BOTH, dict.fromkeys(BOTH, (100, 400)))
    found, two, same = (simulated(study_of(strategy="grid"), values) for values in worlds)
    assert choices(found.winner) == choices(found.second.winner) == "A" and found.runs < two.runs
    assert choices(same.winner) == choices(same.second.winner) == ""


@pytest.mark.parametrize(
    ("pareto", "search", "why"),
    [
        (["ttft_ms.p99", "total_tokens_per_s"], {}, "of the first the mean decides"),
        (["total_tokens_per_s", "ttft.p99"], {}, "unknown metric with a better direction `ttft`"),
        ([], {"strategy": "staged"}, "search with `adaptive` or `grid`"),
    ],
)
def test_a_mistake_is_one_clear_error(study_of, pareto, search, why):
    with pytest.raises(ConfigError, match=rf"^[^\n]*{why}[^\n]*$"):
        study_of(*pareto, **{"strategy": "grid"} | search)
