"""Finds the release of an engine that made a study's baseline slower: pairs of starts, over ever fewer releases.

Every start is a run that is kept, so the same command goes on where it was interrupted.
"""

import argparse
import sys
from pathlib import Path

from packaging.version import InvalidVersion, Version

from servelab.core.errors import ConfigError, ServelabError
from servelab.core.files import own_or_shipped
from servelab.engines import locking
from servelab.search.bisect import (
    STUDIES,
    Bisection,
    ComparedReleases,
    ReleaseStarts,
    Skipped,
    bisect,
    release_lock,
)
from servelab.search.project import load_project

NAMED, NOT_NAMED = 0, 4
"""Exit codes; 4 is also that of `servelab compare` for what cannot be told."""


def options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, epilog="exit code 0: a release is named; 4: none can be; others: an error"
    )
    parser.add_argument("study", help="name of the study whose baseline is measured on the workload that decides")
    parser.add_argument("--engine", required=True, help="the study's name for the engine of its baseline")
    parser.add_argument("--good", required=True, metavar="VERSION", help="release before the change")
    parser.add_argument("--bad", required=True, metavar="VERSION", help="release after it")
    parser.add_argument(
        "--releases", nargs="*", metavar="VERSION", help="releases between; default: those of the package index"
    )
    parser.add_argument("--recipe", help="entry of envs/recipes.yaml for missing locks; default: the engine's name")
    parser.add_argument("--pairs", type=int, default=10, help="most pairs of starts of a comparison (default: 10)")
    parser.add_argument(
        "--within", type=float, default=2.0, metavar="PERCENT", help="aim of the first comparison, ± (default: 2)"
    )
    parser.add_argument("--profile", help="profile of Snakemake; default: profiles/default")
    return parser


def main(arguments: argparse.Namespace) -> None:
    root = Path()
    file = STUDIES / f"{arguments.study}.yaml"
    project = load_project(file, root)
    if arguments.engine not in project.study.engines:
        raise ConfigError(f"{file}: --engine {arguments.engine}: the study has {', '.join(project.study.engines)}")
    if arguments.pairs < 4:
        raise ConfigError("--pairs: give at least 4, or nothing can be told apart")
    engine = project.engine(arguments.engine).name
    recipe = arguments.recipe or engine
    releases = _releases(arguments, recipe)
    own = project.study.engines[arguments.engine]
    if own.runtime != "venv":
        raise ConfigError(
            f"{file}: engines.{arguments.engine}.runtime: only releases that are built from a lock can be compared"
        )
    known = {own.version: project.lock(arguments.engine)}

    def lock(version: str) -> Path:
        return known.get(version) or release_lock(root, engine, recipe, version)

    extra = ["--profile", arguments.profile] if arguments.profile else []
    measured = ReleaseStarts(root, arguments.study, arguments.engine, lock, extra)
    metric = project.study.objective.metric
    what = f"{len(releases)} releases of {engine}, {metric} on {project.study.objective.on}"
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
    package = locking.read_recipe(own_or_shipped(Path(), "envs/recipes.yaml"), recipe).project
    return locking.releases_between(locking.package_index(), package, arguments.good, arguments.bad)


def line_of(step: ComparedReleases, metric: str) -> str:
    low, high = step.change.low, step.change.high
    change = f"{metric} {step.change.value:+.1f} % ({low:+.1f} to {high:+.1f})"
    return f"{step.old} → {step.new}: {change}, {len(step.pairs)} pairs"


def _ending(found: Bisection, metric: str) -> list[str]:
    lines = [f"passed over: {version}: {why}" for version, why in found.passed_over.items()]
    if not found.suspects:
        return [*lines, f"{found.releases[-1]} is not shown to be worse than {found.releases[0]}: nothing to search"]
    if found.guilty and found.evidence:
        return [
            *lines,
            f"{found.guilty} made it worse: {line_of(found.evidence, metric)}, on starts that chose nothing",
        ]
    if len(found.suspects) == 1:
        return [
            *lines,
            f"{found.suspects[0]} is suspected, but further pairs do not show it to be worse; more --pairs may",
        ]
    return [*lines, f"one of {', '.join(found.suspects)} made it worse; {found.last_good} is still good"]
