"""The logs of a recorded study: each is read once, for the figures of its candidate."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from servelab.core.errors import ConfigError
from servelab.recorded.readers import VALUE, Block, Figure, read_file
from servelab.study.recorded.study import FILE, LOGS, RecordedStudy


@dataclass(frozen=True)
class Quantity:
    """A figure, and how much rounding can have changed it."""

    value: float
    half_unit: float = 0.0

    @property
    def low(self) -> float:
        """The smallest value that rounds to it."""
        return self.value - self.half_unit

    @property
    def high(self) -> float:
        """The largest value that rounds to it."""
        return self.value + self.half_unit

    def __mul__(self, factor: float) -> Quantity:
        return Quantity(self.value * factor, self.half_unit * factor)


class Logs:
    """The logs of the study in `folder`. Candidates are named `<stage>/<candidate>`."""

    def __init__(self, study: RecordedStudy, folder: Path) -> None:
        self.study, self.folder = study, folder
        self._read: dict[tuple[str, str], list[Block]] = {}

    def rounds(self, reference: str, workload: str) -> list[Block]:
        """The results of a candidate on a workload, one per round.

        Logs with the same figures are one run printed twice, and count once. `ReadError` for an unreadable log;
        `ConfigError` if a log does not have exactly one result, or has other requests than the workload's `prompts`.
        """
        if (reference, workload) not in self._read:
            unlike: dict[object, Block] = {}
            for file in self.study.candidates[reference].logs.get(workload, []):
                block = self._block(file, workload)
                unlike.setdefault(figures_of(block), block)
            self._read[reference, workload] = list(unlike.values())
        return self._read[reference, workload]

    def quantity(self, reference: str, workload: str, metric: str, statistic: str = "mean") -> Quantity | None:
        """A candidate's figure, its mean over rounds; None if a log lacks it.

        The single number of a rate or count is its mean. Other statistics of several rounds cannot be combined.
        """
        blocks = self.rounds(reference, workload)
        if not blocks or (statistic != "mean" and len(blocks) > 1):
            return None
        found = [_figure(block, metric, statistic) for block in blocks]
        values = [each.value for each in found if each is not None and each.value is not None]
        if len(values) < len(blocks):
            return None
        half_units = [each.half_unit for each in found if each is not None]
        return Quantity(sum(values) / len(values), sum(half_units) / len(half_units))

    def _block(self, file: str, workload: str) -> Block:
        path, prompts = self.folder / LOGS / file, self.study.workloads[workload].prompts
        blocks = read_file(path)
        if len(blocks) != 1:
            raise ConfigError(f"{path}: {len(blocks)} results in it; give each a file of its own")
        completed, failed = blocks[0].value("requests_completed"), blocks[0].value("requests_failed")
        sent = (completed or 0) + (failed or 0)
        if sent > prompts or (failed is not None and sent != prompts):
            where = f"{self.folder / FILE}: workloads.{workload}.prompts"
            raise ConfigError(
                f"{where}: {prompts}, but {path} has {completed or 0:.0f} successes, {failed or 0:.0f} failures"
            )
        return blocks[0]


def figures_of(block: Block) -> frozenset[tuple[str, str, float]]:
    """All figures of a block, to distinguish one run printed twice from two runs."""
    return frozenset((each.metric, each.statistic, each.value) for each in block.figures if each.value is not None)


def _figure(block: Block, metric: str, statistic: str) -> Figure | None:
    wanted = (VALUE, "mean") if statistic == "mean" else (statistic,)
    return next((each for each in block.figures if each.metric == metric and each.statistic in wanted), None)
