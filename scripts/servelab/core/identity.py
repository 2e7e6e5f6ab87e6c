"""Identity: hashes over canonical JSON, so that equal content has equal names."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path
from typing import Any

from servelab.core.run_spec import RunSpec, WorkloadSpec
from servelab.core.yaml_file import read_yaml

ID_LENGTH = 20
"""Hex digits of an id: 80 bits, so that collisions are not a concern among millions of runs."""

_COMMENT = re.compile(r"(^|\s)#.*")
_CANONICAL = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def canonical_json(value: Any) -> str:
    """JSON with sorted keys and no spaces: equal values give equal texts. `ValueError` on NaN or infinity."""
    return _CANONICAL.encode(value)


def content_id(value: Any) -> str:
    """The first `ID_LENGTH` hex digits of the sha256 of `canonical_json(value)`."""
    return hashlib.sha256(canonical_json(value).encode()).hexdigest()[:ID_LENGTH]


def run_id(spec: RunSpec | WorkloadSpec) -> str:
    """The name of the folder of a run, or of a workload, whose requests all engines share."""
    return content_id(spec.model_dump(mode="json"))


workload_id = run_id


def file_sha256(path: Path) -> str:
    """sha256 of a file's bytes, in hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def lock_sha256(path: Path) -> str:
    """sha256 of what a lock or a description of an environment says, in hex: packages with their hashes, or keys.

    Comments, layout and order do not count. `ConfigError` if a description cannot be read.
    """
    if path.suffix in (".yaml", ".yml"):
        said = json.dumps(read_yaml(path), sort_keys=True, default=str)
    else:
        lines = [_COMMENT.sub("", line) for line in path.read_text(encoding="utf-8").splitlines()]
        packages = [line.split() for line in "\n".join(lines).replace("\\\n", " ").splitlines()]
        said = canonical_json(sorted([first, *sorted(rest)] for first, *rest in filter(None, packages)))
    return hashlib.sha256(said.encode()).hexdigest()
