"""The logs' figures by candidate and workload, and by how they print: to find which one a page means."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal

from servelab.metrics.definitions import METRICS
from servelab.metrics.objective import BASES, Basis, per_basis
from servelab.recorded.draft.candidates import Candidate
from servelab.recorded.logs import figures_of
from servelab.recorded.readers import VALUE
from servelab.study.recorded.published_claims import ratio_of

_STATISTICS = ("mean", "median", "p90", "p95", "p99")
_MOST_DECIMALS = 4
_LEAST_DIGITS = 3
"""A printed number of fewer digits says nothing of where it comes from."""


@dataclass(frozen=True)
class Cell:
    """Which figure a number is."""

    candidate: str
    workload: str
    metric: str
    statistic: str = "mean"


class Figures:
    """Every figure of every candidate, its mean where several logs have it."""

    def __init__(self, candidates: list[Candidate], accelerators: dict[str, int], per_node: int) -> None:
        self.accelerators, self.per_node = accelerators, per_node
        self._values: dict[Cell, float] = {}
        self._printed: dict[str, list[Cell]] = {}
        for candidate in candidates:
            for workload, results in candidate.results.items():
                blocks = list({figures_of(each.block): each.block for each in results}.values())
                sums: dict[tuple[str, str], list[float]] = {}
                for block in blocks:
                    for figure in block.figures:
                        statistic = "mean" if figure.statistic == VALUE else figure.statistic
                        if figure.value is not None and statistic in _STATISTICS and figure.metric in METRICS.names():
                            sums.setdefault((figure.metric, statistic), []).append(figure.value)
                            cell = Cell(candidate.reference, workload, figure.metric, statistic)
                            self._note(figure.value, cell)
                for (metric, statistic), values in sums.items():
                    if len(values) == len(blocks):
                        cell = Cell(candidate.reference, workload, metric, statistic)
                        self._values[cell] = sum(values) / len(values)
                        self._note(self._values[cell], cell)

    def _note(self, value: float, cell: Cell) -> None:
        for decimals in range(_MOST_DECIMALS + 1):
            texts = [f"{value:.{decimals}f}"]
            if cell.metric.endswith("_ms"):
                texts.append(f"{value / 1000:.{decimals}f}s")
            for text in texts:
                cells = self._printed.setdefault(text, [])
                if cell not in cells:
                    cells.append(cell)

    def value(self, cell: Cell) -> float | None:
        """A figure; None if no log has it."""
        return self._values.get(cell)

    def has(self, candidate: str, workload: str) -> bool:
        """Whether a candidate was measured on a workload."""
        return any((each.candidate, each.workload) == (candidate, workload) for each in self._values)

    def like(self, printed: str) -> list[Cell]:
        """Figures that print as this number does, `2.62s` in seconds; none for a number of one or two digits."""
        if len(printed.rstrip("s").replace(".", "").lstrip("+-0")) < _LEAST_DIGITS:
            return []
        return self._printed.get(printed.lstrip("+-"), [])

    def change(self, candidate: str, against: str, cell: Cell, basis: Basis) -> float | None:
        """Percent of one candidate against another, by the figures of `cell`'s workload and metric."""
        values = [
            self._values.get(Cell(name, cell.workload, cell.metric, cell.statistic)) for name in (candidate, against)
        ]
        if values[0] is None or not values[1]:
            return None
        factors = [per_basis(basis, self.accelerators.get(name, 1), self.per_node)[0] for name in (candidate, against)]
        return 100 * (values[0] * factors[0] / (values[1] * factors[1]) - 1) if factors[1] else None

    def basis_of(
        self, printed: str, candidate: str, against: str, cell: Cell, *, is_ratio: bool = False
    ) -> Basis | None:
        """The basis on which the change, in percent or as a ratio, is the printed one; None if it is on none."""
        same = self.accelerators.get(candidate, 1) == self.accelerators.get(against, 1)
        bases: tuple[Basis, ...] = ("deployment",) if same or not METRICS.get(cell.metric).is_rate else BASES
        preferred = sorted(bases, key=lambda each: each == "accelerator")
        for basis in preferred:
            change = self.change(candidate, against, cell, basis)
            if change is not None and prints_as(ratio_of(change, cell.metric) if is_ratio else change, printed):
                return basis
        return None


def prints_as(value: float, printed: str) -> bool:
    """Whether a value rounds, or is cut, to a printed number."""
    unit = 10.0 ** int(Decimal(printed).as_tuple().exponent)
    return abs(value - float(printed)) <= 0.5 * unit + 1e-9 or 0 <= (abs(value) - abs(float(printed))) < unit
