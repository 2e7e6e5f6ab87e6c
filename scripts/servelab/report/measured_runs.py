"""Evidence of a live study: software with its hashes, model, workloads, protocol, machines and commits."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from servelab.core.identity import canonical_json, workload_id
from servelab.core.run_spec import HubSource, RunSpec
from servelab.measure.run_files import ManifestEndpoint, ManifestShell, RunManifest, read_import
from servelab.report.page import Cell, Table
from servelab.report.stages_section import Origin
from servelab.study.project import StudySummary
from servelab.study.workload_loads import LOAD_KEYS

MANIFEST_PARTS = ("devices", "machine", "git")
"""Parts of a manifest that identify the machine and the code of a run."""
_FIRST_NODE = "read on the first of {} nodes only; energy and what other programs used of the other nodes are not known"


class MeasuredRuns(Origin):
    """The runs of a live study; `folder` is `results/runs`."""

    kind = "measured"
    remark = (
        "requests.parquet in a run’s folder has a record of every request; every figure here is computed only from "
        "these records."
    )

    def __init__(self, folder: Path, study: str) -> None:
        self._folder = folder
        self.target = f"results/studies/{study}/report.html --config 'studies=[{study}]'"

    def href(self, run_id: str) -> str:
        """The run's folder."""
        return f"../../runs/{run_id}/"

    def failure_href(self, run_id: str) -> str:
        """The server's log."""
        return f"../../runs/{run_id}/server.log"

    def commit(self, run_id: str) -> str | None:
        """The commit at which the run was measured; None outside a checkout."""
        return self._manifest(run_id).git.commit

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
        found = {run_id: self._manifest(run_id).endpoint for run_id in run_ids}
        return {run_id: endpoint for run_id, endpoint in found.items() if endpoint}

    def model_has_name(self, run_id: str) -> bool:
        """True for weights of the hub that were not converted or quantised here; no command starts a visited server."""
        model = RunSpec.read(self._folder / run_id / "spec.json").model
        if self._visits([run_id]):
            return False
        return isinstance(model.source, HubSource) and model.source.file is None and model.conversion is None

    def image(self, run_id: str) -> str | None:
        """The container image of its environment; None without a container."""
        return self._manifest(run_id).environment.image

    def _manifest(self, run_id: str) -> RunManifest:
        return RunManifest.read(self._folder / run_id / "manifest.json")

    def provenance(self, study: StudySummary, workload_of: dict[str, str]) -> dict[str, Table]:
        """From `spec.json` and `manifest.json` of all runs; a run without its files is a `ServelabError`."""
        specs = {run_id: RunSpec.read(self._folder / run_id / "spec.json") for run_id in workload_of}
        manifests = {run_id: self._manifest(run_id) for run_id in workload_of}
        engines = [
            (f"{spec.engine.name} {spec.engine.version}", spec.engine.runtime, spec.engine.environment_sha256)
            for spec in specs.values()
        ]
        models = [
            (spec.model.id, f"variant {spec.model.variant}, {_format(spec)}", _facts(spec.model.source.model_dump()))
            for spec in specs.values()
        ]
        return {
            "Engines": _unique(["Engine", "Runtime", "Environment (sha256 of its lock)"], engines),
            "Model": _unique(["Model", "Weights", "Source"], models),
            "Workloads": _workloads(study, {workload_of[run_id]: spec for run_id, spec in specs.items()}),
            "Measurement": _measurement(study, list(specs.values()), list(manifests.values())),
            "Machines": _machines(manifests),
        }


def _unique(columns: list[str], rows: Sequence[tuple[str, ...]]) -> Table:
    return Table(columns, [[Cell(text) for text in row] for row in dict.fromkeys(rows)])


def _workloads(study: StudySummary, specs: Mapping[str, RunSpec]) -> Table:
    has_slos = any(study.slos_of(name) for name in study.workloads)
    rows = [
        [
            Cell(title, note=name),
            Cell(workload_id(spec.workload), link=f"../../workloads/{workload_id(spec.workload)}/"),
            Cell(_facts(spec.workload.parameters)),
            Cell(_facts(_load(spec))),
            *([Cell(_facts(dict(study.slos_of(name))))] if has_slos else []),
        ]
        for name, title in study.workloads.items()
        if (spec := specs.get(name))
    ]
    return Table(["Workload", "Requests", "Parameters", "Load", *(["SLOs (most)"] if has_slos else [])], rows)


def _measurement(study: StudySummary, specs: Sequence[RunSpec], manifests: Sequence[RunManifest]) -> Table:
    assert study.protocol is not None
    protocol = study.protocol.model_dump(mode="json", exclude=set(LOAD_KEYS))
    nodes = study.hardware.nodes
    facts = {
        "Load client": ", ".join(sorted({f"{spec.client.name} {spec.client.version}" for spec in specs})),
        "Protocol": _facts(protocol),
        "Telemetry": _FIRST_NODE.format(nodes) if nodes > 1 else "",
        **_of_the_shell([manifest.shell for manifest in manifests if manifest.shell]),
    }
    return Table(["What", "Value"], [[Cell(name), Cell(text)] for name, text in facts.items() if text])


def _load(spec: RunSpec) -> dict[str, Any]:
    """A run's load; for a search for capacity, the quantity that it raises."""
    load = spec.protocol.model_dump(mode="json", include=LOAD_KEYS)
    if spec.capacity is None:
        return load
    searched = spec.capacity.model_dump(mode="json", exclude={"of"})
    return load | {spec.capacity.of: "searched"} | {f"capacity {key}": value for key, value in searched.items()}


def _machines(manifests: Mapping[str, RunManifest]) -> Table:
    """One row for each machine and commit, so that a reader sees which runs are not alike."""
    groups: dict[str, list[str]] = {}
    for run_id, manifest in manifests.items():
        # which of several equal devices a run used does not matter
        parts = manifest.model_dump(mode="json", exclude={"devices": {"__all__": {"index"}}})
        groups.setdefault(canonical_json([parts[name] for name in MANIFEST_PARTS]), []).append(run_id)
    rows = []
    for text, members in groups.items():
        count = Cell(f"{len(members)} of {len(manifests)} runs", members[0])
        rows.append([count, *(Cell(_facts(part)) for part in json.loads(text))])
    return Table(["Runs", *(part.capitalize() for part in MANIFEST_PARTS)], rows)


def _of_the_shell(shells: Sequence[ManifestShell]) -> dict[str, str]:
    """Variables of the shell that the site passed to servers, and those that did not reach them, of any run."""
    named = {
        "Variables of the shell, passed by the site": {name for shell in shells for name in shell.passed},
        "Variables of the shell that no server got": {name for shell in shells for name in shell.kept_out},
    }
    return {what: ", ".join(sorted(names)) for what, names in named.items()}


def _format(spec: RunSpec) -> str:
    return f"{spec.model.format}, converted by {spec.model.conversion}" if spec.model.conversion else spec.model.format


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
