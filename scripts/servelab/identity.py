"""Identity: hashes over canonical JSON, so that equal content has equal names."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from servelab.spec import RunSpec, Settings, WorkloadSpec

ID_LENGTH = 20
"""Hex digits of an id: 80 bits, no collision to fear among millions of runs."""


_CANONICAL = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def canonical_json(value: Any) -> str:
    """JSON with sorted keys and no spaces: one text for one value."""
    return _CANONICAL.encode(value)


def content_id(value: Any) -> str:
    """The first `ID_LENGTH` hex digits of the sha256 of `canonical_json(value)`."""
    return _id_of(canonical_json(value))


def run_id(spec: RunSpec) -> str:
    """The name of a run's folder."""
    return content_id(spec.model_dump(mode="json"))


class RunIds:
    """`run_id` of runs that differ by their settings alone: what they share is encoded once for thousands of them."""

    def __init__(self, spec: RunSpec) -> None:
        self._texts = {name: canonical_json(value) for name, value in spec.model_dump(mode="json").items()}

    def __call__(self, settings: Settings) -> str:
        """Of the run with these settings."""
        texts = self._texts | {name: canonical_json(value) for name, value in settings.items()}
        return _id_of("{" + ",".join(f'"{name}":{texts[name]}' for name in sorted(texts)) + "}")


def workload_id(spec: WorkloadSpec) -> str:
    """The name of a workload's folder: its requests are written once and shared by all engines."""
    return content_id(spec.model_dump(mode="json"))


def _id_of(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:ID_LENGTH]


def file_sha256(path: Path) -> str:
    """sha256 of a file's bytes, in hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
