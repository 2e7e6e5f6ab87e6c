"""What a report says of recorded logs: the logs themselves, who made them, and what their figures mean."""

from __future__ import annotations

from pathlib import Path

from servelab.recorded.logs import Logs
from servelab.recorded.plan import recorded_run
from servelab.recorded.study import FILE, load_recorded
from servelab.report.inputs import Study
from servelab.report.table import Cell, Table


class RecordedLogs:
    """The logs of the recorded study in `folder`; the report lies beside a copy of its `logs/`. See report.Origin."""

    kind = "recorded"
    remark = (
        "logs/ beside this report holds the logs as their tools printed them; every figure here is computed from these "
        "alone."
    )

    def __init__(self, folder: Path) -> None:
        self._study = load_recorded(folder)
        self._logs = Logs(self._study, folder)
        self._of_run = {
            recorded_run(self._study, folder, reference, workload).run_id: (reference, workload)
            for reference, candidate in self._study.candidates.items()
            for workload in candidate.logs
        }
        self.target = f"results/recorded/{self._study.study}/report.html --configfile config/recorded.yaml"

    def href(self, run_id: str) -> str:
        """The run's log, the first one where there are several; empty for a run without."""
        if run_id not in self._of_run:
            return ""
        reference, workload = self._of_run[run_id]
        return f"logs/{self._study.candidates[reference].logs[workload][0]}"

    def failure_href(self, run_id: str) -> str:
        """Empty: what is known of a failure stands in the study."""
        return ""

    def commit(self, run_id: str) -> str | None:
        """None: nothing was measured here."""
        return None

    def image(self, run_id: str) -> str | None:
        """None: logs tell of no image."""
        return None

    def provenance(self, study: Study, workload_of: dict[str, str]) -> dict[str, Table]:
        """Source, engines, workloads, logs, and where a tool's figures mean something else than docs/metrics.md."""
        recorded = self._study
        facts = {
            "Published in": recorded.source,
            "Model": recorded.model.id,
            "Accelerator": f"{recorded.hardware.accelerator}, {recorded.hardware.per_node} in a node",
            "Note": recorded.note,
            "Study file": f"config/recorded/{recorded.study}/{FILE}",
        }
        engines = [
            [Cell(recorded.engine_name(name)), Cell(engine.version), Cell(engine.program or "–")]
            for name, engine in recorded.engines.items()
        ]
        workloads = [
            [
                Cell(workload.title, note=name),
                Cell(str(workload.prompts)),
                Cell(workload.command or workload.note or "–"),
            ]
            for name, workload in recorded.workloads.items()
        ]
        return {
            "Source": Table(["What", "Value"], [[Cell(name), Cell(text)] for name, text in facts.items() if text]),
            "Engines": Table(["Engine", "Version", "Its commands begin with"], engines),
            "Workloads": Table(["Workload", "Requests", "Load client’s command, or what is known of it"], workloads),
            "Logs": self._log_table(),
            "Definitions of the tools": self._definitions(),
        }

    def _log_table(self) -> Table:
        rows = []
        for reference, workload in self._of_run.values():
            blocks = self._logs.rounds(reference, workload)
            for file in self._study.candidates[reference].logs[workload]:
                block = next((each for each in blocks if Path(each.file).name == file), blocks[0])
                release = f"{block.tool} {block.tool_version or ''}".strip()
                same = "" if Path(block.file).name == file else f"the same figures as {Path(block.file).name}"
                name = Cell(file, link=f"logs/{file}", note=same)
                rows.append([name, Cell(reference), Cell(self._study.workloads[workload].title), Cell(release)])
        return Table(["Log", "Candidate", "Workload", "Tool, and its release where the log tells"], rows)

    def _definitions(self) -> Table:
        told: dict[tuple[str, str, str], None] = {}
        for reference, workload in self._of_run.values():
            for block in self._logs.rounds(reference, workload):
                told |= dict.fromkeys((block.tool, metric, text) for metric, text in block.definitions.items())
        return Table(
            ["Metric", "Tool", "What it means there"],
            [[Cell(metric), Cell(tool), Cell(text)] for tool, metric, text in told],
        )
