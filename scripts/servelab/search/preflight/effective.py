"""What each candidate changes as its engine serves it: one that changes nothing is measured for nothing."""

from __future__ import annotations

from collections.abc import Iterator

from servelab.search.effective import effective_changes, shown
from servelab.search.preflight import CHECKS, Finding, PreflightCheck
from servelab.search.preflight.place import Place


def look(place: Place) -> Iterator[Finding]:
    """One finding per candidate that differs from the baseline in settings only."""
    if not place.candidates:
        return
    first, *others = place.candidates
    seen = {"": "the baseline"}
    for known in others:
        changes = effective_changes(place.project.study, first.configuration, known.configuration)
        if changes is None:
            continue
        text = shown(changes)
        if same := seen.get(text):
            saw = f"{place.engine(known).name} serves it as {same}"
            yield Finding(known.name, "warning", saw, "remove it: it is measured a second time")
        else:
            yield Finding(known.name, "ok", text)
        seen.setdefault(text, known.name)


CHECKS.register(
    "effective",
    PreflightCheck("effective", "what a candidate changes as its engine serves it, defaults included", look),
)
