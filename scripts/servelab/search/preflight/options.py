"""Checks each candidate's options and arguments against the flags of its engine's release."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator, Set
from dataclasses import dataclass
from pathlib import Path

from servelab.core.credentials import shell_variables
from servelab.core.errors import ConfigError, ServelabError
from servelab.core.files import write_json
from servelab.core.registry import nearest
from servelab.engines.adapters import Engine
from servelab.engines.options import Checked
from servelab.engines.runtimes import RUNTIMES, Environment, Needs
from servelab.engines.server_to_start import Serve
from servelab.machine.devices import DEVICES
from servelab.search.preflight import CHECKS, Finding, PreflightCheck
from servelab.search.preflight.place import Known, Place

FLAGS = Path(__file__).parents[2] / "engines" / "flags"


@dataclass(frozen=True)
class KnownFlags:
    """The flags of one release."""

    flags: frozenset[str]
    is_exact: bool
    """Whether the release's own parser was read; otherwise flags may be missing."""


def list_name(engine: Engine, checked: Checked) -> str:
    """Name of a release's files in `flags`."""
    return checked.flags or f"{engine.name}-{checked.release}"


def listed_flags(engine: Engine, version: str) -> KnownFlags | None:
    """The flags of exactly this release; None if there is no list of it."""
    if own := engine.own_flags():
        return KnownFlags(own, is_exact=True)
    for checked in engine.checked:
        file = FLAGS / f"{list_name(engine, checked)}.txt"
        if checked.release == version and file.exists():
            return KnownFlags(frozenset(file.read_text(encoding="utf-8").split()), checked.how == "parser")
    return None


TIMEOUT_S = 300.0
"""Importing vLLM alone takes ten seconds or more, and minutes on a busy machine."""

_OPTION = re.compile(r"^ {1,4}(-{1,2}[A-Za-z].*)$", re.MULTILINE)
"""A line of a help text (argparse, click) that names an option: indented by up to 4 spaces, explanations by more."""
_FLAG_IN_HELP = re.compile(r"(?:^|[\s,/])(-{1,2}[A-Za-z][\w.-]*)")


def parse_help(text: str) -> set[str]:
    """Flags that a help text lists, with all spellings: those before the explanation in an option's line."""
    listed = (re.split(r" {2,}", line, maxsplit=1)[0] for line in _OPTION.findall(text))
    return {flag for line in listed for flag in _FLAG_IN_HELP.findall(line)}


def known_flags(engine: Engine, environment: Environment, marker: Path) -> set[str]:
    """Flags of the release in an environment; read once and kept in `flags.json` beside its `environment.json`.

    Raises:
        ServelabError: none of the engine's help commands prints any.
    """
    commands = engine.help_commands(environment.python)
    if (kept := kept_flags(engine, environment, marker)) is not None:
        return kept
    reasons = [f"no command is known that prints the flags of {engine.name}"]
    for command in commands:
        text, reason = _run_help(engine, environment, command)
        flags = parse_help(text)
        if flags and reason is None:
            write_json(_file(marker), {"commands": commands, "flags": sorted(flags)})
            return flags
        reasons.append(reason or f"`{' '.join(command[1:])}` lists no flag")
    raise ServelabError(reasons[-1])


def kept_flags(engine: Engine, environment: Environment, marker: Path) -> set[str] | None:
    """The flags kept by an earlier `known_flags`; None if there are none, or the help commands have changed."""
    try:
        kept = json.loads(_file(marker).read_bytes())
    except (OSError, ValueError):
        return None
    return set(kept["flags"]) if kept["commands"] == engine.help_commands(environment.python) else None


def _file(marker: Path) -> Path:
    return marker.with_name("flags.json")


def _run_help(engine: Engine, environment: Environment, command: list[str]) -> tuple[str, str | None]:
    """Output of a help command, and why it failed if it did; the command sees no accelerator."""
    shell, needs = shell_variables(), Needs(reads=[], writes=[], device=DEVICES.get("cpu"), devices=[])
    inside, variables = RUNTIMES.get(environment.runtime).enter(
        environment, command, {**shell.passed, "COLUMNS": "200"}, needs
    )
    try:
        done = subprocess.run(
            inside,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
            stdin=subprocess.DEVNULL,
            env={**shell.needed, **variables},
        )
    except OSError as error:
        return "", f"{inside[0]}: {error.strerror}"
    except subprocess.TimeoutExpired:
        return "", f"`{' '.join(command[1:])}` did not finish within {TIMEOUT_S:g} s"
    if done.returncode:
        last = (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1]
        return "", f"`{' '.join(command[1:])}`: {last}"
    return done.stdout, None


_FLAG = re.compile(r"^--?[A-Za-z]")


@dataclass(frozen=True)
class Flags:
    """Flags of a release, and how they are known."""

    flags: Set[str]
    release: str
    """The release, and where the flags were read, as findings name it."""
    is_exact: bool = True
    """Whether a flag that is not among them is certainly refused."""


def look(place: Place) -> Iterator[Finding]:
    """One finding per candidate. A refused candidate is only left out, but a refused baseline is an error."""
    flags_of: dict[str, Flags | str] = {}
    for known in place.all_candidates:
        alias = known.configuration.engine
        engine = place.project.engine(alias)
        if refused := known.planned.refused:
            yield refusal(known.name, refused, is_baseline=known.meets_all_workloads)
            continue
        if engine.checks_arguments:
            saw = f"{engine.name} has no flags; the keys and ranges of its settings are checked instead"
            yield Finding(known.name, "ok", saw)
            continue
        if alias not in flags_of:
            flags_of[alias] = _flags(place, alias)
        flags = flags_of[alias]
        if isinstance(flags, str):
            yield Finding(known.name, "unknown", f"the flags of {engine.name} are not known here: {flags}", ASK)
            continue
        yield judge(known.name, engine, given_flags(place, known), flags)


def refusal(of: str, why: str, *, is_baseline: bool) -> Finding:
    """The finding for a candidate that cannot run at all."""
    action = "fix the study: everything is compared with it" if is_baseline else "it is left out; remove or fix it"
    return Finding(of, "error" if is_baseline else "warning", f"refused: {why}", action)


def judge(of: str, engine: Engine, given: list[str], known: Flags) -> Finding:
    """Every flag of the command must be a flag of the release."""
    unknown = [flag for flag in given if not engine.knows(flag, known.flags)]
    if unknown:
        near = nearest_flag(unknown[0], known.flags)
        more = f" (and {', '.join(unknown[1:])})" if unknown[1:] else ""
        saw = f"{known.release} has no {unknown[0]}{more}"
        return Finding(of, "error" if known.is_exact else "warning", saw, near)
    return Finding(of, "ok", f"{len(given)} flags, all known to {known.release}")


def nearest_flag(flag: str, flags: Set[str]) -> str:
    """A hint with the release's nearest flag."""
    hint = re.search(r"did you mean (`\S+`)\?", nearest(flag, sorted(flags)))
    return f"did you mean {hint[1]}?" if hint else "look at the engine's own --help"


def given_flags(place: Place, known: Known) -> list[str]:
    """Flags of a candidate's serving command."""
    configuration = known.configuration
    serve = Serve(
        python=Path("python"),
        model_path=Path("model"),
        model_name=place.project.study.model.variant_id(configuration.model),
        port=0,
        options=configuration.options,
        arguments=configuration.arguments,
        count=configuration.accelerators,
    )
    try:
        command = place.engine(known).command(serve)
    except ConfigError:  # refused, which `look` reports
        return []
    # A bare `-m` belongs to Python, before the server's own flags.
    start = 3 if command[1:2] == ["-m"] else 1
    return [part.partition("=")[0] for part in command[start:] if _FLAG.match(part)]


def _flags(place: Place, alias: str) -> Flags | str:
    """Flags of an engine's release, or why they are not known.

    The environment's own answer comes first, with what the release takes but leaves out of its help (vLLM 0.33.0:
    `--no-enable-…`). If there is none, Servelab's list of the release counts: a fresh clone has no environments, and
    some releases print their help only where there is a GPU.
    """
    engine = place.project.engine(alias)
    found = _asked_flags(place, alias, engine)
    version = place.project.study.engines[alias].version
    listed = listed_flags(engine, version)
    if not isinstance(found, str):
        return Flags(found | listed.flags if listed else found, f"this release of {engine.name}")
    if listed is None:
        return found
    return Flags(listed.flags, f"{engine.name} {version} (as listed by Servelab)", listed.is_exact)


def _asked_flags(place: Place, alias: str, engine: Engine) -> Set[str] | str:
    """Flags that an engine's environment prints, or why it prints none."""
    marker = place.environment_file(alias)
    try:
        environment = place.environment(alias)
        if environment is None:
            return f"no {marker} yet"
        if place.ask:
            return known_flags(engine, environment, marker)
        return kept_flags(engine, environment, marker) or "they have not been read yet"
    except ServelabError as error:
        return str(error)


ASK = "build it on a machine that can run it (`snakemake` with that file as target), then run this again"
CHECKS.register("options", PreflightCheck("options", "options and arguments against the release's own --help", look))
