"""What a report says of runs that were not measured here but taken from an archive or another results folder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from servelab.measure.imported_run import Import, read_import
from servelab.report.cells import Cell, Table


def imports_of(runs: Path, run_ids: Sequence[str]) -> dict[str, Import]:
    """The latest import of each run that has one; `runs` is `results/runs`."""
    marks = {run_id: read_import(runs / run_id) for run_id in run_ids}
    return {run_id: mark.imports[-1] for run_id, mark in marks.items() if mark}


def imported_sentence(imports: Mapping[str, Import], all_runs: int) -> str:
    """How many of the runs were imported from where; empty if none was."""
    if not imports:
        return ""
    origins = ", ".join(dict.fromkeys(found.origin for found in imports.values()))
    were = "was" if len(imports) == 1 else "were"
    return (
        f"{len(imports)} of {all_runs} runs {were} not measured here but imported from {origins}; "
        "Environment and provenance has more."
    )


def imported_table(imports: Mapping[str, Import], all_runs: int) -> Table:
    """One row for each origin, its day, and who signed."""
    groups: dict[Import, list[str]] = {}
    for run_id, found in imports.items():
        groups.setdefault(found.model_copy(update={"imported_at": found.imported_at[:10]}), []).append(run_id)
    rows = [
        [
            Cell(f"{len(members)} of {all_runs} runs", members[0]),
            Cell(found.origin, note=f"sha256 {found.archive_sha256}" if found.archive_sha256 else ""),
            Cell(found.imported_at),
            Cell(found.archive_signed_by or "not known"),
            Cell(found.run_signed_by or "not known"),
        ]
        for found, members in groups.items()
    ]
    return Table(["Runs", "From", "Imported", "Archive signed by", "Runs signed by"], rows)
