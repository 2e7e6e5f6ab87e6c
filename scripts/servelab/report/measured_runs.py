"""Evidence of a live study: software with its hashes, model, workloads, protocol, machines and commits."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from servelab.core.identity import canonical_json, workload_id
from servelab.core.run_spec import HubSource, ModelSource, RunSpec
from servelab.measure.run_files import ManifestShell, RunManifest
from servelab.report.cells import Cell, Table
from servelab.report.imported_note import imported_sentence, imported_table, imports_of
from servelab.report.visited_servers import not_known_table, visited_sentence, visited_table, visits_of
from servelab.study.summary import StudySummary
from servelab.study.workload_loads import LOAD_KEYS

MANIFEST_PARTS = ("devices", "machine", "git")
"""Parts of a manifest that identify the machine and the code of a run."""


class MeasuredRuns:
    """The runs of a live study; `folder` is `results/runs`. See `servelab.report.evidence.Origin`."""

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
        return RunManifest.read(self._folder / run_id / "manifest.json").git.commit

    def imported(self, run_ids: Sequence[str]) -> str:
        """How many of the runs were restored from which archives; empty if none was."""
        return imported_sentence(imports_of(self._folder, run_ids), len(run_ids))

    def visited(self, run_ids: Sequence[str]) -> str:
        """Which servers already ran."""
        return visited_sentence(visits_of(self._folder, run_ids))

    def model_has_name(self, run_id: str) -> bool:
        """True for weights of the hub that were not converted or quantised here; no command starts a visited server."""
        model = RunSpec.read(self._folder / run_id / "spec.json").model
        if visits_of(self._folder, [run_id]):
            return False
        return isinstance(model.source, HubSource) and model.source.file is None and model.conversion is None

    def image(self, run_id: str) -> str | None:
        """The container image of its environment; None without a container."""
        return RunManifest.read(self._folder / run_id / "manifest.json").environment.image

    def provenance(self, study: StudySummary, workload_of: dict[str, str]) -> dict[str, Table]:
        """From `spec.json` and `manifest.json` of all runs; a run without its files is a `ServelabError`."""
        return _tables(study, self._folder, list(workload_of), workload_of)


_FIRST_NODE = "read on the first of {} nodes only; energy and what other programs used of the other nodes are not known"


def _tables(study: StudySummary, runs: Path, run_ids: Sequence[str], workload_of: dict[str, str]) -> dict[str, Table]:
    specs = {run_id: RunSpec.read(runs / run_id / "spec.json") for run_id in run_ids}
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
    protocol = {key: value for key, value in study.protocol.model_dump(mode="json").items() if key not in LOAD_KEYS}
    has_slos = any(study.slos_of(name) for name in study.workloads)
    machines, shells, nodes = *_machines(runs, run_ids), study.hardware.nodes
    imports, visits = imports_of(runs, run_ids), visits_of(runs, run_ids)
    clients = sorted({f"{spec.client.name} {spec.client.version}" for spec in specs.values()})
    return {
        "Engines": Table(["Engine", "Environment (sha256 of its lock)"], _unique(engines)),
        "Model": Table(["Model", "Source"], _unique(models)),
        "Workloads": Table(
            ["Workload", "Requests", "Parameters", "Load", *(["SLOs (most)"] if has_slos else [])],
            [
                [
                    Cell(title, note=name),
                    Cell(workload_id(spec.workload), link=f"../../workloads/{workload_id(spec.workload)}/"),
                    Cell(_facts(spec.workload.parameters)),
                    Cell(_facts(_load(spec))),
                    *([Cell(_facts(dict(study.slos_of(name))))] if has_slos else []),
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
                *([[Cell("Telemetry"), Cell(_FIRST_NODE.format(nodes))]] if nodes > 1 else []),
                *([[Cell(what), Cell(names)] for what, names in _of_the_shell(shells).items()]),
            ],
        ),
        "Machines": machines,
        **({"Servers that already ran": visited_table(visits), "Not known": not_known_table(visits)} if visits else {}),
        **({"Imported runs": imported_table(imports, len(run_ids))} if imports else {}),
    }


def _load(spec: RunSpec) -> dict[str, Any]:
    """What a run is sent; of a search for capacity, what it raises in place of the load."""
    load = spec.protocol.model_dump(mode="json", include=LOAD_KEYS)
    if spec.capacity is None:
        return load
    searched = spec.capacity.model_dump(mode="json", exclude={"of"})
    return load | {spec.capacity.of: "searched"} | {f"capacity {key}": value for key, value in searched.items()}


def _machines(runs: Path, run_ids: Sequence[str]) -> tuple[Table, list[ManifestShell]]:
    """One row for each machine and commit, so that a reader sees which runs are not alike, and each run's shell."""
    groups: dict[str, list[str]] = {}
    shells: list[ManifestShell] = []
    for run_id in run_ids:
        manifest = RunManifest.read(runs / run_id / "manifest.json")
        shells += [manifest.shell] if manifest.shell else []
        # which of several equal devices a run used does not matter
        parts = manifest.model_dump(mode="json", exclude={"devices": {"__all__": {"index"}}})
        groups.setdefault(canonical_json([parts[name] for name in MANIFEST_PARTS]), []).append(run_id)
    rows = []
    for text, members in groups.items():
        count = Cell(f"{len(members)} of {len(run_ids)} runs", members[0])
        rows.append([count, *(Cell(_facts(part)) for part in json.loads(text))])
    return Table(["Runs", *(part.capitalize() for part in MANIFEST_PARTS)], rows), shells


def _of_the_shell(shells: Sequence[ManifestShell]) -> dict[str, str]:
    """Variables of the shell that the site passed to servers, and those that did not reach them, with their runs."""
    named = {
        "Variables of the shell, passed by the site": Counter(name for shell in shells for name in shell.passed),
        "Variables of the shell that no server got": Counter(name for shell in shells for name in shell.kept_out),
    }
    return {
        what: ", ".join(
            name if count == len(shells) else f"{name} ({count} of {len(shells)} runs)"
            for name, count in sorted(counts.items())
        )
        for what, counts in named.items()
        if counts
    }


def _format(spec: RunSpec) -> str:
    return f"{spec.model.format}, converted by {spec.model.conversion}" if spec.model.conversion else spec.model.format


def _source(source: ModelSource) -> str:
    return _facts(source.model_dump(mode="json"))


def _facts(value: Any) -> str:
    """A JSON value as text: `key value, …`, nested values in brackets, bytes as GiB, nulls omitted."""
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
