"""Compares a new release of an engine with the study's, and takes it into the study if it is shown no slower.

Baseline and winner are served by both releases, in pairs of fresh starts next to each other, on the workload that
decides. Every start is a run that is kept: the same command goes on where it was interrupted, and `servelab run`
measures only what is left of the engine's runs.
"""

import argparse
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

import bisect_releases
from packaging.version import Version

from servelab.cli.checkout import COMMAND
from servelab.core.errors import ConfigError, ServelabError
from servelab.core.files import CHECKOUT, write_text
from servelab.engines.locking import index_and_package, newest_release
from servelab.report.compare.conditions import EXIT_CODES, Word
from servelab.search.bisect import InterleavedPairs, NotServed, ReleaseStarts, Skipped, release_lock
from servelab.search.planning import effective_changes, shown
from servelab.search.proof import BASELINE, WINNER
from servelab.search.upgrade import cost_text, served_by, take_release, verdict_file
from servelab.study.project import Project

WORST_FIRST: Sequence[Word] = ("worse", "cannot tell", "same", "better")


def options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__,
        epilog="exit code 0: better or the same; 3: worse; 4: cannot tell; others: an error",
    )
    parser.add_argument("study", help="name of the study")
    parser.add_argument("--engine", required=True, help="the study's name for the engine")
    parser.add_argument("--to", metavar="VERSION", help="the new release (default: the newest of the package index)")
    parser.add_argument("--lock", type=Path, help="its lock; default: that of envs/, or one that uv resolves now")
    parser.add_argument("--recipe", help="entry of envs/recipes.yaml for a missing lock; default: the engine's name")
    parser.add_argument("--pairs", type=int, default=10, help="most pairs of starts of a comparison (default: 10)")
    parser.add_argument("--bisect", action="store_true", help="if the baseline is slower, find the release that did it")
    parser.add_argument("--yes", action="store_true", help="do not ask; without --to, print each verdict once")
    bisect_releases.add_place_options(parser)
    parser.add_argument("--watch", action="store_true", help="print a line for cron: each night, the newest release")
    return parser


def main(arguments: argparse.Namespace) -> None:
    project = bisect_releases.project_of(arguments)
    study, file, alias = project.study, project.file, arguments.engine
    entry, recipe = study.engines[alias], arguments.recipe or project.engine(alias).name
    if entry.runtime != "venv" and not (arguments.to and arguments.lock):
        raise ConfigError(f"--to, --lock: name a release and its lock; engines.{alias} is not built from packages")
    if arguments.watch:
        if arguments.to or arguments.lock:
            raise ConfigError("--watch: leave out --to and --lock: each night it tries the newest release")
        command = [sys.executable, str(CHECKOUT / COMMAND), "upgrade"]  # cron's PATH has no servelab
        line = [*command, *(word for word in sys.argv[2:] if word not in ("--watch", "--yes")), "--yes"]
        print(f"0 1 * * * cd {shlex.quote(str(Path.cwd()))} && {shlex.join(line)}")
        return
    version = arguments.to or newest_release(*index_and_package(recipe))
    if version == entry.version or not (arguments.to or Version(version) > Version(entry.version)):
        if not arguments.yes:
            print(f"{file}: engines.{alias} has {entry.version}, and {version} is not newer")
        return
    served = served_by(project, alias, Path("results/studies") / arguments.study)
    told = verdict_file(project, served, version, arguments.pairs)
    if told.exists():
        if arguments.yes and not arguments.to:
            return  # a night before said it
        print(told.read_text(encoding="utf-8"), end="")
    try:
        new_lock = arguments.lock or release_lock(project.engine(alias).name, recipe, version)
    except Skipped as why:
        raise ServelabError(str(why)) from None
    locks = {entry.version: project.lock(alias), version: new_lock}
    print(f"{alias} {entry.version} → {version}, {' and '.join(served)}, ", end="")
    print(f"{study.objective.metric} on {study.objective.on}: ", end="")
    given, place = bisect_releases.place_of(arguments)
    print(f"{cost_text(project, served, arguments.pairs, Path('results/runs'))}, {place}", flush=True)
    if not arguments.yes:
        if not sys.stdin.isatty():
            raise ConfigError("--yes: say it to start these servers where nobody can be asked")
        if input("Start? [y/N] ").strip().lower() not in ("y", "yes"):
            return
    words: dict[str, Word] = {}
    lines = []
    for name, configuration in served.items():
        if changes := effective_changes(study, configuration, configuration, version):
            print(f"{name}: this release serves it with {shown(changes)}")
        starts = ReleaseStarts(
            arguments.study, alias, locks.__getitem__, given, configuration if name == WINNER else None
        )
        words[name], line = _compare(name, starts, project, (entry.version, version), arguments.pairs)
        lines += [line] if line else []
    verdict = min(words.values(), key=WORST_FIRST.index)
    if verdict in ("better", "same"):
        take_release(file, alias, version, new_lock)
        print(f"{verdict}: {file} has {version} now; `servelab plan {arguments.study}` prints what it measures again")
    else:
        print(f"{verdict}: {file} keeps {entry.version}")
        if len(lines) == len(served):
            write_text(told, "\n".join(lines) + "\n")
    words_of_bisect = [arguments.study, "--engine", alias, "--good", entry.version, "--bad", version]
    if words.get(BASELINE) == "worse" and entry.runtime == "venv":
        print(f"To find the release that did it: servelab bisect {shlex.join(words_of_bisect)}", flush=True)
        if arguments.bisect:
            bisect_releases.main(bisect_releases.options().parse_args([*words_of_bisect, *given]))
    sys.exit(EXIT_CODES[verdict])


def _compare(
    name: str, starts: ReleaseStarts, project: Project, versions: tuple[str, str], most_pairs: int
) -> tuple[Word, str]:
    """The verdict, and its line if the same runs will always give it; it is empty if another night may tell more."""
    objective = project.study.objective
    word: Word = "cannot tell"
    try:
        starts.prepare(versions[0])
        step = InterleavedPairs(starts, most_pairs).compare(*versions, objective.margin_percent)
        word, why = step.word(objective), bisect_releases.line_of(step, objective.metric)
        lasts = True
    except Skipped as skipped:
        why, lasts = str(skipped), isinstance(skipped, NotServed)
    line = f"{name}: {word}: {why}"
    print(line, flush=True)
    return word, line if lasts else ""
