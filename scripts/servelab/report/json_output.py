"""Output of commands for programs: with `--json` each prints objects with these keys, one a line."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from pydantic import BaseModel

from servelab.core.errors import ConfigError, Outage, ServelabError
from servelab.report.compare.comparison_table import StudyComparison
from servelab.report.compare.conditions import EXIT_CODES, ConditionResult, verdict_of
from servelab.report.compare.page import summary
from servelab.report.page import render_markdown
from servelab.search.forecast import Forecast
from servelab.search.progress import StudyProgress
from servelab.search.recommendation_text import answer_text
from servelab.search.recommended import Recommended

OUTPUTS = {
    "check": "`study`, `errors`, `findings`",
    "plan": ", ".join(f"`{name}`" for name in Forecast.model_fields),
    "status": "`study`, `stages`, `running`, `queued`",
    "report": "`study`, `kind`, `answer`, `report`, `recommended`",
    "compare": "`a`, `b`, `summary`, `verdict`, `conditions`, `pairs`",
    "read": "a result: `file`, `line`, `tool`, `figures` by metric, `place` with label and command above it",
    "tune": "`study`, `candidates` with reasons, `left_out`, `idle`, `notes`",
    "propose": "`study`, `candidate`, `effective`",
    "explain": "`kind`, `reason`, `message`, `lines`, `remedy`",
}
"""Command → the keys of its objects."""


def print_line(output: BaseModel | Mapping[str, Any]) -> None:
    """Prints an object on one line."""
    content = output.model_dump(mode="json") if isinstance(output, BaseModel) else output
    print(json.dumps(content, ensure_ascii=False), flush=True)


def report_output(recommended: Recommended, report: str) -> dict[str, Any]:
    """A study's answer; `report` is the path of its report."""
    kind, text = answer_text(recommended)
    content = recommended.model_dump(mode="json")
    return {"study": recommended.study, "kind": kind, "answer": text, "report": report, "recommended": content}


def status_output(study: str, progress: StudyProgress, queued: list[str]) -> dict[str, Any]:
    """A study's progress; `queued` are Slurm's jobs, a line each."""
    running = [
        {"what": what, "run_id": attempt.id, "since_s": attempt.started_s, "host": attempt.host, "pid": attempt.pid}
        for attempt, what in progress.running()
    ]
    stages = [asdict(progress.stage(name)) for name in progress.stages]
    return {"study": study, "stages": stages, "running": running, "queued": queued}


def compare_output(comparison: StudyComparison, findings: list[ConditionResult]) -> dict[str, Any]:
    """Two studies, the conditions that were tried with their verdict, and the objective's rows of the comparison."""
    return {
        "a": comparison.a.name,
        "b": comparison.b.name,
        "summary": summary(comparison),
        "verdict": verdict_of(findings) if findings else None,
        "conditions": [asdict(each) | {"condition": str(each.condition)} for each in findings],
        "pairs": [row for row in comparison.table.to_pylist() if row["is_objective"]],
    }


_EXITS = {
    "0": "done; `compare`: better or the same",
    str(ServelabError.exit_code): "an error that you can mend, a failed check among them",
    str(ConfigError.exit_code): "a study, another file or an option is wrong",
    str(EXIT_CODES["worse"]): "`compare --fail-if`: worse",
    str(EXIT_CODES["cannot tell"]): "`compare --fail-if`: it cannot be told; `bisect`: none found",
    str(Outage.exit_code): "the machine failed: run it again",
}


def render_docs() -> str:
    """docs/reference/json.md."""
    rows = "".join(f"| `{command}` | {keys} |\n" for command, keys in OUTPUTS.items())
    exits = "".join(f"| {code} | {meaning} |\n" for code, meaning in _EXITS.items())
    return render_markdown("json.md.j2", {"commands": rows, "exits": exits})
