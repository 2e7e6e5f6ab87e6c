"""Environment of each engine: built already, or what keeps this machine from building it."""

from __future__ import annotations

from collections.abc import Iterator

from servelab.errors import ServelabError
from servelab.preflight import CHECKS, Check, Finding
from servelab.preflight.place import Place
from servelab.runtimes import RUNTIMES


def look(place: Place) -> Iterator[Finding]:
    """One finding for each engine of the study."""
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
        return Finding(of, "error", saw, "run this where it is installed, or take another runtime (docs/engines.md)")
    if environment is None:
        return Finding(of, "ok", f"not built yet; the first run builds it from {lock.name} ({entry.runtime})")
    return Finding(of, "ok", f"built from {lock.name} ({entry.runtime}); it calls itself {environment.version}")


CHECKS.register("environment", Check("environment", "each engine's environment or image: there, or to be built", look))
