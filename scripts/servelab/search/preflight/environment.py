"""Checks each engine's environment: whether it is built, or why this machine cannot build it."""

from __future__ import annotations

from collections.abc import Iterator

from servelab.core.errors import ServelabError
from servelab.engines.runtimes import RUNTIMES
from servelab.search.preflight import CHECKS, Check, Finding
from servelab.search.preflight.place import Place


def look(place: Place) -> Iterator[Finding]:
    """One finding per engine of the study."""
    for alias, entry in place.project.study.engines.items():
        yield _look_at(place, alias, f"{alias} {entry.version}")


def _look_at(place: Place, alias: str, of: str) -> Finding:
    lock, entry = place.project.lock(alias), place.project.study.engines[alias]
    runtime = RUNTIMES.get(entry.runtime)
    try:
        environment = place.environment(alias)
    except ServelabError as error:
        return Finding(of, "error", str(error), "remove its folder; the next run builds it again")
    if environment is None and not place.ask:
        return Finding(of, "unknown", "not built yet", None)
    obstacle = runtime.obstacle(place.project.engine(alias), lock) if place.ask else None
    if obstacle:
        first, *_, last = obstacle.splitlines()[:1] + obstacle.splitlines()[-1:]
        saw = obstacle if first == last else f"{first.partition(': ')[0]}: {last}"
        return Finding(of, "error", saw, "run this where it is installed, or use another runtime (docs/engines.md)")
    if environment is None:
        return Finding(of, "ok", f"not built yet; the first run builds it from {lock.name} ({entry.runtime})")
    return Finding(of, "ok", f"built from {lock.name} ({entry.runtime}); it reports version {environment.version}")


CHECKS.register("environment", Check("environment", "each engine's environment or image: built, or can be built", look))
