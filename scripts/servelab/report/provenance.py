"""Where the figures come from: software and its hashes, model, workloads, protocol, machines, commits."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from servelab.errors import ServelabError
from servelab.identity import canonical_json, workload_id
from servelab.report.inputs import Study, read
from servelab.report.table import Cell, Table
from servelab.spec import ModelSource, RunSpec

MANIFEST_PARTS = ("devices", "machine", "git")
"""Parts of a manifest that say on what a run was measured, and with which code."""


class MeasuredRuns:
    """The runs of a live study; `folder` is `results/runs`. See `servelab.report.origin.Origin`."""

    kind = "measured"
    remark = (
        "requests.parquet in a run’s folder holds the record of every request; every figure here is computed from "
        "these alone."
    )

    def __init__(self, folder: Path, study: str) -> None:
        self._folder = folder
        self.target = f"results/studies/{study}/report.html"

    def href(self, run_id: str) -> str:
        """The run's folder."""
        return f"../../runs/{run_id}/"

    def failure_href(self, run_id: str) -> str:
        """What its server printed."""
        return f"../../runs/{run_id}/server.log"

    def commit(self, run_id: str) -> str | None:
        """The commit it was measured at; None outside a checkout."""
        commit: str | None = _manifest(self._folder, run_id).get("git", {}).get("commit")
        return commit

    def image(self, run_id: str) -> str | None:
        """The image of its environment; None where it was none."""
        image: str | None = _manifest(self._folder, run_id).get("environment", {}).get("image")
        return image

    def provenance(self, study: Study, workload_of: dict[str, str]) -> dict[str, Table]:
        """From `spec.json` and `manifest.json` of all runs; a run without its files is a `ServelabError`."""
        return _tables(study, self._folder, list(workload_of), workload_of)


def _tables(study: Study, runs: Path, run_ids: Sequence[str], workload_of: dict[str, str]) -> dict[str, Table]:
    specs = {run_id: read(runs / run_id / "spec.json", RunSpec) for run_id in run_ids}
    workloads = {workload_of[run_id]: spec for run_id, spec in specs.items()}
    engines = [
        [
            Cell(f"{spec.engine.name} {spec.engine.version}", note=f"runtime {spec.engine.runtime}"),
            Cell(spec.engine.environment_sha256),
        ]
        for spec in specs.values()
    ]
    models = [
        [Cell(spec.model.id, note=f"variant {spec.model.variant}, {_format(spec)}"), Cell(_source(spec.model.source))]
        for spec in specs.values()
    ]
    assert study.protocol is not None
    protocol = {key: value for key, value in study.protocol.model_dump(mode="json").items() if value is not None}
    clients = sorted({f"{spec.client.name} {spec.client.version}" for spec in specs.values()})
    return {
        "Engines": Table(["Engine", "Environment (sha256 of its lock)"], _unique(engines)),
        "Model": Table(["Model", "Source"], _unique(models)),
        "Workloads": Table(
            ["Workload", "Requests", "Parameters"],
            [
                [
                    Cell(title, note=name),
                    Cell(workload_id(spec.workload), link=f"../../workloads/{workload_id(spec.workload)}/"),
                    Cell(_facts(spec.workload.parameters)),
                ]
                for name, title in study.workloads.items()
                if (spec := workloads.get(name))
            ],
        ),
        "Measurement": Table(
            ["What", "Value"],
            [
                [Cell("Load client"), Cell(", ".join(clients))],
                [Cell("Protocol"), Cell(_facts(protocol))],
                *([[Cell("SLOs (most)"), Cell(_facts(dict(slos)))]] if (slos := study.objective.slos) else []),
            ],
        ),
        "Machines": _machines(runs, run_ids),
    }


def _machines(runs: Path, run_ids: Sequence[str]) -> Table:
    """One row for each different machine or commit, so that figures of unlike runs are not taken for alike."""
    groups: dict[str, list[str]] = {}
    for run_id in run_ids:
        manifest = _manifest(runs, run_id)
        for device in manifest.get("devices", []):
            device.pop("index", None)  # which of several equal devices a run was lent says nothing
        groups.setdefault(canonical_json([manifest.get(part) for part in MANIFEST_PARTS]), []).append(run_id)
    rows = []
    for text, members in groups.items():
        count = Cell(f"{len(members)} of {len(run_ids)} runs", members[0])
        rows.append([count, *(Cell(_facts(part)) for part in json.loads(text))])
    return Table(["Runs", *(part.capitalize() for part in MANIFEST_PARTS)], rows)


def _manifest(runs: Path, run_id: str) -> dict[str, Any]:
    path = runs / run_id / "manifest.json"
    try:
        manifest: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ServelabError(f"{path}: not readable: {error}") from None
    return manifest


def _format(spec: RunSpec) -> str:
    return f"{spec.model.format}, converted by {spec.model.conversion}" if spec.model.conversion else spec.model.format


def _source(source: ModelSource) -> str:
    return _facts(source.model_dump(mode="json"))


def _facts(value: Any) -> str:
    """A JSON value in reading order: `key value, …`, nested ones in brackets, bytes as GiB, nulls left out."""
    if isinstance(value, dict):
        facts = {key: fact for key, fact in value.items() if fact is not None and fact != {}}
        return ", ".join(_fact(str(key), fact) for key, fact in facts.items())
    if isinstance(value, list):
        texts = [_facts(item) for item in value]
        return "; ".join(
            f"{texts.count(text)} × {text}" if texts.count(text) > 1 else text for text in dict.fromkeys(texts)
        )
    return str(value).lower() if isinstance(value, bool) else str(value)


def _fact(key: str, value: Any) -> str:
    if key.endswith("_bytes") and isinstance(value, int):
        return f"{key.removesuffix('_bytes')} {value / 2**30:.1f} GiB"
    return f"{key} ({_facts(value)})" if isinstance(value, dict) else f"{key} {_facts(value)}"


def _unique(rows: list[list[Cell]]) -> list[list[Cell]]:
    return [list(row) for row in dict.fromkeys(tuple(row) for row in rows)]
