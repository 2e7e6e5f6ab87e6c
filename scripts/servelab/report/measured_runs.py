"""Evidence of a live study: software with its hashes, model, workloads, protocol, machines and commits."""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from servelab.core.errors import ServelabError
from servelab.core.identity import canonical_json, workload_id
from servelab.core.run_spec import HubSource, ModelSource, RunSpec
from servelab.core.yaml_file import MARKS, figure, mark
from servelab.measure.run_files import Import, ManifestEndpoint, ManifestShell, RunManifest, read_import
from servelab.report.improvement_tables import SIDES
from servelab.report.page import Cell, Table, value_or_none
from servelab.report.stages_section import Origin
from servelab.study.project import StudySummary
from servelab.study.study import LAST_STAGES
from servelab.study.workload_loads import LOAD_KEYS


def imports_of(runs: Path, run_ids: Sequence[str]) -> dict[str, Import]:
    """The latest import of each run that has one; `runs` is `results/runs`."""
    marks = {run_id: read_import(runs / run_id) for run_id in run_ids}
    return {run_id: mark.imports[-1] for run_id, mark in marks.items() if mark}


def imported_sentence(imports: Mapping[str, Import], all_runs: int) -> str:
    """How many of the runs were imported from where; empty if none was."""
    if not imports:
        return ""
    origins = ", ".join(dict.fromkeys(found.origin for found in imports.values()))
    were = "was" if len(imports) == 1 else "were"
    return (
        f"{len(imports)} of {all_runs} runs {were} not measured here but imported from {origins}; "
        "Environment and provenance has more."
    )


def imported_table(imports: Mapping[str, Import], all_runs: int) -> Table:
    """One row for each origin, its day, and who signed."""
    groups: dict[Import, list[str]] = {}
    for run_id, found in imports.items():
        groups.setdefault(found.model_copy(update={"imported_at": found.imported_at[:10]}), []).append(run_id)
    rows = [
        [
            Cell(f"{len(members)} of {all_runs} runs", members[0]),
            Cell(found.origin, note=f"sha256 {found.archive_sha256}" if found.archive_sha256 else ""),
            Cell(found.imported_at),
            Cell(found.archive_signed_by or "not known"),
            Cell(found.run_signed_by or "not known"),
        ]
        for found, members in groups.items()
    ]
    return Table(["Runs", "From", "Imported", "Archive signed by", "Runs signed by"], rows)


def visits_of(runs: Path, run_ids: Sequence[str]) -> dict[str, ManifestEndpoint]:
    """The server of each run that was sent to one; `runs` is `results/runs`."""
    found = {run_id: RunManifest.read(runs / run_id / "manifest.json").endpoint for run_id in run_ids}
    return {run_id: endpoint for run_id, endpoint in found.items() if endpoint}


def visited_sentence(visits: Mapping[str, ManifestEndpoint]) -> str:
    """Introduction to the table; empty if nothing was visited."""
    if not visits:
        return ""
    urls = list(dict.fromkeys(each.asked.url for each in visits.values()))
    unknown = list(dict.fromkeys(what for each in visits.values() for what in each.not_known))
    were = "was" if len(urls) == 1 else "were"
    return (
        f"{', '.join(urls)} already ran and {were} not started here. Not known: {', '.join(unknown)}. Intervals are "
        f"over visits, not over server starts: what changes from one start to the next is not in them."
    )


def visited_table(visits: Mapping[str, ManifestEndpoint]) -> Table:
    """One row for each answer that a server gave about itself, with the number of its runs."""
    groups: dict[str, list[str]] = {}
    for run_id, found in visits.items():
        groups.setdefault(found.asked.model_dump_json(), []).append(run_id)
    rows = [
        [
            Cell(asked.url, members[0]),
            Cell(str(len(members))),
            Cell(asked.model),
            Cell(asked.version or "not known"),
            Cell(asked.software or "not known"),
            Cell(f"{asked.longest_tokens:,} tokens" if asked.longest_tokens else "not known"),
        ]
        for members in groups.values()
        for asked in [visits[members[0]].asked]
    ]
    return Table(["Server", "Runs", "Model", "Version that it says", "Calls itself", "Longest sequence"], rows)


MANIFEST_PARTS = ("devices", "machine", "git")
"""Parts of a manifest that identify the machine and the code of a run."""


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
        **({"Servers that already ran": visited_table(visits)} if visits else {}),
        **({"Imported runs": imported_table(imports, len(run_ids))} if imports else {}),
    }


def _load(spec: RunSpec) -> dict[str, Any]:
    """A run's load; for a search for capacity, the quantity that it raises."""
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


_KINDS = {"startup_cold_s": "cold {}", "startup_warm_s": "warm {}"}
_UNKNOWN = "whether its weights were in the page cache is not known, or only some were"


def startup_lines(study: StudySummary, table: pd.DataFrame) -> list[str]:
    """A line for each side that started; `table` has rows of schemas.STAGE_TABLE, of older versions perhaps."""
    if "startup_s" not in table:
        return []
    on = study.objective.on
    rows = table[table["stage"].isin(LAST_STAGES) & (table["workload"] == on) & table["startup_s"].notna()]
    return [
        f"{title}: start-up {_text(row)}."
        for side, title in SIDES.items()
        for row in rows[rows["candidate"] == side].to_dict("records")[:1]
    ]


def _text(row: dict[Any, Any]) -> str:
    """Cold and warm starts; a mean of both would be neither."""
    found = [words.format(_seconds(row, name)) for name, words in _KINDS.items() if value_or_none(row[name])]
    return "; ".join(found) or f"{_seconds(row, 'startup_s')}; {_UNKNOWN}"


def _seconds(row: dict[Any, Any], name: str) -> str:
    value, low, high = (value_or_none(row[f"{name}{end}"]) for end in ("", "_ci95_low", "_ci95_high"))
    interval = "" if low is None or high is None else f" (95 % interval {figure(low)} to {figure(high)})"
    return f"{figure(value)} s{interval}"


_LEVELS = tuple(reversed(MARKS))
"""The worst first."""


class Marks:
    """The mark of each run that is not valid, put on every figure computed from the run."""

    def __init__(self, table: pd.DataFrame) -> None:
        """`table` has rows of schemas.STAGE_TABLE."""
        self._runs: dict[str, tuple[str, str]] = {
            run_id: (row["validity"], str(row["validity_note"]))
            for row in table.to_dict("records")
            if row["validity"] in MARKS
            for run_id in row["run_ids"]
        }

    def __bool__(self) -> bool:
        """Whether any figure has a mark."""
        return bool(self._runs)

    def of(self, *run_ids: str | None) -> str:
        """Mark of a figure computed from these runs, by the worst of them; empty if all are valid."""
        return mark(*(self._runs[run_id][0] for run_id in run_ids if run_id in self._runs))

    def on(self, table: Table) -> Table:
        """The table with marked figures, each with its reason."""
        return dataclasses.replace(table, rows=[[self._cell(cell) for cell in row] for row in table.rows])

    def _cell(self, cell: Cell) -> Cell:
        run_ids = [run_id for run_id in (cell.run_id, cell.against) if run_id in self._runs]
        why = "; ".join(f"{level}: {note}" for level, note in (self._runs[run_id] for run_id in run_ids))
        if not run_ids:
            return cell
        reasons = "; ".join(filter(None, (why, cell.mark_why)))
        return dataclasses.replace(cell, mark=self.of(*run_ids) + cell.mark, mark_why=reasons)


def checks_summary(checks: pd.DataFrame) -> str:
    """How many checks ran, and how many passed."""
    counts = checks["level"].value_counts()
    made = len(checks) - counts.get("not applicable", 0)
    runs = checks["run_id"].nunique()
    text = f"{made:,} checks ran on {runs:,} run{'' if runs == 1 else 's'}: {counts.get('ok', 0):,} passed"
    failed = [f"{counts[level]:,} found a run {level}" for level in _LEVELS if level in counts]
    return f"{', '.join([text, *failed])}. {counts.get('not applicable', 0):,} did not apply."


def checks_table(study: StudySummary, checks: pd.DataFrame, measured: Sequence[Mapping[Any, Any]]) -> Table:
    """Every failed check, worst first: the run, what the check saw and what to do.

    `measured` are the rows of the stages' tables and of the curves. A check of a run that is in none of them is a
    `ServelabError`.
    """
    titles = {stage.name: stage.title for stage in study.stages}
    runs: dict[Any, Any] = {}
    for row in measured:
        for run_id in row["run_ids"]:
            runs.setdefault(run_id, row)
    rows = []
    for level in _LEVELS:
        for finding in checks[checks["level"] == level].to_dict("records"):
            run = runs.get(finding["run_id"])
            if run is None:
                raise ServelabError(f"the checks name run {finding['run_id']}, which is in no table")
            workload = study.workloads.get(finding["workload"], finding["workload"])  # a workload's part has no title
            place = f"{titles.get(run['stage'], run['stage'].capitalize())}, {workload}"
            name = Cell(run["candidate"], finding["run_id"], place)
            check = Cell(str(finding["check"]).replace("_", " "), note=level)
            rows.append([name, check, Cell(finding["saw"]), Cell(value_or_none(finding["action"]) or "")])
    return Table(["Run", "Check", "What it saw", "What to do"], rows, name="checks")
