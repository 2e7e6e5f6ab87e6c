"""What a report says of servers that already ran: what they said of themselves, and what nobody can know of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from servelab.measure.run_files import ManifestEndpoint, RunManifest
from servelab.report.cells import Cell, Table


def visits_of(runs: Path, run_ids: Sequence[str]) -> dict[str, ManifestEndpoint]:
    """The server of each run that was sent to one; `runs` is `results/runs`."""
    found = {run_id: RunManifest.read(runs / run_id / "manifest.json").endpoint for run_id in run_ids}
    return {run_id: endpoint for run_id, endpoint in found.items() if endpoint}


def visited_sentence(visits: Mapping[str, ManifestEndpoint]) -> str:
    """What a reader must know first; empty if nothing was visited."""
    if not visits:
        return ""
    urls = list(dict.fromkeys(each.asked.url for each in visits.values()))
    unknown = list(dict.fromkeys(what for each in visits.values() for what in each.not_known))
    were = "was" if len(urls) == 1 else "were"
    return (
        f"{', '.join(urls)} already ran and {were} not started here. Not known: {', '.join(unknown)}. Intervals are "
        f"over visits, not over server starts: what changes from one start to the next is not in them."
    )


def visited_table(visits: Mapping[str, ManifestEndpoint]) -> Table:
    """One row for each answer that a server gave about itself, with the number of its runs."""
    groups: dict[str, list[str]] = {}
    for run_id, found in visits.items():
        groups.setdefault(found.asked.model_dump_json(), []).append(run_id)
    rows = [
        [
            Cell(asked.url, members[0]),
            Cell(str(len(members))),
            Cell(asked.model),
            Cell(asked.version or "not known"),
            Cell(asked.software or "not known"),
            Cell(f"{asked.longest_tokens:,} tokens" if asked.longest_tokens else "not known"),
        ]
        for members in groups.values()
        for asked in [visits[members[0]].asked]
    ]
    return Table(["Server", "Runs", "Model", "Version that it says", "Calls itself", "Longest sequence"], rows)


def not_known_table(visits: Mapping[str, ManifestEndpoint]) -> Table:
    """What cannot be known, and why."""
    found = dict.fromkeys((what, why) for each in visits.values() for what, why in each.not_known.items())
    return Table(["What", "Why"], [[Cell(what), Cell(why)] for what, why in found])
