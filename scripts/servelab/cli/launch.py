"""The installed `servelab`: runs the command of the checkout that the current folder is in.

Elsewhere it is that of the installed package, which has the whole checkout's files. So the command, its scripts and the
workflow are always of one version.
"""

from __future__ import annotations

import argparse
import ast
import importlib
import os
import sys
from collections.abc import Callable, Sequence
from importlib.metadata import version
from itertools import takewhile
from pathlib import Path

from servelab.cli.checkout import (
    COMMAND,
    check_names,
    find_checkout,
    named_studies,
    study_names,
    this_place,
)
from servelab.core.errors import ConfigError
from servelab.core.files import CHECKOUT, own_or_shipped
from servelab.core.registry import nearest
from servelab.core.run_spec import DISTURBED, FAILED, NOTHING
from servelab.core.yaml_file import read_shipped

PROFILE, SLURM = Path("profiles/default"), Path("profiles/slurm")
SNAKEFILE = Path("Snakefile")
_FOUND = ("Snakefile", "workflow/Snakefile")
"""Files that Snakemake finds by itself."""
_CONFIG = ("--config", "-C")
AGAIN = "--again"
"""Option of `servelab run`: runs to measure again."""
HERE, SBATCH = "--here", "--sbatch"
"""Options of `servelab run`: the whole study in this allocation, and the batch script that does so."""
_QUIET = ("--quiet", "all")
"""Without Snakemake's own listing."""
_TEXTS: dict[str, str] = read_shipped(Path(__file__).with_suffix(".yaml"))


def snakemake_line(
    fixed: Sequence[str],
    words: Sequence[str],
    known: Sequence[str],
    profile: str | None = None,
    root: Path = CHECKOUT,
) -> list[str]:
    """Arguments of `snakemake`: a profile, what the subcommand fixes, the studies that `words` begin with, all others.

    `known` are the studies that there are, `profile` is Snakemake's own default, `root` the folder where it will run:
    if it has no workflow of its own, the checkout's is named. `ConfigError` for another study.
    """
    words, again = _without_again(words, root)
    studies = _studies(words)
    check_names(studies, known)
    rest = list(words[len(studies) :])
    installed = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config", "snakemake/slurm")
    at = next((at for at in range(1, len(rest)) if rest[at - 1 : at + 1] == ["--profile", "slurm"]), 0)
    if at and not installed.exists():
        rest[at] = _named(root, SLURM)  # its site is the one that config/config.yaml names
    is_given = any(word == "--profile" or word.startswith("--profile=") for word in rest)
    line = [] if is_given or profile else ["--profile", _named(root, PROFILE)]
    if not any((root / each).is_file() for each in _FOUND):
        line += ["--snakefile", _named(root, SNAKEFILE)]
    line += fixed
    named = {"studies": studies, "again": again}
    if keys := [f"{name}=[{','.join(found)}]" for name, found in named.items() if found]:
        # Snakemake reads every word after `--config` as a key, and of two `--config` only the last.
        at = next((place for place, word in enumerate(rest) if word in (*_CONFIG, "--")), len(rest))
        given = 1 if rest[at:] and rest[at] in _CONFIG else 0
        rest[at : at + given] = ["--config", *keys]
    return line + rest


def _without_again(words: Sequence[str], root: Path) -> tuple[list[str], list[str]]:
    """The words without `--again` and the runs that it names; `ConfigError` if there is no such run."""
    left = list(words)
    if AGAIN not in left:
        return left, []
    at = left.index(AGAIN)
    runs = list(takewhile(lambda word: not word.startswith("-"), left[at + 1 :]))
    for run in runs:
        if run not in (DISTURBED, FAILED, NOTHING) and not any((root / "results/runs").glob(f"{run}*/status.json")):
            raise ConfigError(f"{AGAIN} {run}: no run in results/runs begins with that; or say {DISTURBED} or {FAILED}")
    if not runs:
        raise ConfigError(f"{AGAIN}: say which runs: {DISTURBED}, {FAILED}, or the beginning of a run's id")
    return left[:at] + left[at + 1 + len(runs) :], runs


def _studies(words: Sequence[str]) -> list[str]:
    return list(takewhile(lambda word: not word.startswith("-"), words))


def _named(root: Path, name: Path) -> str:
    """A file of the folder where Snakemake runs, or the checkout's, as a word of its command line."""
    found = own_or_shipped(root, name)
    return str(found.relative_to(root) if found.is_relative_to(root) else found)


def read_from(parser: argparse.ArgumentParser, arguments: Sequence[str], here: Path, root: Path) -> argparse.Namespace:
    """The arguments, typed in the folder `here`, with every path relative to `root`, where the program will run.

    A positional argument without a folder that is no file here stays as it is: it may be the name of a study.
    """
    for action in parser._actions:
        if action.type is Path:
            action.type = _path(here, root, is_name=not action.option_strings)
    return parser.parse_args(arguments)


def _path(here: Path, root: Path, *, is_name: bool) -> Callable[[str], Path]:
    def path(text: str) -> Path:
        given = here / text
        if is_name and not given.exists() and Path(text).name == text:
            return Path(text)
        return Path(os.path.relpath(given, root)) if given.is_relative_to(root) else given

    return path


class Script:
    """Runs `scripts/<script>.py`, which has its options in `options()` and its work in `main(arguments)`."""

    def __init__(self, script: str, text: str = "") -> None:
        self._script, self._text = script, text

    @property
    def text(self) -> str:
        """Its own, or the docstring of the script, which is not imported for that."""
        file = Path(__file__).parents[2] / f"{self._script}.py"
        return self._text or ast.get_docstring(ast.parse(file.read_bytes())) or ""

    def parser(self, name: str) -> argparse.ArgumentParser:
        """Its options."""
        parser: argparse.ArgumentParser = importlib.import_module(self._script).options()
        parser.prog = f"servelab {name}"
        return parser

    def start(self, name: str, root: Path, words: Sequence[str]) -> None:
        """Does it in a checkout or a folder of studies, with the words after the subcommand."""
        arguments = read_from(self.parser(name), words, Path.cwd(), root)
        os.chdir(root)
        importlib.import_module(self._script).main(arguments)


class Workflow:
    """Runs Snakemake on the studies that are named, or on those of config/config.yaml.

    `servelab plan --json` prints an object for each study instead.
    """

    def __init__(self, fixed: Sequence[str], text: str) -> None:
        self._fixed, self.text = fixed, text

    def start(self, name: str, root: Path, words: Sequence[str]) -> None:
        """See `Script.start`; Snakemake takes the place of this process."""
        if any(word in ("-h", "--help") for word in words):
            print(f"{self.text}\n\nUsage: servelab {name} {_TEXTS['words']}")
            return
        os.chdir(root)
        given, is_json = words, "--json" in words and name in ("plan", "run")
        words = [word for word in words if not is_json or word != "--json"]
        studies, known = _studies(words), study_names(root)
        check_names(studies, known)
        if is_json and name == "plan":
            from servelab.measure.sealed_runs import SealedRuns  # here, as other subcommands need none of these
            from servelab.report.json_output import print_line
            from servelab.search.forecast import forecast

            runs = SealedRuns(Path("results/runs"), report=lambda line: print(line, file=sys.stderr))
            for project in named_studies(studies):
                print_line(forecast(project, Path("results"), runs.is_complete))
            return
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # with it, as in many images, each rule compiles all code
        variables: dict[str, str] = {}
        if SBATCH in words or HERE in words:
            from servelab.cli import here  # takes a second, and most commands need it not

            if SBATCH in words:
                print(here.batch_script(studies, root))
                return
            if step := here.step_on_node(given):
                os.execvpe(step[0][0], *step)  # noqa: S606
            rest = [word for word in words[len(studies) :] if word != HERE]
            own, variables = here.here_words(here.hardware_of(studies, root))
            words = [*studies, *own, *rest]
            os.environ.pop("SNAKEMAKE_PROFILE", None)  # it may submit jobs
        fixed = [word for word in self._fixed if "--verbose" not in words or word not in _QUIET]
        line = snakemake_line(fixed, words, known, os.environ.get("SNAKEMAKE_PROFILE"), root)
        # The workflow's jobs call `python`, which must be the one of this environment.
        variables["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
        sys.stdout.flush()
        if is_json:
            from servelab.workflow.progress_lines import run_for_programs

            os.environ.update(variables)
            run_for_programs(line)
        command = [sys.executable, "-m", "snakemake", *line]
        os.execve(sys.executable, command, {**os.environ, **variables})  # noqa: S606


COMMANDS: dict[str, Script | Workflow] = {
    "demo": Script("run_demo"),
    "tune": Script("tune_command"),
    "init": Script("tune_command", _TEXTS["init"]),
    "check": Script("check_studies"),
    "plan": Workflow(["--dry-run", *_QUIET], _TEXTS["plan"]),
    "run": Workflow([], _TEXTS["run"]),
    "propose": Script("propose_candidate"),
    "status": Script("status"),
    "report": Script("show_recommendation"),
    "compare": Script("compare_studies"),
    "upgrade": Script("upgrade_engine"),
    "bisect": Script("bisect_releases"),
    "bench": Script("bench_server"),
    "archive": Workflow(["archive"], _TEXTS["archive"]),
    "verify": Script("verify_archive"),
    "restore": Script("restore_archive"),
    "read": Script("read_log"),
    "explain": Script("explain_log"),
}
"""Subcommands in the order of a study's life."""


def servelab(words: Sequence[str]) -> None:
    """Runs a subcommand with the words after it; an error that the user can fix is a `ServelabError`."""
    name, *rest = words or ["--help"]
    if name in ("-h", "--help"):
        print(_TEXTS["servelab"])
        for each, command in COMMANDS.items():
            print(f"  {each:10}{command.text.splitlines()[0]}")
    elif name == "--version":
        print(f"servelab {version('servelab')}")
    elif name not in COMMANDS:
        raise ConfigError(f"servelab {name}: no such command{nearest(name, list(COMMANDS))}")
    else:
        COMMANDS[name].start(name, this_place(), rest)


def main() -> None:
    """Runs the command of the checkout around the current folder, or of the installed one, in place of this process."""
    checkout = find_checkout(Path.cwd()) or CHECKOUT
    os.execv(sys.executable, [sys.executable, str(checkout / COMMAND), *sys.argv[1:]])  # noqa: S606
