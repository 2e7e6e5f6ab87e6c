"""The audit section of the report: what was published, and what the logs give when it is recomputed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd

from servelab.recorded.audit import VERDICTS
from servelab.recorded.logs import Logs
from servelab.report.page import Cell, Table, value_or_none
from servelab.report.stages_section import Origin
from servelab.study.project import StudySummary
from servelab.study.recorded.plan import recorded_run
from servelab.study.recorded.study import FILE, LOGS, load_recorded

Row = dict[Any, Any]


def audit_section(claims: pd.DataFrame) -> dict[str, Any]:
    """`summary`, the `published` claims, contradicted ones first, and `logs` that contradict themselves or the study.

    `claims` has rows of schemas.CLAIMS.
    """
    rows = claims.to_dict("records")
    published, logs = ([row for row in rows if row["source"] == source] for source in ("publication", "logs"))
    return {
        "summary": f"Published claims: {_counted(published)}. Checks of the logs themselves: {_counted(logs)}.",
        "published": _table(sorted(published, key=lambda row: row["verdict"] != "contradicted")),
        "logs": _table([row for row in logs if row["verdict"] in ("contradicted", "unproven")]),
    }


def _counted(rows: list[Row]) -> str:
    counts = [f"{count} {verdict}" for verdict in VERDICTS if (count := sum(row["verdict"] == verdict for row in rows))]
    return f"{len(rows)}, of these {', '.join(counts)}" if rows else "none"


def _table(rows: list[Row]) -> Table:
    columns = ["Claim", "Where", "Published", "Recomputed", "Verdict", "Points off", "Likely cause", "Why"]
    cells = [
        [
            Cell(row["claim"]),
            Cell(_place(row)),
            Cell(value_or_none(row["published"]) or "–"),
            Cell(value_or_none(row["recomputed"]) or "–"),
            Cell(row["verdict"]),
            _points(row),
            Cell(value_or_none(row["cause"]) or "–"),
            Cell(row["reason"]),
        ]
        for row in rows
    ]
    return Table(columns, cells, most=len(cells))


def _place(row: Row) -> str:
    line = value_or_none(row["line"])
    return ", ".join([*([row["where"]] if row["where"] else []), *([f"line {int(line)}"] if line else [])]) or "–"


def _points(row: Row) -> Cell:
    points = value_or_none(row["points"])
    return Cell(f"{points:.3g}" if points and row["verdict"] != "confirmed" else "–")


class RecordedLogs(Origin):
    """The logs of the recorded study in `folder`; the report is beside a copy of its `logs/`."""

    kind = "recorded"
    remark = (
        "logs/ beside this report has the logs as their tools printed them; every figure here is computed only from "
        "these logs."
    )

    def __init__(self, folder: Path) -> None:
        self._study = load_recorded(folder)
        self._logs = Logs(self._study, folder)
        self._folder = folder
        self._of_run = {
            recorded_run(self._study, folder, reference, workload).run_id: (reference, workload)
            for reference, candidate in self._study.candidates.items()
            for workload in candidate.logs
        }

    def href(self, run_id: str) -> str:
        """The run's log, the first if there are several; empty for a run without logs."""
        if run_id not in self._of_run:
            return ""
        reference, workload = self._of_run[run_id]
        logs = self._study.candidates[reference].logs[workload]
        return next((f"{LOGS}/{file}" for file in logs if self._is(file)), "")

    def _is(self, file: str) -> bool:
        """Whether a log is there."""
        return (self._folder / LOGS / file).is_file()

    def provenance(self, study: StudySummary, workload_of: dict[str, str]) -> dict[str, Table]:
        """Source, engines and workloads, logs, and definitions of a tool that differ from docs/reference/metrics.md."""
        recorded = self._study
        facts = [
            ("Published in", recorded.source),
            ("Model", recorded.model.id),
            ("Accelerator", f"{recorded.hardware.accelerator}, {recorded.hardware.per_node} in a node"),
            ("Note", recorded.note),
            ("Study file", f"config/recorded/{recorded.study}/{FILE}"),
        ]
        for name, engine in recorded.engines.items():
            facts.append((f"Engine {recorded.engine_name(name)}", f"{engine.version}, {engine.program or '–'}"))
        for name, each in recorded.workloads.items():
            text = f"{each.title}, {each.prompts} requests: {each.command or each.note or '–'}"
            facts.append((f"Workload {name}", text))
        return {
            "Source": Table(["Of", "What"], [[Cell(name), Cell(text)] for name, text in facts if text]),
            "Logs": self._log_table(),
            "Definitions of the tools": self._definitions(),
        }

    def _log_table(self) -> Table:
        rows = []
        for reference, workload in self._of_run.values():
            blocks = self._logs.rounds(reference, workload)
            broken = {each.file: each.reason for each in self._logs.broken(reference, workload)}
            for file in self._study.candidates[reference].logs[workload]:
                block = next((each for each in blocks if Path(each.file).name == file), next(iter(blocks), None))
                release, note = "–", f"broken: {broken.get(file)}"
                if file not in broken and block is not None:
                    release = f"{block.tool} {block.tool_version or ''}".strip()
                    note = "" if Path(block.file).name == file else f"the same figures as {Path(block.file).name}"
                name = Cell(file, link=f"{LOGS}/{file}" if self._is(file) else "", note=note)
                rows.append([name, Cell(reference), Cell(self._study.workloads[workload].title), Cell(release)])
        return Table(["Log", "Candidate", "Workload", "Tool, and its release if the log has it"], rows)

    def _definitions(self) -> Table:
        found: dict[tuple[str, str, str], None] = {}
        for reference, workload in self._of_run.values():
            for block in self._logs.rounds(reference, workload):
                found |= dict.fromkeys((block.tool, metric, text) for metric, text in block.definitions.items())
        rows = [[Cell(metric), Cell(tool), Cell(text)] for tool, metric, text in found]
        return Table(["Metric", "Tool", "What it means there"], rows)
