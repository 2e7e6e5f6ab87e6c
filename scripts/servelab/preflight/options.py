"""Options and arguments of each candidate, against the flags that its engine's release has."""

from __future__ import annotations

import re
from collections.abc import Iterator, Set
from pathlib import Path

from servelab.engines import Engine, Serve
from servelab.errors import ConfigError, ServelabError
from servelab.known_flags import kept_flags, known_flags
from servelab.preflight import CHECKS, Check, Finding
from servelab.preflight.candidates import Known
from servelab.preflight.place import Place
from servelab.registry import nearest

_FLAG = re.compile(r"^--?[A-Za-z]")


def look(place: Place) -> Iterator[Finding]:
    """One finding for each candidate; a refused one is measured by nobody, which only the baseline cannot bear."""
    flags_of: dict[str, Set[str] | str] = {}
    for known in place.all_candidates:
        alias = known.configuration.engine
        engine = place.project.engine(alias)
        if refused := known.planned.refused:
            yield refusal(known.name, refused, is_baseline=known.meets_all_workloads)
            continue
        if engine.checks_arguments:
            yield Finding(known.name, "ok", f"{engine.name} has no flags; keys and ranges of its settings are checked")
            continue
        if alias not in flags_of:
            flags_of[alias] = _flags(place, alias)
        flags = flags_of[alias]
        if isinstance(flags, str):
            yield Finding(known.name, "unknown", f"the flags of {engine.name} are not known here: {flags}", ASK)
            continue
        yield judge(known.name, engine, given_flags(place, known), flags)


def refusal(of: str, why: str, *, is_baseline: bool) -> Finding:
    """A candidate that cannot be run at all."""
    action = "mend the study: everything is compared with it" if is_baseline else "it is left out; drop or mend it"
    return Finding(of, "error" if is_baseline else "warning", f"refused: {why}", action)


def judge(of: str, engine: Engine, given: list[str], flags: Set[str]) -> Finding:
    """Every flag that is given must be one of the release's."""
    unknown = [flag for flag in given if not engine.knows(flag, flags)]
    if unknown:
        near = nearest_flag(unknown[0], flags)
        more = f" (and {', '.join(unknown[1:])})" if unknown[1:] else ""
        return Finding(of, "error", f"this release of {engine.name} has no {unknown[0]}{more}", near)
    return Finding(of, "ok", f"{len(given)} flags, all known to this release of {engine.name}")


def nearest_flag(flag: str, flags: Set[str]) -> str:
    """The flag of a release that was probably meant."""
    hint = re.search(r"did you mean (`\S+`)\?", nearest(flag, sorted(flags)))
    return f"did you mean {hint[1]}?" if hint else "look at the engine's own --help"


def given_flags(place: Place, known: Known) -> list[str]:
    """Flags of the command that a candidate would be served by."""
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
    except ConfigError:  # refused, and shown as such
        return []
    # A bare `-m` belongs to Python, before the server's own flags.
    start = 3 if command[1:2] == ["-m"] else 1
    return [part.partition("=")[0] for part in command[start:] if _FLAG.match(part)]


def _flags(place: Place, alias: str) -> Set[str] | str:
    """Flags of an engine's release, or why they cannot be told."""
    engine, marker = place.project.engine(alias), place.environment_file(alias)
    try:
        environment = place.environment(alias)
        if environment is None:
            return f"no {marker} yet"
        if place.ask:
            return known_flags(engine, environment, marker)
        return kept_flags(engine, environment, marker) or "nobody asked it yet"
    except ServelabError as error:
        return str(error)


ASK = "build it where it can be asked (`snakemake` with that file as target), then run this again"
CHECKS.register("options", Check("options", "options and arguments against the release's own --help", look))
