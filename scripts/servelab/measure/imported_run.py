"""The mark of a run that was not measured here but restored from an archive: `imported.json` in its folder."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field

from servelab.core.json_file import JsonFile, JsonPart
from servelab.core.seal import IMPORTED


class Import(JsonPart):
    """One time that the run was restored."""

    archive: str = Field(description="Name of the archive's file.")
    archive_sha256: str = Field(description="sha256 of the archive.")
    study: str = Field(description="Study of the archive.")
    imported_at: str = Field(description="ISO 8601, UTC.")
    archive_signed_by: str | None = Field(description="Who signed the archive; null if that is not known.")
    run_signed_by: str | None = Field(description="Who signed the run where it was measured; null if not known.")


class ImportedRun(JsonFile):
    """`imported.json`; a run that was measured here has none."""

    run_id: str = Field(description="Run: the name of its folder.")
    imports: list[Import] = Field(min_length=1, description="From where, the latest last.")


def read_import(folder: Path) -> ImportedRun | None:
    """The mark of the run in a folder; None if it was measured here. A broken mark is a `ServelabError`."""
    file = folder / IMPORTED
    return ImportedRun.read(file) if file.exists() else None
