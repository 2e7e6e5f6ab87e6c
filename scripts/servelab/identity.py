"""Identity: hashes over canonical JSON, so that equal content has equal names."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from servelab.spec import RunSpec, WorkloadSpec

ID_LENGTH = 20
"""Hex digits of an id: 80 bits, no collision to fear among millions of runs."""


def canonical_json(value: Any) -> str:
    """JSON with sorted keys and no spaces: one text for one value."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def content_id(value: Any) -> str:
    """The first `ID_LENGTH` hex digits of the sha256 of `canonical_json(value)`."""
    return hashlib.sha256(canonical_json(value).encode()).hexdigest()[:ID_LENGTH]


def run_id(spec: RunSpec) -> str:
    """The name of a run's folder."""
    return content_id(spec.model_dump(mode="json"))


def workload_id(spec: WorkloadSpec) -> str:
    """The name of a workload's folder: its requests are written once and shared by all engines."""
    return content_id(spec.model_dump(mode="json"))


def file_sha256(path: Path) -> str:
    """sha256 of a file's bytes, in hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
