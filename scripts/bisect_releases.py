"""Finds the release of an engine that made a study's baseline slower: pairs of starts, over ever fewer releases.

Every start is a run that is kept, so the same command goes on where it was interrupted.
"""

import argparse
import os
import sys
from pathlib import Path

from packaging.version import InvalidVersion, Version

from servelab.core.errors import ConfigError, ServelabError
from servelab.engines import locking
from servelab.search.bisect import (
    FIRST_PAIRS,
    STUDIES,
    Bisection,
    ComparedReleases,
    ReleaseStarts,
    Skipped,
    bisect,
    release_lock,
)
from servelab.search.project import load_project
from servelab.study.project import Project

NAMED, NOT_NAMED = 0, 4
"""Exit codes; 4 is also that of `servelab compare` for what cannot be told."""


def options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, epilog="exit code 0: a release is named; 4: none can be named; others: an error"
    )
    parser.add_argument("study", help="name of the study whose baseline is measured on the workload that decides")
    parser.add_argument("--engine", required=True, help="the study's name for the engine of its baseline")
    parser.add_argument("--good", required=True, metavar="VERSION", help="release before the change")
    parser.add_argument("--bad", required=True, metavar="VERSION", help="release after it")
    parser.add_argument("--releases", nargs="*", metavar="VERSION", help="releases between (default: all of the index)")
    parser.add_argument("--recipe", help="entry of envs/recipes.yaml for missing locks; default: the engine's name")
    parser.add_argument("--pairs", type=int, default=10, help="most pairs of starts of a comparison (default: 10)")
    parser.add_argument(
        "--within", type=float, default=2.0, metavar="PERCENT", help="aim of the first comparison, ± (default: 2)"
    )
    add_place_options(parser)
    return parser


def add_place_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options that say where releases are measured."""
    place = parser.add_mutually_exclusive_group()
    place.add_argument("--profile", help="of Snakemake, as for `servelab run`; default: this machine")
    place.add_argument("--here", action="store_true", help="in this allocation, as `servelab run --here`")


def place_of(arguments: argparse.Namespace) -> tuple[list[str], str]:
    """Options of `servelab run` from those of `add_place_options`, and where it then measures, for a plan."""
    if arguments.here:
        return ["--here"], "in this allocation"
    profile = arguments.profile or os.environ.get("SNAKEMAKE_PROFILE")
    given = ["--profile", arguments.profile] if arguments.profile else []
    return given, f"by the profile {profile}" if profile else "on this machine"


def project_of(arguments: argparse.Namespace) -> Project:
    """The study; `ConfigError` if it has no such engine, or if the pairs are too few."""
    project = load_project(STUDIES / f"{arguments.study}.yaml", Path())
    if arguments.engine not in project.study.engines:
        known = ", ".join(project.study.engines)
        raise ConfigError(f"{project.file}: --engine {arguments.engine}: the study has {known}")
    if arguments.pairs < FIRST_PAIRS:
        raise ConfigError(f"--pairs: give at least {FIRST_PAIRS}, or no difference can be shown")
    return project


def main(arguments: argparse.Namespace) -> None:
    project = project_of(arguments)
    engine = project.engine(arguments.engine).name
    recipe = arguments.recipe or engine
    releases = _releases(arguments, recipe)
    own = project.study.engines[arguments.engine]
    if own.runtime != "venv":
        where = f"{project.file}: engines.{arguments.engine}.runtime"
        raise ConfigError(f"{where}: only releases that are built from a lock can be compared")
    known = {own.version: project.lock(arguments.engine)}

    def lock(version: str) -> Path:
        return known.get(version) or release_lock(engine, recipe, version)

    given, place = place_of(arguments)
    measured = ReleaseStarts(arguments.study, arguments.engine, lock, given)
    metric = project.study.objective.metric
    what = f"{len(releases)} releases of {engine}, {metric} on {project.study.objective.on}, {place}"
    print(f"{what}: {', '.join(releases)}", flush=True)
    try:
        found = bisect(
            releases,
            measured,
            sign=project.study.objective.sign,
            within_percent=arguments.within,
            most_pairs=arguments.pairs,
            tell=lambda step: print(line_of(step, metric), flush=True),
        )
    except Skipped as why:
        raise ServelabError(f"{arguments.good} or {arguments.bad} cannot be measured: {why}") from None
    print("\n".join(_ending(found, metric)))
    sys.exit(NAMED if found.guilty else NOT_NAMED)


def _releases(arguments: argparse.Namespace, recipe: str) -> list[str]:
    """The releases to search, in order."""
    try:
        good, bad = Version(arguments.good), Version(arguments.bad)
        between = sorted({Version(each) for each in arguments.releases or []} - {good, bad})
    except InvalidVersion as error:
        raise ConfigError(f"--good, --bad, --releases: {error}; write versions as the package index does") from None
    if good >= bad or any(not good < each < bad for each in between):
        raise ConfigError("--good, --bad, --releases: the good release must be the first, and the bad one the last")
    if arguments.releases is not None:
        return [arguments.good, *map(str, between), arguments.bad]
    return locking.releases_between(*locking.index_and_package(recipe), arguments.good, arguments.bad)


def line_of(step: ComparedReleases, metric: str) -> str:
    low, high = step.change.low, step.change.high
    change = f"{metric} {step.change.value:+.1f} % ({low:+.1f} to {high:+.1f})"
    return f"{step.old} → {step.new}: {change}, {len(step.pairs)} pairs"


def _ending(found: Bisection, metric: str) -> list[str]:
    if not found.suspects:
        end = f"{found.releases[-1]} is not shown to be worse than {found.releases[0]}: nothing to search"
    elif found.guilty and found.evidence:
        end = f"{found.guilty} made it worse: {line_of(found.evidence, metric)}, on starts that chose nothing"
    elif len(found.suspects) == 1:
        end = f"{found.suspects[0]} is suspected, but further pairs do not show it to be worse; more --pairs may"
    else:
        end = f"one of {', '.join(found.suspects)} made it worse; {found.last_good} is still good"
    return [*(f"passed over: {version}: {why}" for version, why in found.passed_over.items()), end]
