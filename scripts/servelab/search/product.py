"""Every combination of the candidates of a study's stages, for strategies that do not search stage by stage."""

from __future__ import annotations

from collections import Counter
from math import prod
from typing import NamedTuple

from servelab.core.errors import ConfigError
from servelab.search.planning import obstacle_to
from servelab.study.configuration import Configuration, Variant, apply, baseline, difference, key_of
from servelab.study.study import Study

MOST = 10_000
"""Largest number of combinations that is planned."""

Chosen = tuple[tuple[str, str], ...]
"""Stage and label of each choice in a combination."""


class Combination(NamedTuple):
    """A combination of the stages' candidates."""

    variant: Variant
    """Its configuration, named by its candidates, with its changes on the baseline."""
    choices: tuple[int, ...]
    """For each stage 0 for none of its candidates, or the candidate's number from 1."""


def product(study: Study) -> list[Variant]:
    """All combinations of no candidate or one candidate per stage, without the baseline and without duplicates.

    A candidate is used only if its stage's `when` matches what the earlier stages chose. If several combinations give
    the same configuration, the first is kept. `ConfigError` above `MOST` combinations.
    """
    return [combination.variant for combination in combinations(study)[1:]]


def combinations(study: Study) -> list[Combination]:
    """`product` with the baseline first, and with what each combination chose in each stage."""
    most = prod(1 + len(stage.candidates) for stage in study.stages)
    start = baseline(study)
    found: dict[str, tuple[Chosen, Configuration]] = {key_of(start.configuration): ((), start.configuration)}
    for stage in study.stages:
        for chosen, configuration in list(found.values()):
            if obstacle_to(study, stage, configuration) is not None:
                continue
            for candidate in stage.candidates:
                after = apply(configuration, candidate)
                found.setdefault(key_of(after), ((*chosen, (stage.name, candidate.name)), after))
            if len(found) > MOST:
                raise ConfigError(
                    f"study {study.study}: search.strategy: {study.search.strategy} tries every combination; there "
                    f"are up to {most:,}, more than {MOST:,}; use `staged`, or fewer candidates"
                )
    all_of_them = list(found.values())
    short = [" + ".join(label for _, label in chosen) for chosen, _ in all_of_them]
    counts = Counter(short)
    numbers = [{each.name: number for number, each in enumerate(stage.candidates, 1)} for stage in study.stages]
    return [
        Combination(
            Variant(
                (name if counts[name] == 1 else " + ".join(f"{stage}: {label}" for stage, label in chosen))
                if chosen
                else start.candidate,
                configuration,
                difference(start.configuration, configuration),
            ),
            tuple(
                number[dict(chosen)[stage.name]] if stage.name in dict(chosen) else 0
                for stage, number in zip(study.stages, numbers, strict=True)
            ),
        )
        for name, (chosen, configuration) in zip(short, all_of_them, strict=True)
    ]
