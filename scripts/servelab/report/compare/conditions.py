"""Judges a comparison by conditions such as `total_tokens_per_s < -3%`: for a job that must fail on a slower release.

The question is not whether a change was seen, but whether it lies beyond a limit. So a condition has three answers: it
is met, it is not, or the starts that were measured cannot tell.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from servelab.core.errors import ConfigError
from servelab.metrics.definitions import METRICS
from servelab.report.compare.comparison_table import (
    SAME,
    JudgedPair,
    StudyComparison,
    basis_of,
    noise_by_workload,
)
from servelab.search.decide import StartNoise, change_by_noise

Word = Literal["better", "same", "worse", "cannot tell"]
EXIT_CODES: Mapping[Word, int] = {"better": 0, "same": 0, "worse": 3, "cannot tell": 4}
"""Above those of errors (`servelab.core.errors`) and below those of signals."""
ERROR_RATE = 0.05
"""Share of comparisons without a change beyond any limit that may be called worse, and of others that may pass."""

_CONDITION = re.compile(r"\s*(?P<metric>\w+)\s*(?P<sign>[<>])\s*(?P<percent>[+-]?\d+(\.\d+)?)\s*%\s*")


@dataclass(frozen=True)
class Condition:
    """A change from the first study to the second that must not be."""

    metric: str
    percent: float
    """The limit; a change to its wrong side is one too many."""
    below: bool
    """Whether changes below the limit are the wrong ones, else those above."""

    def __str__(self) -> str:
        return f"{self.metric} {'<' if self.below else '>'} {self.percent:+g}%"


def read_condition(text: str) -> Condition:
    """The condition in words like `ttft_ms > +5%`; `ConfigError` if it is none."""
    found = _CONDITION.fullmatch(text)
    known = {metric.tag: metric for metric in METRICS}
    if found is None:
        raise ConfigError(f"--fail-if: {text!r}: write a metric, < or >, and a limit in %: 'total_tokens_per_s < -3%'")
    metric = known.get(found["metric"])
    if metric is None or metric.higher_is_better is None:
        names = ", ".join(sorted(tag for tag, each in known.items() if each.higher_is_better is not None))
        raise ConfigError(f"--fail-if: {text!r}: {found['metric']} is no metric that can be better; use {names}")
    below, percent = found["sign"] == "<", float(found["percent"])
    if below != metric.higher_is_better:
        worse = "lower" if metric.higher_is_better else "higher"
        raise ConfigError(f"--fail-if: {text!r}: {metric.tag} is worse where it is {worse}; turn {found['sign']} round")
    if percent <= -100:
        raise ConfigError(f"--fail-if: {text!r}: no figure can fall by 100 % or more; write a smaller limit")
    return Condition(metric.tag, percent, below)


@dataclass(frozen=True)
class ConditionResult:
    """One condition on one configuration and workload."""

    condition: Condition
    configuration: str
    workload: str
    word: Word
    why: str


def try_conditions(
    comparison: StudyComparison, conditions: Sequence[Condition], *, answers: bool
) -> list[ConditionResult]:
    """Every condition on every pair of runs: on the two studies' answers, else on all configurations of both.

    "Worse" is said of one in 20 comparisons at most in which no change is beyond its limit, over all conditions and
    pairs together (Bonferroni). A comparison with one change beyond its limit passes in one of 20 at most, because all
    conditions must pass: Berger 1982, "Multiparameter hypothesis testing and acceptance sampling", Technometrics 24,
    295. Both by the noise between server starts that is pooled over all configurations under a workload.
    """
    pairs = comparison.answers if answers else comparison.configurations
    level = ERROR_RATE / max(1, len(pairs) * len(conditions))
    return [_try(comparison, condition, judged, level) for condition in conditions for judged in pairs]


def verdict_of(findings: Sequence[ConditionResult]) -> Word:
    """The worst word: worse, then cannot tell, then better; the same if all are, and cannot tell without findings."""
    words = {finding.word for finding in findings} or {"cannot tell"}
    order: tuple[Word, ...] = ("worse", "cannot tell", "better", "same")
    return next(word for word in order if word in words)


def _try(comparison: StudyComparison, condition: Condition, judged: JudgedPair, level: float) -> ConditionResult:
    pair = judged.pair
    name = " → ".join(dict.fromkeys(run.label for run in pair.runs))
    word, why = _word(comparison, condition, judged, level)
    return ConditionResult(condition, name, pair.runs[0].workload, word, why)


_BY_VERDICT: Mapping[str, Word] = {SAME: "same", "new failure": "worse", "fixed failure": "better"}
"""Verdict of a pair that has no change → the word of every condition."""


def _word(comparison: StudyComparison, condition: Condition, judged: JudgedPair, level: float) -> tuple[Word, str]:
    if judged.change is None:
        return _BY_VERDICT.get(judged.verdict, "cannot tell"), f"{judged.verdict}: {judged.why}"
    runs = judged.pair.both
    basis = basis_of(comparison.a, condition.metric, judged.pair)
    before, after = (run.values(condition.metric, basis) for run in runs)
    if not (before and after) or min(*before, *after) <= 0:
        return "cannot tell", f"{condition.metric} is missing or 0 on a side"
    noise = noise_by_workload(comparison.a, comparison.b, condition.metric, basis)[runs[0].workload]
    return _against(condition, before, after, noise, level)


def _against(
    condition: Condition, before: Sequence[float], after: Sequence[float], noise: StartNoise, level: float
) -> tuple[Word, str]:
    """The answer for one change: its one-sided limits at `level` decide for worse, at `ERROR_RATE` for passing."""
    strict, loose = (change_by_noise(after, before, noise, alpha) for alpha in (level, ERROR_RATE))
    text = f"{loose.value:+.1f} %"
    assert strict.low is not None and strict.high is not None and loose.low is not None and loose.high is not None
    text += f" (90 % interval {loose.low:+.1f} to {loose.high:+.1f} %)"
    limit = condition.percent
    met, passed, gained = (
        (strict.high < limit, loose.low > limit, strict.low > 0)
        if condition.below
        else (strict.low > limit, loose.high < limit, strict.high < 0)
    )
    if met:
        return "worse", f"{text} is beyond {limit:+g} %"
    if passed:
        return "better" if gained else "same", f"{text} is within {limit:+g} %"
    return "cannot tell", f"{text} includes {limit:+g} %: measure more server starts (proof.pairs) or widen the limit"


def names_of(folders: Sequence[Path]) -> list[str]:
    """Names of two studies: those of their folders, with `-a` and `-b` if they are equal."""
    names = [folder.resolve().name for folder in folders]
    return [f"{name}-{side}" for name, side in zip(names, "ab", strict=True)] if len({*names}) == 1 else names
