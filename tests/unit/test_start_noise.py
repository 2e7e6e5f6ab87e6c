"""Noise between starts, against values computed by hand."""

from __future__ import annotations

import math

import pytest

from servelab.search.decide import PRIOR, StartNoise, pooled_noise


def test_without_repeated_starts_the_prior_is_the_noise():
    assert pooled_noise([]) == pooled_noise([[100.0], [37.0]]) == PRIOR == StartNoise(2.5, 3.0)


def test_noise_is_pooled_within_configurations_and_added_to_the_prior():
    # Squares about each configuration's own mean: 2 · 0.05² and 2 · 0.03²; degrees of freedom 1 and 2.
    starts = [
        [100.0, 100 * math.exp(0.1)],
        [50.0],
        [7.0, 7 * math.exp(0.03), 7 * math.exp(-0.03)],
    ]
    noise = pooled_noise(starts)
    assert noise.freedom == 6
    assert noise.sd_percent == pytest.approx(100 * math.sqrt((3 * 0.025**2 + 0.0068) / 6))
    assert noise.sd_percent == pytest.approx(3.8024, abs=1e-4)


def test_another_prior_weighs_by_its_degrees_of_freedom():
    noise = pooled_noise([[1.0, math.exp(0.02)]], StartNoise(1.0, 9.0))
    assert noise.freedom == 10
    assert noise.sd_percent == pytest.approx(100 * math.sqrt((9 * 0.0001 + 0.0002) / 10))


@pytest.mark.parametrize("wrong", [0.0, -1.0, math.nan, math.inf])
def test_a_start_without_a_value_above_0_is_refused(wrong):
    with pytest.raises(ValueError, match="above 0"):
        pooled_noise([[1.0, wrong]])
