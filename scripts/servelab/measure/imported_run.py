"""The mark of a run that was not measured here but taken from elsewhere: `imported.json` in its folder."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field

from servelab.core.json_file import JsonFile, JsonPart
from servelab.core.seal import IMPORTED


class Import(JsonPart):
    """One time that the run was taken from an archive or another results folder."""

    archive: str | None = Field(description="Name of the archive's file; null if it was no archive.")
    archive_sha256: str | None = Field(description="sha256 of the archive.")
    study: str | None = Field(description="Study of the archive.")
    results_folder: str | None = Field(None, description="The results folder, as `runs_from` names it; else null.")
    imported_at: str = Field(description="ISO 8601, UTC.")
    archive_signed_by: str | None = Field(description="Who signed the archive; null if that is not known.")
    run_signed_by: str | None = Field(description="Who signed the run where it was measured; null if not known.")

    @property
    def origin(self) -> str:
        """The archive or the results folder."""
        return self.archive or self.results_folder or "elsewhere"


class ImportedRun(JsonFile):
    """`imported.json`; a run that was measured here has none."""

    run_id: str = Field(description="Run: the name of its folder.")
    imports: list[Import] = Field(min_length=1, description="From where, the latest last.")


def read_import(folder: Path) -> ImportedRun | None:
    """The mark of the run in a folder; None if it was measured here. A broken mark is a `ServelabError`."""
    file = folder / IMPORTED
    return ImportedRun.read(file) if file.exists() else None
