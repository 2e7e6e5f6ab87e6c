"""What table and prose readers share: the claim as it will be written, and how a percentage finds its two sides."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from servelab.metrics.definitions import METRICS
from servelab.recorded.draft.candidates import Candidate, Stage
from servelab.recorded.draft.figures import Cell, Figures
from servelab.recorded.draft.observed import Spot, Unplaced
from servelab.recorded.draft.words import THROUGHPUT, Names

DEFAULT_METRIC = "total_tokens_per_s"
BY_VALUE = "the pair whose figures give it"


@dataclass
class DraftClaim:
    """A claim, with the keys of docs/recorded.md."""

    kind: str
    where: str
    line: int
    keys: dict[str, Any]
    guess: str | None = None
    """Why it has to be looked at."""


@dataclass
class Context:
    """What the readers of tables and prose know."""

    names: Names
    figures: Figures
    objective_on: str
    page: str
    """The page's name; claims from other files say theirs."""
    incumbent: Candidate | None = None
    """What the stages so far ended with, as tables of stages say."""
    pair: tuple[Candidate, Candidate, Spot] | None = None
    """The two candidates that the last lines compare, and where."""
    claims: list[DraftClaim] = field(default_factory=list)
    unplaced: list[Unplaced] = field(default_factory=list)

    def add(self, kind: str, spot: Spot, where: str, keys: dict[str, Any], guess: str | None = None) -> None:
        """Adds a claim."""
        place = where if spot.file == self.page else f"{spot.file}, {where}"
        self.claims.append(DraftClaim(kind, place, spot.line, keys, guess))

    def leave(self, spot: Spot, what: str, why: str) -> None:
        """Notes a number that no claim has."""
        self.unplaced.append(Unplaced(spot, what, why))

    def figure(
        self,
        cell: Cell,
        printed: str,
        spot: Spot,
        where: str,
        times: int = 1,
        guess: str | None = None,
        *,
        in_seconds: bool = False,
    ) -> bool:
        """Adds a figure, if the candidate was measured on the workload."""
        if not self.figures.has(cell.candidate, cell.workload) or cell.metric not in METRICS.names():
            return False
        keys: dict[str, Any] = {"candidate": cell.candidate, **_cell_keys(cell), "printed": printed.lstrip("+")}
        if times > 1:
            keys["times"] = times
        if in_seconds and cell.metric.endswith("_ms"):
            keys["unit"] = "s"
        self.add("figure", spot, where, keys, guess)
        return True

    def change(
        self,
        candidate: Candidate,
        against: Candidate,
        cell: Cell,
        printed: str,
        spot: Spot,
        where: str,
        *,
        per_node: bool = False,
        is_ratio: bool = False,
        guess: str | None = None,
    ) -> bool:
        """Adds a change, in percent or as a ratio, if both were measured on the workload."""
        sides = (candidate.reference, against.reference)
        if candidate is against or not all(self.figures.has(side, cell.workload) for side in sides):
            return False
        if cell.metric not in METRICS.names():
            return False
        basis = self.figures.basis_of(printed, *sides, cell, is_ratio=is_ratio)
        keys = {"candidate": sides[0], "against": sides[1], **_cell_keys(cell), "printed": printed}
        if basis is None and per_node and METRICS.get(cell.metric).is_rate:
            basis = "node"
        if basis not in (None, "deployment"):
            keys["basis"] = basis
        if is_ratio:
            keys["unit"] = "x"
        self.add("change", spot, where, keys, guess)
        return True

    def difference(
        self,
        candidate: Candidate,
        against: Candidate,
        cell: Cell,
        printed: str,
        spot: Spot,
        where: str,
        *,
        in_seconds: bool = False,
    ) -> bool:
        """Adds a difference in a metric's unit, if both were measured on the workload."""
        sides = (candidate.reference, against.reference)
        if candidate is against or not all(self.figures.has(side, cell.workload) for side in sides):
            return False
        keys = {"candidate": sides[0], "against": sides[1], **_cell_keys(cell), "printed": printed}
        if in_seconds and cell.metric.endswith("_ms"):
            keys["unit"] = "s"
        self.add("difference", spot, where, keys)
        return True

    def pair_of(
        self, printed: str, candidates: list[Candidate], against: list[Candidate], cell: Cell, *, is_ratio: bool = False
    ) -> tuple[Candidate, Candidate] | None:
        """The first pair whose change is the printed one."""
        for candidate in candidates:
            for other in against:
                if candidate is not other and self.figures.basis_of(
                    printed, candidate.reference, other.reference, cell, is_ratio=is_ratio
                ):
                    return candidate, other
        return None

    def best(self, stage: Stage, cell: Cell) -> Candidate | None:
        """The candidate of a stage with the best figure on the cell's workload."""
        measured = [
            (value, each)
            for each in stage.candidates
            if (value := self.figures.value(Cell(each.reference, cell.workload, cell.metric, cell.statistic)))
            is not None
        ]
        if not measured:
            return None
        pick = max if METRICS.get(cell.metric).higher_is_better else min
        return pick(measured, key=lambda each: each[0])[1]


def metric_of(name: str | None) -> str | None:
    """The metric to write for a word of a page."""
    return DEFAULT_METRIC if name == THROUGHPUT else name


def fits(cell: Cell, metric: str | None, statistic: str | None) -> bool:
    """Whether a figure can be what words say."""
    if statistic is not None and cell.statistic != statistic:
        return False
    if metric == THROUGHPUT:
        return cell.metric in ("total_tokens_per_s", "output_tokens_per_s")
    return metric is None or cell.metric == metric


def _cell_keys(cell: Cell) -> dict[str, str]:
    keys = {"workload": cell.workload}
    if cell.metric != DEFAULT_METRIC:
        keys["metric"] = cell.metric
    if cell.statistic != "mean":
        keys["statistic"] = cell.statistic
    return keys
