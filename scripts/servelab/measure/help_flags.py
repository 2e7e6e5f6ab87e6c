"""Flags of an engine's release, read from the help that it prints without an accelerator."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

from servelab.core.errors import ServelabError
from servelab.core.files import write_json
from servelab.core.shell_variables import shell_variables
from servelab.engines.adapters import Engine
from servelab.engines.runtimes import RUNTIMES, Environment, Needs
from servelab.machine.devices import DEVICES

TIMEOUT_S = 300.0
"""Importing vLLM alone takes ten seconds or more, and minutes on a busy machine."""

_OPTION = re.compile(r"^ {1,4}(-{1,2}[A-Za-z].*)$", re.MULTILINE)
"""A line of a help text (argparse, click) that names an option: indented by up to 4 spaces, explanations by more."""
_FLAG = re.compile(r"(?:^|[\s,/])(-{1,2}[A-Za-z][\w.-]*)")


def parse_help(text: str) -> set[str]:
    """Flags that a help text lists, with all spellings: those before the explanation in an option's line."""
    listed = (re.split(r" {2,}", line, maxsplit=1)[0] for line in _OPTION.findall(text))
    return {flag for line in listed for flag in _FLAG.findall(line)}


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
