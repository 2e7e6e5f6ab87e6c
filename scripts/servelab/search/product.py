"""Every combination of what the stages of a study name, for strategies that do not go stage by stage."""

from __future__ import annotations

from collections import Counter
from math import prod

from servelab.errors import ConfigError
from servelab.plan import Configuration, Variant, apply, difference, key_of, obstacle_to, start_of
from servelab.study import Study

MOST = 10_000
"""Combinations that are planned at most."""

Chosen = tuple[tuple[str, str], ...]
"""Stage and label of each choice of a combination."""


def product(study: Study) -> list[Variant]:
    """Of each stage nothing or one of its candidates, in order; each configuration once, the baseline left out.

    A candidate is taken where its stage's `when` fits what the stages before it chose. Of combinations that come to the
    same configuration the one of fewer choices stays. `ConfigError` above `MOST` combinations.
    """
    most = prod(1 + len(stage.candidates) for stage in study.stages)
    start = start_of(study).configuration
    found: dict[str, tuple[Chosen, Configuration]] = {key_of(start): ((), start)}
    for stage in study.stages:
        for chosen, configuration in list(found.values()):
            if obstacle_to(study, stage, configuration) is not None:
                continue
            for candidate in stage.candidates:
                after = apply(configuration, candidate)
                found.setdefault(key_of(after), ((*chosen, (stage.name, candidate.name)), after))
            if len(found) > MOST:
                raise ConfigError(
                    f"study {study.study}: search.strategy: {study.search.strategy} tries every combination, of which "
                    f"there are up to {most:,}, more than {MOST:,}; take `staged`, or fewer candidates"
                )
    combinations = list(found.values())[1:]
    short = [" + ".join(label for _, label in chosen) for chosen, _ in combinations]
    counts = Counter(short)
    return [
        Variant(
            name if counts[name] == 1 else " + ".join(f"{stage}: {label}" for stage, label in chosen),
            configuration,
            difference(start, configuration),
        )
        for name, (chosen, configuration) in zip(short, combinations, strict=True)
    ]
