"""The logs of a recorded study: each is read once, for the figures of its candidate. A broken one is no figure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from statistics import fmean

from servelab.core.errors import ConfigError
from servelab.recorded.readers import VALUE, Block, ReadError, read_file
from servelab.recorded.readers.figures import ValueRange, total
from servelab.study.recorded.study import FILE, LOGS, RecordedStudy, load_recorded


@dataclass(frozen=True)
class BrokenLog:
    """A log that gives no figures."""

    file: str
    reason: str
    """Why, without the file's path."""
    is_missing: bool = False
    line: int | None = None
    """Line of the fault, where one is named."""
    of_prompts: bool = False
    """Whether only its number of requests is not the workload's `prompts`."""


class Logs:
    """The logs of the study in `folder`. Candidates are named `<stage>/<candidate>`."""

    def __init__(self, study: RecordedStudy, folder: Path) -> None:
        self.study, self.folder = study, folder
        self._log = cache(self._read_log)

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

    def quantity(self, reference: str, workload: str, metric: str, statistic: str = "mean") -> ValueRange | None:
        """A candidate's figure, its mean over rounds; None if a log lacks it.

        The single number of a rate or count is its mean. Other statistics of several rounds cannot be combined.
        """
        blocks = self.rounds(reference, workload)
        if not blocks or (statistic != "mean" and len(blocks) > 1):
            return None
        wanted = (VALUE, "mean") if statistic == "mean" else (statistic,)
        of_blocks = [[each for each in block.figures if each.metric == metric] for block in blocks]
        firsts = [next((each for each in figures if each.statistic in wanted), None) for figures in of_blocks]
        found = [(each.value, each.half_unit) for each in firsts if each is not None and each.value is not None]
        if len(found) < len(blocks):
            return None
        value, half_unit = (sum(each) / len(found) for each in zip(*found, strict=True))
        return ValueRange.around(value, half_unit)

    def honest_rates(self, candidates: Iterable[str], workload: str, metric: str) -> dict[str, ValueRange] | None:
        """Candidate → tokens / duration, its mean over rounds; None unless a rate that a log prints differs from it."""
        rates, agree = dict[str, ValueRange](), True
        for name in candidates:
            blocks = self.rounds(name, workload)
            found = [of[metric] for block in blocks if metric in (of := token_rates(block))]
            if not found or len(found) < len(blocks):
                return None
            agree &= all(printed.meets(computed) for printed, computed in found)
            rates[name] = ValueRange.around(fmean(computed.value for _, computed in found))
        return None if agree else rates

    def _read_log(self, file: str, workload: str) -> Block | BrokenLog:
        path, prompts = self.folder / LOGS / file, self.study.workloads[workload].prompts
        if not path.is_file():
            return BrokenLog(file, f"not in {LOGS}/", is_missing=True)
        try:
            block, *others = read_file(path)
        except ReadError as error:
            line, colon, reason = str(error).removeprefix(f"{path}:").partition(":")
            is_line = colon and line.isdigit()
            text = reason if is_line else f"{line}{colon}{reason}"
            return BrokenLog(file, text.strip(), line=int(line) if is_line else None)
        if others:
            return BrokenLog(file, f"{len(others) + 1} results in it; each needs a file of its own")
        completed, failed = block.value("requests_completed"), block.value("requests_failed")
        sent = (completed or 0) + (failed or 0)
        if sent > prompts or (failed is not None and sent != prompts):
            reason = f"{completed or 0:.0f} successes and {failed or 0:.0f} failures, of {prompts} prompts"
            return BrokenLog(file, reason, of_prompts=True)
        return block


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


def figures_of(block: Block) -> frozenset[tuple[str, str, float]]:
    """All figures of a block, to distinguish one run printed twice from two runs."""
    return frozenset((each.metric, each.statistic, each.value) for each in block.figures if each.value is not None)


_AMOUNTS = {"output_tokens_per_s": ("output_tokens",), "total_tokens_per_s": ("input_tokens", "output_tokens")}
"""Rate → what it counts."""


def token_rates(block: Block) -> dict[str, tuple[ValueRange, ValueRange]]:
    """Token rates of a log that has the tokens and the duration too: each as printed, and as tokens / duration."""
    printed = (each for each in block.figures if each.statistic == VALUE)
    of = {each.metric: ValueRange.around(each.value, each.half_unit) for each in printed if each.value is not None}
    return {
        metric: (of[metric], total(of, parts) / of["duration_s"])
        for metric, parts in _AMOUNTS.items()
        if block.value("duration_s") and of.keys() >= {metric, *parts}
    }


def unsound_rates(block: Block) -> dict[str, float]:
    """Token rates that the log prints otherwise than its tokens and duration give, and what these give."""
    rates = token_rates(block)
    return {metric: computed.value for metric, (printed, computed) in rates.items() if not printed.meets(computed)}
