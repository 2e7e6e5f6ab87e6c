"""Cells and tables of reports, as HTML, Markdown, CSV and Parquet, and pages that consist of tables."""

from __future__ import annotations

import base64
import hashlib
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any

import jinja2
import numpy as np
import pandas as pd
from markupsafe import Markup

from servelab.core.credentials import ACTS, without_colours
from servelab.core.figure_text import NO_BREAK, estimate, figure, interval, is_noise, percent
from servelab.core.files import replacing, write_text
from servelab.metrics.statistics import mean_ci95

MOST_ROWS = 100
"""Most rows of a table in the report; nobody reads more."""


@dataclass(frozen=True)
class Cell:
    """A figure or a text; `run_id` links it to the run it was computed from, `link` to another address."""

    text: str
    run_id: str | None = None
    note: str = ""
    is_good: bool = False
    """Shown in bold: the winner, or a gain beyond noise."""
    link: str = ""
    against: str | None = None
    """The run that a change is relative to."""
    mark: str = ""
    """Shown behind the text if a run it was computed from is not valid."""
    mark_why: str = ""


@dataclass(frozen=True)
class Table:
    """Columns and rows; the first column names the row."""

    columns: list[str]
    rows: list[list[Cell]]
    most: int = MOST_ROWS
    """Most rows that a page shows."""

    @property
    def shown(self) -> list[list[Cell]]:
        """The rows that a page shows."""
        return self.rows[: self.most]


def value_or_none(value: Any) -> Any:
    """None for pandas' NaN and None; any other value unchanged."""
    return None if value is None or (isinstance(value, float) and not math.isfinite(value)) else value


_FORMULA = re.compile(r"\s*[=+\-@|]|[\t\r]")
_NUMBER = re.compile(r"[+-]?\d[\d,]*(?:\.\d+)?(?:e[+-]?\d+)?\s?%?|[-–]", re.IGNORECASE)


def write_tables(folder: Path, tables: Mapping[str, pd.DataFrame]) -> None:
    """Writes `<name>.csv` and `<name>.parquet` of each table."""
    for name, rows in tables.items():
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


class ShownMeasurement:
    """The measured figures of all runs (schemas.METRICS) as cells: mean, half of the 95 % interval, and n.

    A figure of several runs, one for each server start, is the mean of theirs, with Student's interval over them. A
    recorded run has the interval over its logs.
    """

    def __init__(self, metrics: pd.DataFrame) -> None:
        self._rows: dict[tuple[str, str], dict[Any, Any]] = {}
        for row in metrics.to_dict("records"):
            self._rows[row["run_id"], row["metric"]] = row

    def cell(self, run_ids: Sequence[str], metric: str, mean: float | None = None, *, with_p99: bool = False) -> Cell:
        """`1,204 ± 12`, with `with_p99` also `P99 2,310` below it; `mean` replaces the runs' own mean.

        The cell links to the first of the runs.
        """
        rows = [row for run_id in run_ids if (row := self._rows.get((run_id, metric))) is not None and row["n"] != 0]
        if not rows:
            return Cell("–" if mean is None else figure(mean), run_ids[0] if mean is not None else None)
        over_starts = mean_ci95([row["mean"] for row in rows])
        low, high = over_starts[1:] if len(rows) > 1 else (rows[0]["ci95_low"], rows[0]["ci95_high"])
        value = over_starts.value if mean is None else mean
        note = f"P99{NO_BREAK}{figure(fmean(row['p99'] for row in rows))}" if with_p99 else ""
        return Cell(estimate(value, low, high), run_ids[0], note)

    def counts(self, run_ids: Sequence[str] = (), other: Sequence[str] = ()) -> Cell:
        """Starts, rounds and successful requests of these runs, or of either side: `3 starts, 9 rounds, 900 requests`.

        Of a single run, its starts are left out.
        """
        found = [[row for run_id in side if (row := self._of_requests(run_id))] for side in (run_ids, other)]
        sides = [rows for rows in found if rows]
        texts = []
        if max(map(len, sides), default=0) > 1:
            texts.append(_span([len(rows) for rows in sides], "start"))
        for unit, column in (("round", "rounds"), ("request", "n")):
            # A recorded log may lack the number of requests behind its latencies.
            counts = [[row[column] for row in rows if value_or_none(row[column]) is not None] for rows in sides]
            if any(counts):
                texts.append(_span([int(sum(of_side)) for of_side in counts if of_side], unit))
        return Cell(", ".join(texts) or "–")

    def _of_requests(self, run_id: str | None) -> dict[Any, Any] | None:
        """The row of a latency that every successful request has, for its count."""
        return self._rows.get((run_id or "", "e2el_ms")) or self._rows.get((run_id or "", "ttft_ms"))


def _span(counts: Sequence[int], unit: str) -> str:
    """`3 rounds`, or `3 to 5 rounds` if the sides differ."""
    low, high = min(counts), max(counts)
    return f"{low:,}{'' if low == high else f' to {high:,}'} {unit}{'' if high == 1 else 's'}"


def change_cell(
    row: dict[Any, Any], run_id: str | None = None, higher_is_better: bool = True, against: str | None = None
) -> Cell:
    """A change with its 95 % interval in words; `row` has the three `change_…` columns, `against` is the other run."""
    value, low, high = (
        value_or_none(row[name]) for name in ("change_percent", "change_ci95_low_percent", "change_ci95_high_percent")
    )
    if value is None:
        return Cell("–")
    is_good = low is not None and not is_noise(low, high) and (value > 0) == higher_is_better
    return Cell(percent(value), run_id, interval(low, high), is_good, against=against)


def render_html(template: str, content: dict[str, Any], runtime: str = "", **functions: Callable[..., Markup]) -> str:
    """One self-contained file with its style and scripts inside; `functions` are those that the template calls.

    `runtime` is the script that draws the charts of a page, for one that has any. The page's policy (CSP) lets a
    browser use that style and these scripts only, by their hashes, and fetch nothing.
    """
    environment = _environment()
    folder = Path(__file__).with_name("templates")
    own = {name: (folder / name).read_text(encoding="utf-8") for name in ("report.css", "report.js", "charts.js")}
    scripts = [own["report.js"], *([runtime, own["charts.js"]] if runtime else [])]
    environment.globals["style"] = Markup(own["report.css"])  # noqa: S704 (our own file)
    environment.globals["style_hash"] = _policy_hash(own["report.css"])
    environment.globals["scripts"] = [Markup(script) for script in scripts]  # noqa: S704 (ours, or of our package)
    environment.globals["script_hashes"] = [_policy_hash(script) for script in scripts]
    environment.globals.update(functions)
    return environment.get_template(template).render(content)


def _policy_hash(text: str) -> Markup:
    """The text as a source of a content security policy."""
    return Markup("sha256-") + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def render_markdown(template: str, content: dict[str, Any]) -> str:
    """The text without runs of empty lines."""
    text = _environment().get_template(template).render(content)
    return re.sub(r"\n{3,}", "\n\n", text).strip() + "\n"


def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("servelab.report"),
        autoescape=jinja2.select_autoescape(enabled_extensions=("html.j2",)),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=lambda value: value if isinstance(value, Markup) else ACTS.sub("", without_colours(str(value))),
    )
    environment.filters["cell"] = markdown_text
    return environment


def markdown_text(text: str) -> str:
    """Text that Markdown shows unchanged, also in a table's cell."""
    return re.sub(r"([\\`*_\[\]<>|#~&])", r"\\\1", " ".join(text.split()))


def fenced(command: str) -> str:
    """A command as a block of Markdown; its fence is longer than any run of backticks in it."""
    fence = "`" * max(3, 1 + max(map(len, re.findall("`+", command)), default=0))
    return f"{fence}bash\n{command}\n{fence}"


@dataclass(frozen=True)
class Section:
    """A heading with a text and a table; a table that is `folded` opens on a click."""

    heading: str
    table: Table
    text: str = ""
    kind: str = "facts"
    """Class in the style sheet: `facts` (aligned left) or `figures` (aligned right)."""
    folded: bool = False


@dataclass(frozen=True)
class Page:
    """A title, a summary in one sentence, and sections. Links in its tables are relative to the page."""

    title: str
    lead: str
    sections: list[Section] = field(default_factory=list)
    remark: str = ""


def write_page(page: Page, html: Path, markdown: Path) -> None:
    """Writes the page as one self-contained HTML file, readable on a phone and without scripts, and as Markdown."""
    write_text(html, render_html("page.html.j2", {"page": page}))
    write_text(markdown, render_markdown("page.md.j2", {"page": page}))
