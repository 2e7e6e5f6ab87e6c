"""Whether runs that are compared were measured at one place, and what differs if they were not."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from servelab.core.identity import canonical_json
from servelab.machine.place import Place, fact_text

Row = Mapping[Any, Any]
"""A row of schemas.STAGE_TABLE."""

_NOT_RECORDED = "not recorded"


def place_columns(places: Sequence[Place | None]) -> dict[str, Any]:
    """Columns `run_places` and `places` of a candidate, from the place of each of its runs."""
    facts = {place.digest: place.facts for place in places if place is not None}
    return {
        "run_places": [None if place is None else place.digest for place in places],
        "places": canonical_json(facts) if facts else None,
    }


def places_of(row: Row) -> dict[str, str | None]:
    """The digest of each run's place; empty for logs, and for rows of an older table or an estimate."""
    places = row.get("run_places")
    if places is None or isinstance(places, float) or not len(places):
        return {}
    return dict(zip(row["run_ids"], places, strict=True))


def unequal_places(rows: Iterable[Row]) -> str | None:
    """How the places of the rows' runs differ: `driver 550.54.15 (2 runs), 570.86.10 (1 run)`; None if they do not.

    A run of an older release, whose place is not recorded, is unequal to one whose place is. Logs have no place.
    """
    place_of: dict[str, str | None] = {}
    facts_of: dict[str, dict[str, str]] = {}
    for row in rows:
        known = row.get("places")
        place_of |= places_of(row)
        facts_of |= json.loads(known) if isinstance(known, str) else {}
    counts = Counter(place_of.values())
    if len(counts) < 2:
        return None
    unknown = counts.pop(None, 0)
    texts = [f"place {_NOT_RECORDED} ({_runs(unknown)})"] if unknown else []
    for name in Place.model_fields:
        values: Counter[str] = Counter()
        for place, count in counts.items():
            values[facts_of[str(place)].get(name, "unknown")] += count
        if len(values) > 1:
            first, *others = (f"{value} ({_runs(count)})" for value, count in values.items())
            texts.append(", ".join([fact_text(name, first), *others]))
    return "; ".join(texts)


def _runs(count: int) -> str:
    return f"{count} run{'' if count == 1 else 's'}"
