"""Claims from tables with a row for each stage: what it gained, and so what it ended with."""

from __future__ import annotations

from servelab.recorded.draft.candidates import Candidate, Stage
from servelab.recorded.draft.claiming import DEFAULT_METRIC, Context
from servelab.recorded.draft.figures import Cell
from servelab.recorded.draft.observed import Spot
from servelab.recorded.draft.words import numbers_in

_NOTHING = frozenset({"-", "–", "—", "n/a", "none", "no gain", "0%", "/", "not adopted"})


def is_of_stages(rows: list[tuple[str, ...]], context: Context) -> bool:
    """Whether a table has a row for each stage, with one percentage or a dash."""
    body = [cells for cells in rows[1:] if len(cells) >= 2 and cells[0]]
    fitting = 0
    for cells in body:
        values = [cell for cell in cells[1:] if cell]
        numbers = [number for cell in values for number in numbers_in(cell)]
        is_plain = len(numbers) == 1 and numbers[0].is_percent
        is_nothing = not numbers and any(cell.lower() in _NOTHING for cell in values)
        if (is_plain or is_nothing) and context.names.stage(cells[0]) is not None:
            fitting += 1
    return bool(body) and fitting * 2 > len(body)


def claim_stages(rows: list[tuple[str, ...]], spots: list[Spot], context: Context) -> None:
    """A table of stages: each percentage is of what its stage ended with, against what the one before did."""
    cell = Cell("", context.objective_on, DEFAULT_METRIC)
    incumbent = context.names.baseline
    for cells, spot in zip(rows[1:], spots[1:], strict=True):
        where = f"{spot.where}, {cells[0]}"[:120]
        stage = context.names.stage(cells[0])
        numbers = [number for each in cells[1:] for number in numbers_in(each) if number.is_percent]
        if stage is None or incumbent is None:
            for number in numbers:
                context.leave(spot, f"`{number.printed}%` of row `{cells[0]}`", "no heading asks this question")
            continue
        if not numbers:
            keys = {"stage": stage.name, "candidate": incumbent.reference}
            context.add("chosen", spot, where, keys, "nothing is printed for it")
            continue
        winner, against, guess = _sides_of_stage(numbers[0].printed, stage, incumbent, cell, context)
        if winner is None or not context.change(
            winner, against, cell, numbers[0].printed, spot, where, per_node=True, guess=guess
        ):
            context.leave(spot, f"`{numbers[0].printed}%` of row `{cells[0]}`", "no candidate of the stage has a log")
            continue
        keys = {"stage": stage.name, "candidate": winner.reference}
        context.add("chosen", spot, where, keys, "the candidate of the percentage")
        incumbent = winner
    context.incumbent = incumbent


def _sides_of_stage(
    printed: str, stage: Stage, incumbent: Candidate, cell: Cell, context: Context
) -> tuple[Candidate | None, Candidate, str | None]:
    measured = [each for each in stage.candidates if each.results]
    baseline = context.names.baseline or incumbent
    pair = context.pair_of(printed, measured, [incumbent, baseline, *measured], cell)
    if pair is not None:
        return pair[0], pair[1], None
    best = context.best(stage, cell)
    guess = "no pair of the stage gives it; the best one against what was chosen before"
    if best is incumbent:
        rest = [each for each in measured if each is not best]
        return best, rest[0] if rest else incumbent, guess
    return best, incumbent, guess
