"""The logs of a recorded study: each is read once, for the figures of its candidate. A broken one is no figure."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from servelab.core.errors import ConfigError
from servelab.recorded.readers import VALUE, Block, PrintedFigure, ReadError, read_file
from servelab.study.recorded.study import FILE, LOGS, RecordedStudy, RecordedWorkload, load_recorded


class Quantity(NamedTuple):
    """A number, and the range in which it lies, as rounding can have changed it or what it was computed from."""

    value: float
    low: float
    high: float

    @classmethod
    def rounded(cls, value: float, half_unit: float = 0.0) -> Quantity:
        """A number whose last digit is worth twice `half_unit`."""
        return cls(value, value - half_unit, value + half_unit)

    def times(self, factor: float) -> Quantity:
        """The number on another basis."""
        return Quantity(*(each * factor for each in self))


@dataclass(frozen=True)
class BrokenLog:
    """A log that gives no figures."""

    file: str
    is_missing: bool
    reason: str
    """Why, without the file's path."""
    line: int | None = None
    """Line of the fault, where one is named."""
    of_prompts: bool = False
    """Whether only its number of requests is not the workload's `prompts`."""


class Logs:
    """The logs of the study in `folder`. Candidates are named `<stage>/<candidate>`."""

    def __init__(self, study: RecordedStudy, folder: Path) -> None:
        self.study, self.folder = study, folder
        self._read: dict[tuple[str, str], Block | BrokenLog] = {}

    def rounds(self, reference: str, workload: str) -> list[Block]:
        """The results of a candidate on a workload, one per round; broken logs are left out.

        Logs with the same figures are one run printed twice, and count once.
        """
        unlike: dict[object, Block] = {}
        for found in self._found(reference, workload):
            if isinstance(found, Block):
                unlike.setdefault(figures_of(found), found)
        return list(unlike.values())

    def broken(self, reference: str, workload: str) -> list[BrokenLog]:
        """Logs of a candidate on a workload that are missing, cannot be read or contradict themselves or `prompts`."""
        return [found for found in self._found(reference, workload) if isinstance(found, BrokenLog)]

    def _found(self, reference: str, workload: str) -> list[Block | BrokenLog]:
        """`ConfigError` if no log that can be read has the workload's `prompts`: then these are wrong."""
        found = [self._log(file, workload) for file in self.study.candidates[reference].logs.get(workload, [])]
        wrong = next((each for each in found if isinstance(each, BrokenLog) and each.of_prompts), None)
        of_workload = (self._log(file, workload) for _, other, file in self.study.log_files() if other == workload)
        if wrong is not None and not any(isinstance(each, Block) for each in of_workload):
            where = f"{self.folder / FILE}: workloads.{workload}.prompts"
            raise ConfigError(f"{where}: no log has so many requests; {wrong.file}: {wrong.reason}")
        return found

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
        return Quantity.rounded(sum(values) / len(values), sum(half_units) / len(half_units))

    def _log(self, file: str, workload: str) -> Block | BrokenLog:
        if (file, workload) not in self._read:
            self._read[file, workload] = self._read_log(file, self.study.workloads[workload])
        return self._read[file, workload]

    def _read_log(self, file: str, workload: RecordedWorkload) -> Block | BrokenLog:
        path = self.folder / LOGS / file
        if not path.is_file():
            return BrokenLog(file, is_missing=True, reason=f"not in {LOGS}/")
        try:
            blocks = read_file(path)
        except ReadError as error:
            return _broken(file, str(error).removeprefix(f"{path}:"))
        if len(blocks) != 1:
            reason = f"{len(blocks)} results in it; each needs a file of its own"
            return BrokenLog(file, is_missing=False, reason=reason)
        return _counted(file, blocks[0], workload.prompts)


def studies_beside(folder: Path) -> tuple[Logs, ...]:
    """The other recorded studies beside the one in `folder`, most logs first; one with a mistake is left out."""
    found = []
    for file in sorted(folder.resolve().parent.glob(f"*/{FILE}")):
        if file.parent == folder.resolve():
            continue
        try:
            found.append(Logs(load_recorded(file.parent), file.parent))
        except ConfigError:
            continue
    return tuple(sorted(found, key=lambda logs: -len(list(logs.study.log_files()))))


def _counted(file: str, block: Block, prompts: int) -> Block | BrokenLog:
    """The result, if its requests can be those that were to be sent."""
    completed, failed = block.value("requests_completed"), block.value("requests_failed")
    sent = (completed or 0) + (failed or 0)
    if sent > prompts or (failed is not None and sent != prompts):
        reason = f"{completed or 0:.0f} successes and {failed or 0:.0f} failures, of {prompts} prompts"
        return BrokenLog(file, is_missing=False, reason=reason, of_prompts=True)
    return block


def _broken(file: str, text: str) -> BrokenLog:
    """A log with the error of its reader, which begins with the line if there is one."""
    line, colon, reason = text.partition(":")
    if colon and line.isdigit():
        return BrokenLog(file, is_missing=False, reason=reason.strip(), line=int(line))
    return BrokenLog(file, is_missing=False, reason=text.strip())


def figures_of(block: Block) -> frozenset[tuple[str, str, float]]:
    """All figures of a block, to distinguish one run printed twice from two runs."""
    return frozenset((each.metric, each.statistic, each.value) for each in block.figures if each.value is not None)


def _figure(block: Block, metric: str, statistic: str) -> PrintedFigure | None:
    wanted = (VALUE, "mean") if statistic == "mean" else (statistic,)
    return next((each for each in block.figures if each.metric == metric and each.statistic in wanted), None)
