"""The entries of `runs_from`: places whose runs a workflow uses (`servelab.archive.shared_runs`)."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlsplit

from pydantic import Field, field_validator

from servelab.core.run_spec import Strict

KEY = "runs_from"


class RunPlace(Strict):
    """A place that has runs."""

    place: str = Field(min_length=1, description="Results folder, archive, or folder of archives; a path or `s3://…`.")
    allowed_signers: Path | None = Field(
        None, description="File of keys that you trust: only runs and archives that one of them signed are taken."
    )

    @field_validator("place")
    @classmethod
    def _without_credentials(cls, place: str) -> str:
        if place.startswith("s3://") and "@" in urlsplit(place).netloc:
            raise ValueError("has credentials in it; they come from the environment (AWS_ACCESS_KEY_ID, AWS_PROFILE)")
        return place
