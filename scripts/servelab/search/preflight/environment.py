"""Checks each engine's environment: whether it is built, or why this machine cannot build it."""

from __future__ import annotations

from collections.abc import Iterator

from servelab.core.errors import ServelabError
from servelab.core.files import own_or_shipped
from servelab.engines.runtimes import RUNTIMES
from servelab.search.preflight import CHECKS, Check, Finding
from servelab.search.preflight.place import Place


def look(place: Place) -> Iterator[Finding]:
    """One finding per engine of the study."""
    for alias in place.project.study.engines:
        yield look_at(place, alias)


def look_at(place: Place, alias: str) -> Finding:
    """The finding of one engine of the study."""
    lock, entry = place.project.lock(alias), place.project.study.engines[alias]
    of = f"{alias} {entry.version}"
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
        return Finding(of, "error", saw, _remedy(place, alias))
    if environment is None:
        return Finding(of, "ok", f"not built yet; the first run builds it from {lock.name} ({entry.runtime})")
    return Finding(of, "ok", f"built from {lock.name} ({entry.runtime}); it reports version {environment.version}")


def _remedy(place: Place, alias: str) -> str:
    """What else serves the same release: another runtime, or the lock that is there for it."""
    entry = place.project.study.engines[alias]
    lock = f"envs/{place.project.engine(alias).name}-{entry.version}.lock.txt"
    if entry.runtime != "venv" and own_or_shipped(place.project.root, lock).exists():
        packages = f"`{alias}: {{version: {entry.version}, lock: {lock}}}`"
        return (
            f"run this where it is installed, use another runtime, or serve from packages: {packages} (docs/engines.md)"
        )
    return "run this where it is installed, or use another runtime (docs/engines.md)"


CHECKS.register("environment", Check("environment", "each engine's environment or image: built, or can be built", look))
