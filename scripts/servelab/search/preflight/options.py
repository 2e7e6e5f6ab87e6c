"""Checks each candidate's options and arguments against the flags of its engine's release."""

from __future__ import annotations

import re
from collections.abc import Iterator, Set
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

from packaging.version import Version

from servelab.core.errors import ConfigError
from servelab.engines.adapters import Engine
from servelab.engines.options import Checked
from servelab.engines.server_identity import serve_of
from servelab.search.preflight import CHECKS, Finding, PreflightCheck
from servelab.search.preflight.place import Known, Place
from servelab.study.configuration import apply, baseline

FLAGS = Path(__file__).parents[2] / "engines" / "flags"


@dataclass(frozen=True)
class KnownFlags:
    """The flags of one release."""

    flags: frozenset[str]
    release: str
    """Engine and release, as findings name them."""
    is_exact: bool = True
    """Whether a flag that is not among them is certainly refused."""


def list_name(engine: Engine, checked: Checked) -> str:
    """Name of a release's files in `flags`."""
    return checked.flags or f"{engine.name}-{checked.release}"


def known_flags(engine: Engine, version: str) -> KnownFlags | None:
    """The flags of a release; of the newest that is listed if it is not. None if no release of the engine is listed."""
    if own := engine.own_flags():
        return KnownFlags(own, f"Servelab's launcher of {engine.name}")
    listed = [each for each in engine.checked if (FLAGS / f"{list_name(engine, each)}.txt").exists()]
    exact = next((each for each in listed if each.release == version), None)
    found = exact or max(listed, key=lambda each: Version(each.release), default=None)
    if found is None:
        return None
    flags = (FLAGS / f"{list_name(engine, found)}.txt").read_text(encoding="utf-8").split()
    release = f"{engine.name} {found.release}" if exact else f"{engine.name} {found.release}, the newest listed here,"
    return KnownFlags(frozenset(flags), release, exact is not None and found.how == "parser")


_FLAG = re.compile(r"^--?[A-Za-z]")


def look(place: Place) -> Iterator[Finding]:
    """One finding per candidate. A refused candidate is only left out, but a refused baseline is an error."""
    stage, first = place.project.study.stages[0], baseline(place.project.study).configuration
    for candidate in stage.candidates:
        if apply(first, candidate) == first:
            yield Finding(f"{stage.name}: {candidate.name}", "warning", "is the baseline itself", "remove it")
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
        flags = known_flags(engine, place.project.study.engines[alias].version)
        if flags is None:
            yield Finding(known.name, "unknown", f"no release of {engine.name} has a list of flags here")
            continue
        yield judge(known.name, engine, given_flags(place, known), flags)


def refusal(of: str, why: str, *, is_baseline: bool) -> Finding:
    """The finding for a candidate that cannot run at all."""
    action = "fix the study: everything is compared with it" if is_baseline else "it is left out; remove or fix it"
    return Finding(of, "error" if is_baseline else "warning", f"refused: {why}", action)


def judge(of: str, engine: Engine, given: list[str], known: KnownFlags) -> Finding:
    """Every flag of the command must be a flag of the release."""
    unknown = [flag for flag in given if not engine.knows(flag, known.flags)]
    if unknown:
        near = nearest_flag(engine, unknown[0], known.flags)
        more = f" (and {', '.join(unknown[1:])})" if unknown[1:] else ""
        saw = f"{known.release} has no {unknown[0]}{more}"
        return Finding(of, "error" if known.is_exact else "warning", saw, near)
    return Finding(of, "ok", f"{len(given)} flags, all known to {known.release}")


def nearest_flag(engine: Engine, flag: str, flags: Set[str]) -> str:
    """A hint: what took its place, or the release's flags with all its words, whether they switch on or off, or the one
    most alike in letters."""
    if gone := engine.gone.get(flag):
        return gone
    words = {*flag.lstrip("-").split("-")} - {"enable", "disable", "no"}
    if alike := [each for each in sorted(flags) if words <= {*each.lstrip("-").split("-")}]:
        return f"did you mean {' or '.join(f'`{each}`' for each in sorted(alike, key=len)[:3])}?"
    alike = get_close_matches(flag, sorted(flags), n=1, cutoff=0.75)
    return f"did you mean `{alike[0]}`?" if alike else "look at the engine's own --help"


def given_flags(place: Place, known: Known) -> list[str]:
    """Flags of a candidate's serving command."""
    configuration = known.configuration
    engine, model = place.engine(known), place.project.study.model.variant_id(configuration.model)
    serve = serve_of(engine, model, configuration.options, configuration.arguments, configuration.per_server)
    try:
        command = engine.command(serve)
    except ConfigError:  # refused, which `look` reports
        return []
    # A bare `-m` belongs to Python, before the server's own flags.
    start = 3 if command[1:2] == ["-m"] else 1
    return [part.partition("=")[0] for part in command[start:] if _FLAG.match(part)]


CHECKS.register("options", PreflightCheck("options", "options and arguments against the release's flags", look))
