"""Names of an archive's members. `manifest.json` lists every other member with its hash."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Annotated, Literal

from pydantic import Field, ValidationError

from servelab.core.errors import ServelabError
from servelab.core.run_spec import Strict
from servelab.core.yaml_file import describe_validation_error
from servelab.study.workload_loads import NAME

MANIFEST = "manifest.json"
CRATE = "ro-crate-metadata.json"
README = "README.md"
DIFF = "workflow.diff"
RECIPE = "recipe"
"""Folder of the study file that reruns the study."""
WORKFLOW = "workflow"
"""Folder of the workflow's source, with the study's configuration and locks."""
PROVENANCE = "provenance"
"""Folder of descriptions: data sets, models and environments that the archive does not contain."""
RESULTS = "results"

MEDIA_TYPES = {
    ".cff": "application/yaml",
    ".csv": "text/csv",
    ".css": "text/css",
    ".diff": "text/x-diff",
    ".html": "text/html",
    ".json": "application/json",
    ".md": "text/markdown",
    ".parquet": "application/vnd.apache.parquet",
    ".pdf": "application/pdf",
    ".png": "image/png",
    ".py": "text/x-python",
    ".svg": "image/svg+xml",
    ".toml": "application/toml",
    ".yaml": "application/yaml",
}


def media_type(name: str) -> str:
    """Media type of a member by its name; plain text by default."""
    return MEDIA_TYPES.get(PurePosixPath(name).suffix, "text/plain")


class Member(Strict):
    """One file of an archive, after redaction (`redacted`)."""

    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")
    size_bytes: int = Field(ge=0)
    media_type: str
    redacted: bool = False


class Manifest(Strict):
    """`manifest.json`: describes an archive and lists every other member by its path."""

    format: Literal["servelab-archive/1"] = "servelab-archive/1"
    study: str = Field(pattern=NAME)
    title: str
    date: str = Field(pattern=r"^\d{4}-\d{2}-\d{2}$", description="When its last run ended; see `contents.date_of`.")
    searches: list[Annotated[str, Field(pattern=r"^(studies|recorded)/[a-z0-9][a-z0-9._-]*$")]] = Field(
        min_length=1, description="Folders below results/ whose tables are here; the first is the study's own."
    )
    commit: str | None = Field(description="The workflow's commit; null outside a checkout.")
    dirty: bool | None = Field(description="Whether files differed from that commit, as in workflow.diff.")
    omitted: dict[str, str] = Field({}, description="Files that are omitted, and why.")
    members: dict[str, Member]

    @property
    def is_live(self) -> bool:
        """Whether the study's runs were measured; the runs of a recorded study are logs."""
        return self.searches[0].startswith("studies/")

    def is_restored(self, path: str) -> bool:
        """Whether a member is restored into a results folder: raw records, and files of the archive's own studies."""
        folders = ["runs", "workloads", *self.searches]
        return any(path.startswith(f"{RESULTS}/{folder}/") for folder in folders)


def parse_manifest(content: bytes, archive: str) -> Manifest:
    """The manifest in these bytes; `ServelabError` names the archive and what is wrong."""
    try:
        manifest = Manifest.model_validate_json(content)
    except ValidationError as error:
        raise ServelabError(describe_validation_error(error, f"{archive}: {MANIFEST}", Manifest)) from None
    if MANIFEST in manifest.members:
        raise ServelabError(f"{archive}: {MANIFEST}: lists itself")
    return manifest
