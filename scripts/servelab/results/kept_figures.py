"""Figures parsed from a run's records, kept in one small file per study and run, so that each run is parsed once.

A file is used only under the key it was written with: a digest of the run's files and of all else that decides the
figures. Another key, or a damaged file, means that the run is parsed again and the file replaced.
"""

from __future__ import annotations

import hashlib
import json
import sys
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple, Self

from servelab.core.errors import ServelabError
from servelab.core.files import replacing
from servelab.core.identity import content_id
from servelab.core.seal import fault_of_digests
from servelab.metrics.tables import schemas
from servelab.results.physical_limit import LIMIT_COLUMNS
from servelab.study.study import Study

Figures = dict[str, list[dict[str, Any]]]
"""Rows of each of a run's tables, without study, run_id, workload and start; empty for a run that failed.

`limits` and `physical_limit` are no tables: they have the rows of `servelab.metrics.objective.count_beyond`,
and the one of `servelab.results.physical_limit`.
"""

_NAMES = ("study", "run_id", "workload", "start")
_COLUMNS = {
    name: [column for column in schemas.TABLES[name].names if column not in _NAMES]
    for name in ("metrics", "rounds", "checks", "timeline")
} | {"limits": ["metric", "statistic", "observations", "beyond"], "physical_limit": LIMIT_COLUMNS}
_SEALED = ("requests.parquet", "telemetry.parquet")
_LIBRARIES = ("numpy", "pyarrow")


class RunFiles(NamedTuple):
    """Content of the files of a run from which its figures are computed."""

    status: bytes
    requests: bytes
    telemetry: bytes | None
    """None where no telemetry was taken."""
    digests: list[str | None]
    """sha256 of each of these."""

    def fault(self) -> str | None:
        """Fault found by the run's seal; None if there is none, or if an earlier version measured the run."""
        return fault_of_digests(self.status, dict(zip(_SEALED, self.digests[1:], strict=True)))


def read_files(folder: Path) -> RunFiles:
    """The files of the run in `folder`; `ServelabError` if one is missing."""
    telemetry = folder / "telemetry.parquet"
    try:
        contents = (
            (folder / "status.json").read_bytes(),
            (folder / "requests.parquet").read_bytes(),
            telemetry.read_bytes() if telemetry.exists() else None,
        )
    except OSError as error:
        raise incomplete(folder, error) from None
    digests = [None if content is None else hashlib.sha256(content).hexdigest() for content in contents]
    return RunFiles(*contents, digests)


def incomplete(folder: Path, error: Exception | str) -> ServelabError:
    """The error for a run folder that cannot be read."""
    return ServelabError(f"{folder}: not a complete run ({error}); remove the folder and run again")


@dataclass(frozen=True)
class KeptFigures:
    """The kept figures of a study's runs."""

    folder: Path
    """`results/parsed/<study>`."""
    basis: str
    """Digest of what decides the figures of all runs of the study alike."""

    @classmethod
    def of(cls, study: Study, folder: Path) -> Self:
        """Those of a study under its objective, its price, its client, and the code that this process has imported."""
        basis = {
            "slos": {name: dict(study.slos_of(name)) for name in study.workloads},
            "constraints": {metric: dict(limits) for metric, limits in study.objective.constraints.items()},
            "price": study.hardware.price_per_accelerator_hour,
            "client": study.client,
            "code": _imported_code(),
            "libraries": {name: version(name) for name in _LIBRARIES},
        }
        return cls(folder, content_id(basis))

    def key(self, run_id: str, files: RunFiles) -> str:
        """Digest of everything that decides a run's figures; `run_id` represents its specification."""
        return content_id([self.basis, run_id, files.digests])

    def read(self, run_id: str, key: str) -> Figures | None:
        """The figures of a run that were kept under this key; None if there are none, or the file is damaged."""
        try:
            content = json.loads((self.folder / f"{run_id}.json").read_bytes())
            if content["key"] != key:
                return None
            return {
                name: [dict(zip(_COLUMNS[name], row, strict=True)) for row in rows]
                for name, rows in content["figures"].items()
            }
        except (OSError, ValueError, LookupError, TypeError, AttributeError):
            return None

    def write(self, run_id: str, key: str, figures: Figures) -> None:
        """Keeps the figures of a run in place of those under another key."""
        rows = {
            name: [[row.get(column) for column in _COLUMNS[name]] for row in found] for name, found in figures.items()
        }
        text = json.dumps({"key": key, "figures": rows}, ensure_ascii=False, separators=(",", ":"))
        with replacing(self.folder / f"{run_id}.json", sync=False) as temporary:
            temporary.write_text(text + "\n", encoding="utf-8")


def _imported_code() -> str:
    """Digest of the source of every module of this package that the process has imported."""
    digest = hashlib.sha256()
    for name, module in sorted(sys.modules.items()):
        if name.partition(".")[0] == "servelab" and module.__file__ is not None:
            digest.update(name.encode() + hashlib.sha256(Path(module.__file__).read_bytes()).digest())
    return digest.hexdigest()
