"""Ranges of an integer option in a study's candidates."""

import re

import pytest

from servelab.core.errors import ConfigError


def names(project):
    return [candidate.name for candidate in project.study.stages[0].candidates]


@pytest.fixture
def ranged(project_with):
    def make(value, **more):
        return project_with(stages=[{"name": "a", "candidates": [{"options": {"max_num_seqs": value}, **more}]}])

    return make


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({"from": 8, "to": 20, "step": 4}, [8, 12, 16, 20]),
        ({"from": 8, "to": 19, "step": 4}, [8, 12, 16]),
        ({"from": 1, "to": 64, "log": 4}, [1, 4, 16, 64]),
        ({"from": 3, "to": 4}, [3, 4]),
        ({"from": 5, "to": 5}, [5]),
    ],
)
def test_a_range_is_one_candidate_for_each_value(ranged, value, expected):
    assert names(ranged(value)) == [f"max_num_seqs={number}" for number in expected]


def test_two_ranges_are_every_pair_and_a_label_gets_the_values(project_with):
    candidate = {
        "label": "batch",
        "options": {"max_num_seqs": {"from": 8, "to": 16, "step": 8}},
        "arguments": {"--ubatch-size": {"from": 64, "to": 128, "log": 2}},
    }
    project = project_with(stages=[{"name": "a", "candidates": [candidate, {"options": {"max_num_seqs": 4}}]}])
    assert names(project) == [
        "batch, max_num_seqs=8, --ubatch-size=64",
        "batch, max_num_seqs=8, --ubatch-size=128",
        "batch, max_num_seqs=16, --ubatch-size=64",
        "batch, max_num_seqs=16, --ubatch-size=128",
        "max_num_seqs=4",
    ]


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"from": 8}, "0.options.max_num_seqs.to: Field required; a range is `{from, to}` with `step` or `log`"),
        ({"from": 8, "to": 16, "stp": 2}, "0.options.max_num_seqs.stp: Extra inputs are not permitted"),
        ({"from": 8, "to": 4}, "0.options.max_num_seqs: `to` is 4, below `from`, 8"),
        ({"from": 8, "to": 16, "step": 2, "log": 2}, "give `step` or `log`, not both"),
        ({"from": 0, "to": 16, "log": 2}, "with `log`, `from` must be at least 1, not 0"),
        ({"from": 0, "to": 100}, "has more than 100 values"),
        ({"from": 0.5, "to": 2}, "0.options.max_num_seqs.from: Input should be a valid integer"),
    ],
)
def test_a_wrong_range_is_one_line_with_file_and_key(ranged, value, message):
    with pytest.raises(ConfigError, match=re.escape(message)) as error:
        ranged(value)
    assert ".yaml: stages.0.candidates: " in str(error.value) and "\n" not in str(error.value)
