"""The tables of a report as CSV and Parquet files, and the answer as a text for a pull request or a chat."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from servelab.core.errors import ServelabError
from servelab.core.files import replacing
from servelab.core.yaml_file import NO_BREAK
from servelab.report.improvement_tables import Headline
from servelab.report.page import Cell, Table
from servelab.search.recommended import Recommended
from servelab.study.project import StudySummary

_FORMULA = re.compile(r"\s*[=+\-@|]|[\t\r]")
_NUMBER = re.compile(r"[+-]?\d[\d,]*(?:\.\d+)?(?:e[+-]?\d+)?\s?%?|[-–]", re.IGNORECASE)


def tables_of(content: Any) -> Iterator[Table]:
    """Every named table in the content of the templates, each once; `ServelabError` if two share a name."""
    seen: set[str] = set()
    for table in _tables(content):
        if table.name in seen:
            raise ServelabError(f"two tables of the report are named {table.name}")
        if table.name:
            seen.add(table.name)
            yield table


def frame(table: Table) -> pd.DataFrame:
    """All rows of a table.

    A column of figures has the numbers, and `<column>, as shown` has their texts. `<column>, note` and `<column>, run`
    exist if a cell has them.
    """
    columns: dict[str, list[Any]] = {}
    for position, name in enumerate(table.columns):
        cells = [row[position] for row in table.rows]
        if any(cell.value is not None for cell in cells):
            columns[name] = [cell.value for cell in cells]
            columns[f"{name}, as shown"] = [_text(cell) for cell in cells]
        else:
            columns[name] = [_text(cell) for cell in cells]
        if any(cell.note for cell in cells):
            columns[f"{name}, note"] = [cell.note.replace(NO_BREAK, " ") or None for cell in cells]
        if any(cell.run_id for cell in cells):
            columns[f"{name}, run"] = [cell.run_id for cell in cells]
    return pd.DataFrame(columns)


def write_tables(folder: Path, content: Any, others: Mapping[str, pd.DataFrame]) -> None:
    """Writes `<name>.csv` and `<name>.parquet` of each table of a report, and of the `others`."""
    frames = {table.name: frame(table) for table in tables_of(content)}
    for name, rows in {**frames, **others}.items():
        with replacing(folder / f"{name}.csv") as path:
            rows.rename(columns=_in_csv).map(_in_csv).to_csv(path, index=False)
        with replacing(folder / f"{name}.parquet") as path:
            rows.to_parquet(path, index=False)


def _in_csv(value: Any) -> Any:
    """Lists as text, other values unchanged; a text that a spreadsheet would run as a formula gets a `'` in front."""
    if isinstance(value, list | np.ndarray):
        value = "; ".join(map(str, value))
    if not isinstance(value, str):
        return value
    if _FORMULA.match(value) and not _NUMBER.fullmatch(value):
        value = f"'{value}"
    return value.replace("\r", " ")  # Python writes it without quotes, and a reader begins a row there


def _text(cell: Cell) -> str:
    return (cell.text + cell.mark).replace(NO_BREAK, " ")


def _tables(content: Any) -> Iterator[Table]:
    if isinstance(content, Table):
        yield content
    elif isinstance(content, Mapping):
        for value in content.values():
            yield from _tables(value)
    elif isinstance(content, list | tuple):
        for value in content:
            yield from _tables(value)
    elif dataclasses.is_dataclass(content):
        for field in dataclasses.fields(content):
            yield from _tables(getattr(content, field.name))


@dataclass(frozen=True)
class Card:
    """The answer for a pull request or a chat."""

    title: str
    figure: str
    """The answer as figures, or that the baseline stays."""
    lines: list[str]
    command: str

    @property
    def markdown(self) -> str:
        """The card as GitHub, GitLab and chats show it."""
        said = "".join(f"- {line}\n" for line in self.lines)
        return f"**{self.figure}**\n\n{self.title}\n\n{said}\n```bash\n{self.command}\n```\n"


def answer_card(study: StudySummary, recommended: Recommended, headline: Headline, command: str, doubts: str) -> Card:
    """The card of a study; `command` is what its report recommends, `doubts` what its marks mean."""
    used = recommended.served_on or f"{recommended.configuration.accelerators} × {study.hardware.accelerator}"
    proof = recommended.proof
    lines = [
        headline.text if headline.values else "",
        recommended.answers_text[0],
        f"Proof: {proof.verdict}. {proof.why}" if proof else f"Evidence: {recommended.evidence}",
        doubts,
    ]
    return Card(
        title=f"{recommended.model} on {used}, {recommended.engine} {recommended.engine_version}",
        figure=f"{headline.values} ({headline.figure})" if headline.values else headline.text,
        lines=[line for line in lines if line],
        command=command,
    )
