"""Evidence of a live study: software with its hashes, model, workloads, protocol, machines and commits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from servelab.core.run_spec import HubSource, RunSpec
from servelab.measure.run_files import ManifestEndpoint, RunManifest, read_import
from servelab.report.page import Cell, Table
from servelab.report.stages_section import Origin
from servelab.study.project import StudySummary
from servelab.study.workload_loads import LOAD_KEYS

_OF_SPEC, _OF_MANIFEST = ("engine", "model", "client", "workload", "capacity"), ("devices", "machine", "git", "shell")
_NO_MATTER = {"devices": {"__all__": {"index"}}}  # which of several equal devices a run used
_FIRST_NODE = "read on the first of {} nodes only; energy and what other programs used of the other nodes are not known"


class MeasuredRuns(Origin):
    """The runs of a live study; `folder` is `results/runs`."""

    kind = "measured"
    remark = (
        "requests.parquet in a run’s folder has a record of every request; every figure here is computed only from "
        "these records."
    )

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def href(self, run_id: str) -> str:
        """The run's folder."""
        return f"../../runs/{run_id}/"

    def failure_href(self, run_id: str) -> str:
        """The server's log."""
        return f"../../runs/{run_id}/server.log"

    def manifest(self, run_id: str) -> RunManifest:
        """Its `manifest.json`."""
        return RunManifest.read(self._folder / run_id / "manifest.json")

    def warnings(self, run_ids: Sequence[str]) -> dict[str, str]:
        """Servers that were not started here, and runs that were not measured here."""
        return {"Not started here": self.visited(run_ids), "Imported": self.imported(run_ids)}

    def imported(self, run_ids: Sequence[str]) -> str:
        """How many of the runs were restored from which archives, and who signed these; empty if none was."""
        marks = [found.imports[-1] for run_id in run_ids if (found := read_import(self._folder / run_id))]
        if not marks:
            return ""
        origins = dict.fromkeys(
            f"{each.origin} ({each.imported_at[:10]}, archive signed by {each.archive_signed_by or 'nobody known'})"
            for each in marks
        )
        were = "was" if len(marks) == 1 else "were"
        return f"{len(marks)} of {len(run_ids)} runs {were} not measured here but imported from {'; '.join(origins)}."

    def visited(self, run_ids: Sequence[str]) -> str:
        """Which servers already ran, and what is not known of them."""
        visits = self._visits(run_ids).values()
        if not visits:
            return ""
        servers = dict.fromkeys(_facts(each.asked.model_dump(mode="json")) for each in visits)
        unknown = dict.fromkeys(what for each in visits for what in each.not_known)
        were = "was" if len(servers) == 1 else "were"
        return (
            f"{' / '.join(servers)} already ran and {were} not started here. Not known: {', '.join(unknown)}. "
            "Intervals are over visits, not over server starts: what changes from one start to the next is not in them."
        )

    def _visits(self, run_ids: Sequence[str]) -> dict[str, ManifestEndpoint]:
        """The server of each run that was sent to one."""
        found = {run_id: self.manifest(run_id).endpoint for run_id in run_ids}
        return {run_id: endpoint for run_id, endpoint in found.items() if endpoint}

    def model_has_name(self, run_id: str) -> bool:
        """True for weights of the hub that were not converted or quantised here; no command starts a visited server."""
        model = RunSpec.read(self._folder / run_id / "spec.json").model
        if self._visits([run_id]):
            return False
        return isinstance(model.source, HubSource) and model.source.file is None and model.conversion is None

    def provenance(self, study: StudySummary, workload_of: dict[str, str]) -> dict[str, Table]:
        """Parts of `spec.json` and `manifest.json`, each with the runs that are alike in it.

        So a reader sees which runs are not alike. A run without its files is a `ServelabError`.
        """
        found: dict[str, dict[str, list[str]]] = {}
        for run_id, workload in workload_of.items():
            spec = RunSpec.read(self._folder / run_id / "spec.json")
            manifest = self.manifest(run_id).model_dump(mode="json", exclude=_NO_MATTER)
            protocol = spec.protocol.model_dump(mode="json")
            load = {name: protocol.pop(name) for name in [*protocol] if name in LOAD_KEYS}
            sent = {"load": load, "slos": dict(study.slos_of(workload))}
            parts = spec.model_dump(mode="json", include=set(_OF_SPEC)) | {"protocol": protocol}
            parts[f"workload {workload}"] = parts.pop("workload") | sent | {"capacity": parts.pop("capacity", None)}
            for name, part in (parts | {name: manifest[name] for name in _OF_MANIFEST}).items():
                found.setdefault(name, {}).setdefault(_facts(part or {}), []).append(run_id)
        if (nodes := study.hardware.nodes) > 1:
            found["telemetry"] = {_FIRST_NODE.format(nodes): list(workload_of)}
        rows = [
            [Cell(name.capitalize()), Cell(text), Cell(f"{len(runs)} of {len(workload_of)}", runs[0])]
            for name, texts in sorted(found.items(), key=lambda of_part: not of_part[0].startswith("workload"))
            for text, runs in texts.items()
            if text
        ]
        return {"What the runs were made with": Table(["Of", "What", "Runs"], rows, most=len(rows))}


def _facts(value: Any) -> str:
    """A JSON value as text: `key value, …`, nested values in brackets, bytes as GiB, nulls omitted."""
    if isinstance(value, dict):
        facts = {key: fact for key, fact in value.items() if fact is not None and fact not in ({}, [])}
        return ", ".join(_fact(str(key), fact) for key, fact in facts.items())
    if isinstance(value, list):
        counts = Counter(_facts(item) for item in value)
        return "; ".join(f"{count} × {text}" if count > 1 else text for text, count in counts.items())
    return str(value).lower() if isinstance(value, bool) else str(value)


def _fact(key: str, value: Any) -> str:
    if key.endswith("_bytes") and isinstance(value, int):
        return f"{key.removesuffix('_bytes')} {value / 2**30:.1f} GiB"
    return f"{key} ({_facts(value)})" if isinstance(value, dict) else f"{key} {_facts(value)}"
