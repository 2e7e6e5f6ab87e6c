"""The difference of two shares of right answers to the same questions: its interval and test.

A question is lost if the baseline's answer is right and the candidate's wrong, gained if it is the other way round.
Only these say which side is better.
"""

from __future__ import annotations

from collections.abc import Callable
from math import comb, sqrt
from statistics import NormalDist

CONFIDENCE = 0.95


def loss_interval(lost: int, gained: int, asked: int, confidence: float = CONFIDENCE) -> tuple[float, float]:
    """Interval of the loss, as a share of all questions: negative is a gain.

    Tango's score interval for paired shares (Statistics in Medicine 17, 1998, 891-908), which holds its confidence with
    few questions too. `asked` is at least 1.
    """
    z = NormalDist().inv_cdf(0.5 + confidence / 2)
    found = (lost - gained) / asked
    low = -1.0 if found == -1 else _root(lambda loss: score(lost, gained, asked, loss) - z, -1.0, found)
    high = 1.0 if found == 1 else _root(lambda loss: score(lost, gained, asked, loss) + z, found, 1.0)
    return low, high


def score(lost: int, gained: int, asked: int, loss: float) -> float:
    """Tango's score statistic, standard normal if the true loss is `loss`."""
    surplus = lost - gained - asked * loss
    a = 2.0 * asked
    b = -lost - gained + (2 * asked - lost + gained) * loss
    c = -gained * loss * (1 - loss)
    both = (sqrt(max(0.0, b * b - 4 * a * c)) - b) / (2 * a)
    variance = asked * (2 * both + loss * (1 - loss))
    return 0.0 if surplus == 0 else surplus / sqrt(max(variance, 1e-12))


def mcnemar_p(lost: int, gained: int) -> float:
    """Two-sided p of McNemar's exact test that as many are lost as gained."""
    changed = lost + gained
    fewer = sum(comb(changed, count) for count in range(min(lost, gained) + 1))
    return float(min(1.0, 2 * fewer / 2**changed))


def smallest_seen(gained: int, asked: int, allowed: float, confidence: float = CONFIDENCE) -> float | None:
    """The smallest loss, as a share, that would be found beyond `allowed` with so many gained; None if none would."""
    for lost in range(asked - gained + 1):
        if loss_interval(lost, gained, asked, confidence)[0] > allowed:
            return (lost - gained) / asked
    return None


def _root(falling: Callable[[float], float], low: float, high: float) -> float:
    """Where a falling function crosses zero between the two, by bisection; an end if nowhere."""
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if falling(middle) > 0 else (low, middle)
    return (low + high) / 2
