"""The audit section of the report: what was published, and what the logs give when it is recomputed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pandas as pd

from servelab.recorded.audit.claims_table import VERDICTS
from servelab.report.cells import Cell, Table, value_or_none

Row = dict[Any, Any]


@dataclass(frozen=True)
class AuditSection:
    """What the report shows of the claims; a table without rows is omitted."""

    summary: str
    contradicted: Table
    """Published claims that the logs contradict."""
    percentages: Table
    """Every published percentage beside the recomputed one."""
    others: Table
    """All other claims that are not contradicted."""
    logs: Table
    """Logs that contradict themselves, their command or the baseline, and lines that no reader knows."""


def audit_section(claims: pd.DataFrame) -> AuditSection:
    """`claims` has rows of schemas.CLAIMS."""
    published = _rows(claims, "publication")
    logs = _rows(claims, "logs")
    changes = [row for row in published if row["rule"] == "change"]
    held = [row for row in published if row["rule"] != "change" and row["verdict"] != "contradicted"]
    return AuditSection(
        summary=f"Published claims: {_counted(published)}. Checks of the logs themselves: {_counted(logs)}.",
        contradicted=_table("claims-contradicted", [row for row in published if row["verdict"] == "contradicted"]),
        percentages=_table("claims-percentages", changes, with_verdict=True),
        others=_table("claims-others", held, with_verdict=True),
        logs=_table("claims-logs", [row for row in logs if row["verdict"] in ("contradicted", "unproven")]),
    )


def _rows(claims: pd.DataFrame, source: str) -> list[Row]:
    """Rows of a source, in the table's order."""
    rows: list[Row] = claims[claims["source"] == source].to_dict("records")
    return rows


def _counted(rows: list[Row]) -> str:
    counts = [
        f"{number} {verdict}" for verdict in VERDICTS if (number := sum(row["verdict"] == verdict for row in rows))
    ]
    return f"{len(rows)}, of these {', '.join(counts)}" if rows else "none"


def _table(name: str, rows: list[Row], *, with_verdict: bool = False) -> Table:
    verdict = ["Verdict"] if with_verdict else []
    columns = ["Claim", "Where", "Published", "Recomputed", *verdict, "Points off", "Likely cause", "Why"]
    return Table(
        columns,
        [
            [
                Cell(row["claim"]),
                Cell(_place(row)),
                Cell(value_or_none(row["published"]) or "–"),
                Cell(value_or_none(row["recomputed"]) or "–"),
                *([Cell(row["verdict"])] if with_verdict else []),
                _points(row),
                Cell(value_or_none(row["cause"]) or "–"),
                Cell(row["reason"]),
            ]
            for row in rows
        ],
        name=name,
    )


def _place(row: Row) -> str:
    line = value_or_none(row["line"])
    return ", ".join([*([row["where"]] if row["where"] else []), *([f"line {int(line)}"] if line else [])]) or "–"


def _points(row: Row) -> Cell:
    points = value_or_none(row["points"])
    return Cell(f"{points:.3g}" if points and row["verdict"] != "confirmed" else "–")
