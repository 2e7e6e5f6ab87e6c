"""The search for a guilty release, on releases with a planted slowdown and noise between starts."""

import math
import random
from datetime import UTC, datetime, timedelta

import pytest

from servelab.search.bisect import ReleaseStart, Skipped, bisect

RELEASES = [f"0.30.{number}" for number in range(8)]


class Planted:
    """Releases of which one, and all after it, are slower; every start has noise of its own."""

    def __init__(self, guilty, slower_percent, noise_percent, seed, broken=(), failing=(), metric_rises=False, old=()):
        self.old = old
        self.random = random.Random(seed)
        self.guilty, self.broken, self.failing = guilty, broken, failing
        self.factor = 1 + slower_percent / 100 if metric_rises else 1 - slower_percent / 100
        self.noise = noise_percent / 100
        self.order, self.prepared = [], []

    def prepare(self, version):
        self.prepared.append(version)
        if version in self.broken:
            raise Skipped("no wheel")

    def measure(self, version, start):
        assert [version, start] not in self.order, "a start is measured once"
        self.order.append([version, start])
        if version in self.failing:
            raise Skipped("crashed: out of memory")
        slow = self.guilty is not None and RELEASES.index(version) >= self.guilty
        value = 500 * (self.factor if slow else 1) * math.exp(self.random.gauss(0, self.noise))
        days = timedelta(days=RELEASES.index(version) if start in self.old else 100)
        began = datetime(2026, 1, 1, tzinfo=UTC) + days + timedelta(minutes=len(self.order))
        return ReleaseStart(value, began, began + timedelta(minutes=1))


def search(planted, most_pairs=10, sign=1):
    return bisect(RELEASES, planted, sign=sign, within_percent=2, most_pairs=most_pairs)


@pytest.mark.parametrize("guilty", range(1, 8))
@pytest.mark.parametrize("rises", [False, True], ids=["rate", "latency"])
def test_the_guilty_release_is_named_with_its_evidence(guilty, rises):
    planted = Planted(guilty, 20, 1, seed=guilty, metric_rises=rises)
    found = search(planted, sign=-1 if rises else 1)
    assert (found.guilty, found.last_good) == (RELEASES[guilty], RELEASES[guilty - 1])
    assert (found.evidence.old, found.evidence.new) == (RELEASES[guilty - 1], RELEASES[guilty])
    assert found.evidence.change.value == pytest.approx(20 if rises else -20, abs=3)
    assert len(found.steps) <= 5  # good against bad, at most three halvings, the evidence


def test_starts_of_a_pair_are_next_to_each_other_in_turn():
    planted = Planted(4, 20, 1, seed=1)
    search(planted)
    good, bad = RELEASES[0], RELEASES[-1]
    assert [version for version, _ in planted.order[:6]] == [good, bad, bad, good, good, bad]


def test_starts_of_other_days_are_no_pair():
    planted = Planted(4, 20, 1, seed=1, old=(0, 1))
    found = search(planted)
    assert found.guilty == RELEASES[4]
    starts = [number for version, number in planted.order if version == RELEASES[-1]]
    assert len(found.steps[0].pairs) == len(starts) - 2  # the first two were measured days after those of the good one


def test_without_a_change_nothing_is_blamed():
    found = search(Planted(None, 0, 2, seed=3))
    assert (found.guilty, found.suspects, len(found.steps)) == (None, [], 1)


@pytest.mark.parametrize("kind", ["broken", "failing"])
def test_what_cannot_be_measured_is_passed_over_and_named(kind):
    planted = Planted(2, 20, 1, seed=5, **{kind: [RELEASES[3], RELEASES[6]]})
    found = search(planted)
    assert found.guilty == RELEASES[2]
    assert found.passed_over == {RELEASES[3]: "no wheel" if kind == "broken" else "crashed: out of memory"}
    near = search(Planted(4, 20, 1, seed=5, **{kind: [RELEASES[3]]}))
    assert near.guilty is None and near.suspects == [RELEASES[3], RELEASES[4]] and near.last_good == RELEASES[2]


def test_a_bad_release_that_cannot_be_measured_is_an_end():
    with pytest.raises(Skipped, match="no wheel"):
        search(Planted(2, 20, 1, seed=5, broken=[RELEASES[-1]]))


@pytest.mark.parametrize(
    ("slower_percent", "noise_percent", "least_named"), [(20, 3, 0.85), (10, 2, 0.9), (5, 2, 0.3), (3, 3, 0.0)]
)
def test_rarely_is_the_wrong_release_named(slower_percent, noise_percent, least_named):
    """400 searches each: the wrong release in 2 % at most, however small the change is beside the noise."""
    guilty = [random.Random(seed).randrange(1, len(RELEASES)) for seed in range(400)]
    named = [search(Planted(at, slower_percent, noise_percent, seed=seed)).guilty for seed, at in enumerate(guilty)]
    wrong = [name for name, at in zip(named, guilty, strict=True) if name not in (None, RELEASES[at])]
    right = [name for name, at in zip(named, guilty, strict=True) if name == RELEASES[at]]
    print(f"{slower_percent} % at noise {noise_percent} %: right {len(right) / 4:.1f} %, wrong {len(wrong) / 4:.1f} %")
    assert len(wrong) <= 8
    assert len(right) >= 400 * least_named


def test_noise_alone_names_a_release_rarely():
    named = [search(Planted(None, 0, 3, seed=seed)).guilty for seed in range(400)]
    assert len([name for name in named if name]) <= 8
