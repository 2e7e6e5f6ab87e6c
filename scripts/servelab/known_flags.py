"""Flags that an engine's release has, by its own word: the help that it prints without an accelerator."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

from servelab.devices import DEVICES
from servelab.engines import Engine
from servelab.errors import ServelabError
from servelab.files import write_json
from servelab.runtimes import RUNTIMES, Environment, Needs

TIMEOUT_S = 300.0
"""Importing vLLM alone takes ten seconds and more, on a busy machine minutes."""

_OPTION = re.compile(r"^ {1,4}(-{1,2}[A-Za-z].*)$", re.MULTILINE)
"""A line of a help that names an option (argparse, click): set in a little; explanations are set in further."""
_FLAG = re.compile(r"(?:^|[\s,/])(-{1,2}[A-Za-z][\w.-]*)")


def parse_help(text: str) -> set[str]:
    """Flags that a help lists, every spelling: what stands in an option's line before its explanation."""
    listed = (re.split(r" {2,}", line, maxsplit=1)[0] for line in _OPTION.findall(text))
    return {flag for line in listed for flag in _FLAG.findall(line)}


def known_flags(engine: Engine, environment: Environment, marker: Path) -> set[str]:
    """Flags of the release in an environment; asked once and kept in `flags.json` beside its `environment.json`.

    Raises:
        ServelabError: none of the engine's help commands prints any.
    """
    commands = engine.help_commands(environment.python)
    if (kept := kept_flags(engine, environment, marker)) is not None:
        return kept
    reasons = [f"nothing is known to print the flags of {engine.name}"]
    for command in commands:
        text, reason = _ask(engine, environment, command)
        flags = parse_help(text)
        if flags and reason is None:
            write_json(_file(marker), {"commands": commands, "flags": sorted(flags)})
            return flags
        reasons.append(reason or f"`{' '.join(command[1:])}` lists no flag")
    raise ServelabError(reasons[-1])


def kept_flags(engine: Engine, environment: Environment, marker: Path) -> set[str] | None:
    """The flags that were kept when the engine was asked before; None if it was not."""
    try:
        kept = json.loads(_file(marker).read_bytes())
    except (OSError, ValueError):
        return None
    return set(kept["flags"]) if kept["commands"] == engine.help_commands(environment.python) else None


def _file(marker: Path) -> Path:
    return marker.with_name("flags.json")


def _ask(engine: Engine, environment: Environment, command: list[str]) -> tuple[str, str | None]:
    """What a help command prints, and why it failed; no accelerator is shown to it."""
    from servelab.server import Launch  # here, for httpx takes a tenth of a workflow's start

    needs = Needs(reads=[], writes=[], device=DEVICES.get("cpu"), devices=[])
    inside, variables = RUNTIMES.get(environment.runtime).enter(environment, command, {"COLUMNS": "200"}, needs)
    try:
        done = subprocess.run(
            inside,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
            stdin=subprocess.DEVNULL,
            env=Launch(inside, variables).environment,
        )
    except OSError as error:
        return "", f"{inside[0]}: {error.strerror}"
    except subprocess.TimeoutExpired:
        return "", f"`{' '.join(command[1:])}` does not answer within {TIMEOUT_S:g} s"
    if done.returncode:
        last = (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1]
        return "", f"`{' '.join(command[1:])}`: {last}"
    return done.stdout, None
