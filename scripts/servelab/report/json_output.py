"""Output of commands for programs: with `--json` each prints objects of these types, one a line."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from datetime import datetime
from typing import Any, Literal, TextIO

from pydantic import BaseModel, Field
from pydantic.json_schema import models_json_schema

from servelab.core.credentials import shown
from servelab.core.errors import ConfigError, Outage, ServelabError
from servelab.core.files import JsonPart
from servelab.report.compare.comparison_table import StudyComparison
from servelab.report.compare.conditions import EXIT_CODES, ConditionResult, Word, verdict_of
from servelab.report.compare.page import summary
from servelab.report.page import render_markdown
from servelab.search.forecast import Forecast
from servelab.search.preflight import PreflightRow
from servelab.search.recommended import Recommended


class CheckOutput(JsonPart):
    """`servelab check`: a study."""

    study: str
    errors: int = Field(description="Findings whose verdict is `error`.")
    findings: list[PreflightRow]


class ReportOutput(JsonPart):
    """`servelab report`: a study's answer."""

    study: str
    kind: str = Field(description="`win`, `keep` or `unsure`.")
    answer: str = Field(description="The answer in one sentence.")
    report: str = Field(description="Path of the report.")
    recommended: Recommended = Field(description="`recommended.json`.")


class StatusOutput(JsonPart):
    """`servelab status`: a study."""

    study: str
    stages: list[dict[str, Any]] = Field(description="Progress of each stage.")
    running: list[dict[str, Any]] = Field(description="Runs that are measured now.")
    queued: list[str] = Field(description="Slurm's jobs, a line each.")


class RunOutput(JsonPart):
    """`servelab run`: something that happened."""

    event: Literal["begun", "finished", "failed", "decided", "ended"] = Field(description="Of a job, a stage, or all.")
    at: datetime = Field(description="When, in UTC.")
    job: str | None = Field(None, description="What it does.")
    runs: list[str] = Field([], description="Runs that it measures, or the one that failed.")
    kind: Literal["result", "environment", "outage", "error"] | None = Field(
        None, description="Whose a failure is: the configuration's, this node's, the machine's for now, the user's."
    )
    reason: str | None = Field(None, description="Of a failure, such as `out_of_memory`.")
    message: str | None = Field(None, description="A failure or decision in words.")
    stages: list[dict[str, Any]] = Field([], description="Progress of these runs' stages, as in `status`.")
    exit_code: int | None = Field(None, description="Of `ended`.")


class CompareOutput(JsonPart):
    """`servelab compare`: two studies."""

    a: str
    b: str
    summary: str
    verdict: Word | None = Field(description="Of all conditions; null without any.")
    conditions: list[dict[str, Any]]
    pairs: list[dict[str, Any]] = Field(description="Rows of the objective in `comparison.parquet`.")


class ProposeOutput(JsonPart):
    """`servelab propose`: a candidate that was added to a study."""

    study: str
    candidate: dict[str, Any] = Field(description="As the study has it now.")
    effective: dict[str, Any] | None = Field(
        description="Setting → values of baseline and candidate as the engine serves it; null if not known."
    )


class ReadOutput(JsonPart):
    """`servelab read`: a result of a load client."""

    tool: str
    tool_version: str | None
    file: str
    first_line: int
    last_line: int
    figures: dict[str, dict[str, float | None]] = Field(description="Metric → statistic → value.")
    definitions: dict[str, str] = Field(description="Metric → how the tool defines it otherwise.")
    settings: dict[str, Any]
    unknown: list[dict[str, Any]] = Field(description="Lines that no rule reads.")
    warnings: list[str]
    formulas: dict[str, dict[str, Any]] = Field(description="Metric → the formula behind it.")
    place: dict[str, Any] = Field(description="The headings and the command above it.")


class TuneOutput(JsonPart):
    """`servelab tune`: a study that would be written."""

    study: dict[str, Any]
    effective_baseline: dict[str, Any]
    candidates: list[dict[str, Any]] = Field(description="Each with `lever`, `reason`, `is_sure` and `effective`.")
    left_out: dict[str, str] = Field(description="Lever → why it is not proposed.")
    idle: dict[str, str] = Field(description="Settings of the command that do nothing.")
    notes: list[str]
    load: dict[str, Any]


class ExplainOutput(JsonPart):
    """`servelab explain`: why a server failed."""

    kind: str
    reason: str
    message: str
    lines: list[str]
    remedy: str


OUTPUTS: Mapping[str, type[BaseModel]] = {
    "check": CheckOutput,
    "plan": Forecast,
    "run": RunOutput,
    "status": StatusOutput,
    "report": ReportOutput,
    "compare": CompareOutput,
    "read": ReadOutput,
    "tune": TuneOutput,
    "propose": ProposeOutput,
    "explain": ExplainOutput,
}
"""Command → the type of its objects."""


def json_schema() -> dict[str, Any]:
    """JSON Schema of every command's objects, each among `$defs` by the name of its type."""
    return models_json_schema([(output, "serialization") for output in OUTPUTS.values()])[1]


def print_line(output: BaseModel, file: TextIO | None = None) -> None:
    """Prints an object on one line."""
    print(shown(json.dumps(output.model_dump(mode="json"), ensure_ascii=False)), file=file, flush=True)


def compare_output(comparison: StudyComparison, findings: list[ConditionResult]) -> CompareOutput:
    """Two studies, and the conditions that were tried."""
    return CompareOutput(
        a=comparison.a.name,
        b=comparison.b.name,
        summary=summary(comparison),
        verdict=verdict_of(findings) if findings else None,
        conditions=[asdict(each) | {"condition": str(each.condition)} for each in findings],
        pairs=[row for row in comparison.table.to_pylist() if row["is_objective"]],
    )


_EXITS = {
    "0": "done; `compare`, `upgrade`: better or the same",
    str(ServelabError.exit_code): "an error that you can mend, a failed check or job among them",
    str(ConfigError.exit_code): "a study, another file or an option is wrong",
    str(EXIT_CODES["worse"]): "`compare --fail-if`, `upgrade`: worse",
    str(EXIT_CODES["cannot tell"]): "`compare --fail-if`, `upgrade`: cannot tell; `bisect`: none found",
    str(Outage.exit_code): "the machine failed: run it again",
}


def render_docs() -> str:
    """docs/reference/json.md."""
    keys = {command: ", ".join(f"`{name}`" for name in output.model_fields) for command, output in OUTPUTS.items()}
    rows = "".join(f"| `{command}` | {names} |\n" for command, names in keys.items())
    exits = "".join(f"| {code} | {meaning} |\n" for code, meaning in _EXITS.items())
    return render_markdown("json.md.j2", {"commands": rows, "exits": exits})
