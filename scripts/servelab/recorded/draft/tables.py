"""Claims from tables: every figure and percentage, whose candidate, workload and metric its row and column tell.

What heads a row or column is read as words. Where the words say nothing, the figures themselves do: a column most of
whose figures are in one candidate's logs is that candidate's. A figure of it that is not in the logs is then claimed
too, for the audit to find.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace

from servelab.recorded.draft.candidates import Candidate, Stage
from servelab.recorded.draft.claiming import BY_VALUE, DEFAULT_METRIC, Context, fits, metric_of
from servelab.recorded.draft.figures import Cell
from servelab.recorded.draft.observed import Spot
from servelab.recorded.draft.page import Table
from servelab.recorded.draft.serving import inline_command
from servelab.recorded.draft.stage_tables import claim_stages, is_of_stages
from servelab.recorded.draft.words import BASELINE, OTHER, THROUGHPUT, Number, falls, metric_in, numbers_in
from servelab.recorded.draft.workloads import Workload

_PERFORMANCE_UNITS = ("tok", "req", "ms", "s", "tps")
_UNNAMED_TIME = ("e2el_ms", "mean")
"""What a time in seconds is that nothing names: that of a request."""
_MOST_NUMBERS = 4000
"""Of one table; a longer one is a data set, and listed."""


@dataclass
class _Entry:
    """A number of a table with what is known of it."""

    row: int
    column: int
    number: Number
    metric: str | None
    statistic: str | None
    hits: list[Cell]
    candidate: Candidate | None = None
    workload: str | None = None


def claim_table(table: Table, lines: list[int], spot: Spot, context: Context) -> None:
    """Adds the claims of a table."""
    header = table.rows[0][1]
    rows = [cells for _, cells in table.rows]
    spots = [replace(spot, line=line) for line in lines]
    if is_of_stages(rows, context):
        claim_stages(rows, spots, context)
        return
    entries = _entries(rows, header, spot, context)
    if len(entries) > _MOST_NUMBERS:
        context.leave(spot, f"a table of {len(entries)} numbers", "it is a data set")
        return
    figures = [each for each in entries if not each.number.is_percent]
    _place_candidates(rows, entries, figures, spots, context)
    _place_workloads(rows, entries, spots, context)
    for entry in entries:
        _claim(entry, entries, rows, spots, context)


def _entries(rows: list[tuple[str, ...]], header: tuple[str, ...], spot: Spot, context: Context) -> list[_Entry]:
    found: list[_Entry] = []
    by_default = metric_in(spot.above) or (metric_in(spot.path[-1]) if spot.path else None)
    if by_default is None and _has_unnamed_times(rows, header):
        by_default = _UNNAMED_TIME
    for row, cells in enumerate(rows[1:], start=1):
        for column, cell in enumerate(cells):
            if (column == 0 and len(cells) > 1) or " --" in cell or inline_command(cell):
                continue  # what heads the row, or a command
            head = header[column] if column < len(header) else ""
            current = None
            for number in numbers_in(cell):
                current = metric_in(number.before, last=True) or current
                named = current or metric_in(number.unit) or metric_in(head) or metric_in(cells[0])
                if named is None and not _is_count(head, cells[0]):
                    named = by_default
                metric, statistic = named or (None, None)
                if named and statistic is None:
                    statistic = next(
                        (each[1] for each in (metric_in(head), metric_in(cells[0])) if each and each[0] == metric), None
                    )
                hits = [] if number.is_percent else context.figures.like(number.in_metric)
                hits = [each for each in hits if fits(each, metric, statistic or ("mean" if metric else None))]
                if metric is None and not number.is_percent and not hits:
                    continue  # a setting, a size, a count
                found.append(_Entry(row, column, number, metric, statistic, hits))
    return found


def _has_unnamed_times(rows: list[tuple[str, ...]], header: tuple[str, ...]) -> bool:
    """Whether figures of a table are times in seconds, and nothing in it names a metric."""
    cells = [cell for each in rows[1:] for cell in each]
    named = any(metric and metric[0] != THROUGHPUT for metric in map(metric_in, (*header, *cells)))
    return not named and any(number.is_in_seconds for cell in cells for number in numbers_in(cell))


def _is_count(head: str, first: str) -> bool:
    words = f"{head} {first}".lower()
    return any(
        each in words for each in ("concurrency", "batch", "length", "input", "output", "gpus", "size", "requests")
    )


def _place_candidates(
    rows: list[tuple[str, ...]], entries: list[_Entry], figures: list[_Entry], spots: list[Spot], context: Context
) -> None:
    header = rows[0]
    columns = {each.column for each in entries}
    by_column = {
        column: _winner(
            [each for each in figures if each.column == column],
            context,
            context.names.candidate(header[column], spots[0]) if column < len(header) else None,
        )
        for column in columns
    }
    by_row = {
        row: _winner(
            [each for each in figures if each.row == row],
            context,
            context.names.candidate(_head(rows[row]), spots[row]),
        )
        for row in {each.row for each in entries}
    }

    def score(places: dict[int, Candidate | None], axis: str) -> tuple[int, int]:
        right = 0
        for each in figures:
            placed = places[getattr(each, axis)]
            right += placed is not None and any(hit.candidate == placed.reference for hit in each.hits)
        return right, sum(each is not None for each in places.values())

    columns_tell = score(by_column, "column") >= score(by_row, "row")
    only = _only(context, spots[0])
    for entry in entries:
        stage = _stage_of_row(rows[entry.row], context)
        first, second = by_column.get(entry.column), by_row.get(entry.row)
        entry.candidate = (first or second) if columns_tell else (second or first)
        entry.candidate = entry.candidate or only
        if columns_tell and (others := _others(entry, entries, header, context)):
            entry.candidate = others
        baseline = context.names.baseline
        if (
            stage is not None
            and columns_tell
            and entry.candidate is not baseline
            and not _is_candidate(first, header, entry)
        ):
            entry.candidate = _of_stage(entry, entries, stage, context) or entry.candidate


def _stage_of_row(cells: tuple[str, ...], context: Context) -> Stage | None:
    """The question that a row is about: its first cell names it, or the one beside."""
    heads = [cells[0], *(cell for cell in cells[1:2] if not any(map(is_of_performance, numbers_in(cell))))]
    return next((stage for cell in heads if (stage := context.names.stage(cell)) is not None), None)


def _others(entry: _Entry, entries: list[_Entry], header: tuple[str, ...], context: Context) -> Candidate | None:
    """The one other candidate whose figures all of a cell are, where the column only names a role."""
    if entry.candidate is None or _is_candidate(entry.candidate, header, entry):
        return None
    cell = [each for each in entries if (each.row, each.column) == (entry.row, entry.column)]
    figures = [each for each in cell if not each.number.is_percent]
    owners = [{hit.candidate for hit in each.hits} for each in figures]
    common = set.intersection(*owners) if owners else set()
    if len(common) != 1 or entry.candidate.reference in common or BASELINE.search(_at(header, entry.column)):
        return None
    return next(each for stage in context.names.stages for each in stage.candidates if each.reference in common)


def _at(cells: tuple[str, ...], column: int) -> str:
    return cells[column] if column < len(cells) else ""


def _is_candidate(candidate: Candidate | None, header: tuple[str, ...], entry: _Entry) -> bool:
    """Whether the head of a column names a candidate itself, and not only its role."""
    head = header[entry.column].lower() if entry.column < len(header) else ""
    return candidate is not None and (candidate.label.lower() in head or candidate.name in head)


def _of_stage(entry: _Entry, entries: list[_Entry], stage: Stage, context: Context) -> Candidate | None:
    """The candidate of a stage whose logs have the figures of the entry's cell, or of its row; or its best one."""
    row = [each for each in entries if each.row == entry.row]
    for beside in ([each for each in row if each.column == entry.column], row):
        votes: Counter[str] = Counter()
        for each in beside:
            votes.update({hit.candidate for hit in each.hits})
        if votes:
            break
    tried = [each for each in stage.candidates if beside is not row or each is not context.names.baseline]
    own = [each for each in tried if votes[each.reference]]
    if own:
        return max(own, key=lambda each: votes[each.reference])
    metric = str(metric_of(entry.metric) or DEFAULT_METRIC)
    return context.best(stage, Cell("", context.objective_on, metric)) if not votes else None


def _only(context: Context, spot: Spot) -> Candidate | None:
    """The candidate of the section, if it has only one."""
    own = [stage for stage in context.names.stages if stage.section in spot.sections]
    return own[0].candidates[0] if len(own) == 1 and len(own[0].candidates) == 1 else None


def _head(cells: tuple[str, ...]) -> str:
    """What heads a row: its first cell, and following ones without a measurement."""
    parts = [cells[0]]
    for cell in cells[1:]:
        if any(True for _ in numbers_in(cell)) or not cell:
            break
        parts.append(cell)
    return " ".join(parts)


def _winner(entries: list[_Entry], context: Context, named: Candidate | None) -> Candidate | None:
    """The candidate that most figures of a row or column are of; the named one, unless the figures speak against it."""
    votes: Counter[str] = Counter()
    for entry in entries:
        votes.update({hit.candidate for hit in entry.hits})
    ranked = votes.most_common(2)
    if named is not None and (not ranked or votes[named.reference] >= ranked[0][1] or ranked[0][1] < 2):
        return named
    if not ranked or (len(ranked) > 1 and ranked[1][1] == ranked[0][1]):
        return named
    if ranked[0][1] * 2 < sum(1 for each in entries if each.hits):
        return named
    stages = context.names.stages
    return next((each for stage in stages for each in stage.candidates if each.reference == ranked[0][0]), named)


def _place_workloads(rows: list[tuple[str, ...]], entries: list[_Entry], spots: list[Spot], context: Context) -> None:
    header = rows[0]
    around = _around(spots[0], context)
    votes: dict[tuple[str, int], Counter[str]] = {}
    for entry in entries:
        for key in (("row", entry.row), ("column", entry.column)):
            own = {hit.workload for hit in entry.hits if entry.candidate and hit.candidate == entry.candidate.reference}
            votes.setdefault(key, Counter()).update(own)
    all_votes: Counter[str] = Counter()
    for key, counter in votes.items():
        if key[0] == "row":
            all_votes.update(counter)
    for entry in entries:
        named = context.names.workload(rows[entry.row][0]) or (
            context.names.workload(header[entry.column]) if entry.column < len(header) else None
        )
        by_row, by_column = votes["row", entry.row], votes["column", entry.column]
        own = {hit.workload for hit in entry.hits if entry.candidate and hit.candidate == entry.candidate.reference}
        if named is not None:
            entry.workload = named.name
        elif len(own) == 1:
            entry.workload = next(iter(own))
        elif by_row:
            entry.workload = by_row.most_common(1)[0][0]
        elif around is not None:
            entry.workload = around.name
        elif by_column or all_votes:
            entry.workload = (by_column or all_votes).most_common(1)[0][0]
        else:
            entry.workload = context.objective_on


def _around(spot: Spot, context: Context) -> Workload | None:
    for text in (spot.above, spot.label or "", *spot.path[:0:-1]):
        if text and (found := context.names.workload(text)):
            return found
    return None


def _claim(
    entry: _Entry, entries: list[_Entry], rows: list[tuple[str, ...]], spots: list[Spot], context: Context
) -> None:
    number, spot = entry.number, spots[entry.row]
    head = rows[0][entry.column] if entry.column < len(rows[0]) else ""
    where = f"{spot.where}, {rows[entry.row][0]}"[:120]
    what = f"`{number.printed}{'%' if number.is_percent else ''}` of row `{rows[entry.row][0]}`, column `{head}`"
    if (
        number.is_percent
        or number.is_ratio
        or (number.unit in ("x", "×") and "speed" in f"{head} {rows[entry.row][0]}".lower())
    ):
        _claim_percent(entry, entries, rows, spots, where, what, context)
        return
    if number.unit in ("x", "×"):
        context.leave(spot, what, "a number of times, of what it does not say")
        return
    if entry.candidate is None or entry.workload is None or entry.metric is None:
        _claim_by_value(entry, spot, where, what, context)
        return
    cell = Cell(entry.candidate.reference, entry.workload, str(metric_of(entry.metric)), entry.statistic or "mean")
    own = [hit for hit in entry.hits if (hit.candidate, hit.workload) == (cell.candidate, cell.workload)]
    if own:
        cell = next((each for each in own if each.metric == cell.metric), own[0])
    guess = None if own else "the log has another figure; see whether row and column are understood"
    seconds = number.is_in_seconds and cell.metric.endswith("_ms")
    if number.unit in ("k", "m"):
        context.leave(spot, what, "it is in thousands or millions")
    elif number.is_in_seconds and not seconds:
        context.leave(spot, what, f"it is in seconds, {cell.metric} is not")
    elif not context.figures.has(cell.candidate, cell.workload) and len(entry.hits) == 1:
        _claim_by_value(entry, spot, where, what, context)
    elif not context.figure(cell, number.printed, spot, where, number.times, guess, in_seconds=seconds):
        context.leave(spot, what, f"`{cell.candidate}` has no log of `{cell.workload}`")


def _claim_by_value(entry: _Entry, spot: Spot, where: str, what: str, context: Context) -> None:
    """A figure whose place says too little: claimed if only one figure of all logs prints so."""
    if len(entry.hits) == 1 and len(entry.number.printed.replace(".", "")) > 3:
        guess = "the only figure of all logs that prints so"
        number = entry.number
        seconds = number.is_in_seconds
        context.figure(entry.hits[0], number.printed, spot, where, number.times, guess, in_seconds=seconds)
    elif entry.metric is not None or entry.hits:
        context.leave(spot, what, "its row and column do not say whose figure it is")


def _claim_percent(
    entry: _Entry,
    entries: list[_Entry],
    rows: list[tuple[str, ...]],
    spots: list[Spot],
    where: str,
    what: str,
    context: Context,
) -> None:
    number, spot = entry.number, spots[entry.row]
    head = rows[0][entry.column] if entry.column < len(rows[0]) else ""
    words = f"{rows[entry.row][0]} {head} {number.before}"
    if entry.metric == "success_rate" and entry.candidate and entry.workload:
        keys = {"candidate": entry.candidate.reference, "workload": entry.workload, "printed": number.printed}
        if context.figures.has(entry.candidate.reference, entry.workload):
            context.add("success_rate", spot, where, keys)
            return
    if OTHER.search(words) and entry.metric is None:
        context.leave(spot, what, "a percentage of something that no log has")
        return
    metric = str(metric_of(_metric_of_percent(entry, entries)))
    cell = Cell("", entry.workload or context.objective_on, metric, entry.statistic or "mean")
    printed, is_ratio = number.printed, not number.is_percent
    if not number.is_signed and falls(words) and not is_ratio:
        printed = f"-{printed}"
    candidate, baseline = entry.candidate, _baseline_of(entry, rows, spots, context)
    if number.is_worse:
        candidate, baseline = baseline, candidate
    times = any(each.number.times > 1 for each in entries)
    if candidate is None or candidate is baseline:
        everyone = [each for stage in context.names.stages for each in stage.candidates]
        pair = context.pair_of(printed, everyone, [baseline] if baseline else everyone, cell, is_ratio=is_ratio)
        if pair and context.change(*pair, cell, printed, spot, where, is_ratio=is_ratio, guess=BY_VALUE):
            return
        context.leave(spot, what, "row and column do not say what is compared with what")
        return
    guess = None
    if baseline is None or not context.figures.basis_of(
        printed, candidate.reference, baseline.reference, cell, is_ratio=is_ratio
    ):
        others = [each for stage in context.names.stages for each in stage.candidates]
        pair = context.pair_of(printed, [candidate], others, cell, is_ratio=is_ratio)
        if pair is not None and (baseline is None or not number.is_signed):
            baseline = pair[1]
        guess = "the logs give another percentage; see what it is compared with"
    if baseline is None or not context.change(
        candidate, baseline, cell, printed, spot, where, per_node=times, is_ratio=is_ratio, guess=guess
    ):
        context.leave(spot, what, "not known what it is compared with, or that has no log")


def _metric_of_percent(entry: _Entry, entries: list[_Entry]) -> str:
    """The metric named at it, or of the last figure before it in its cell."""
    if entry.metric is not None:
        return entry.metric
    before = [
        each
        for each in entries
        if (each.row, each.column) == (entry.row, entry.column)
        and each.number.end <= entry.number.start
        and each.metric
    ]
    return before[-1].metric or DEFAULT_METRIC if before else DEFAULT_METRIC


def _baseline_of(entry: _Entry, rows: list[tuple[str, ...]], spots: list[Spot], context: Context) -> Candidate | None:
    """What a percentage of a table is compared with: what its head says, or the column or row of the baseline."""
    head = rows[0][entry.column] if entry.column < len(rows[0]) else ""
    for text in (head, rows[entry.row][entry.column]):
        for word in (" vs ", " vs. ", " over ", " against ", " compared to ", " relative to "):
            if word in text.lower():
                named = context.names.candidate(text.lower().split(word, 1)[1], spots[0])
                if named is not None:
                    return named
    for column, text in enumerate(rows[0]):
        if column != entry.column and BASELINE.search(text):
            return context.names.candidate(text, spots[0]) or context.names.baseline
    return context.names.baseline


def is_of_performance(number: Number) -> bool:
    """Whether a number's unit is one of speed or time."""
    return number.unit.replace(" ", "").startswith(_PERFORMANCE_UNITS)
