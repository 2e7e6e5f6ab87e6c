"""Lines that a user sees while the workflow runs: one for each job that ends, a few for one that fails.

Snakemake tells its events as records with attributes; `Console.lines` turns those of a job into text. Everything else
keeps Snakemake's own words.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from servelab.core.figure_text import duration

_WIDEST, _WIDEST_ERROR = 120, 400
"""Characters of a log line that are shown, and of one with an error and its remedy."""
_TAIL_BYTES = 16384
"""How much of a log is read for its last line."""

_CHATTER: tuple[str, ...] = tuple(yaml.safe_load(Path(__file__).with_suffix(".yaml").read_bytes()))
"""How Snakemake's lines begin that no user of Servelab acts on."""
_EXCLUDED = re.compile(r"--exclude=(\S+)")
_NO_JOB = "no job: `--until` knows only runs of planned stages; first `--until plan_stage`, or leave it out"
_TOO_LATE = "the allocation ends in"
_SUBMITTED = re.compile(r"Job (\d+) has been submitted with SLURM jobid (\S+)")
_SLURM_SAYS = (
    (re.compile(r"slurmstepd[^:\n]*: error: \W*(.*?)\W*$", re.MULTILINE), "Slurm: {}"),
    (re.compile(r"The error message was '(?:sbatch: error: )?(.*?)'", re.DOTALL), "Slurm refused the job: {}"),
    (re.compile(r"SLURM status is: '(?!FAILED)(\w+)'"), "Slurm ended the job: {}"),
)
"""Slurm's own words in a job's log or in the executor's message → a line; the first that matches."""

Event = Mapping[str, Any]
"""Attributes of a record of Snakemake's logger."""


@dataclass(frozen=True)
class _Job:
    name: str
    logs: Sequence[str]
    started: float
    written: Sequence[int]
    """When each log was last written before the job began: an earlier attempt may have left one."""


@dataclass(frozen=True)
class MeasuringRule:
    """The rule whose jobs are named by what they measure."""

    name: str
    title: Callable[[str], str]
    """The title of a job, by its wildcard."""
    is_local: Callable[[], bool]
    """Whether jobs begin at once, because no batch system queues them."""


measuring: list[MeasuringRule] = []
"""Set by the workflow: Snakemake makes the logger before it reads the rules."""


class Console:
    """The lines of one run of the workflow."""

    def __init__(self, clock: Callable[[], float] = time.time, *, is_dry_run: bool = False) -> None:
        """`clock` gives seconds since the epoch."""
        self._clock, self._is_dry_run = clock, is_dry_run
        self._jobs: dict[int, _Job] = {}
        self._ended: list[tuple[_Job, float]] = []
        self._ended_dry_run = self._is_too_late = False

    def plan(self, event: Event) -> list[str]:
        """How many jobs are planned so far, in place of the table of their rules."""
        total = (event.get("stats") or {}).get("total")
        if total is None or self._ended_dry_run:  # Snakemake repeats it in the end
            return []
        self._ended_dry_run = self._is_dry_run
        if not total:
            return [_NO_JOB]
        if not self._is_dry_run:
            return [f"{self._time()} {total} jobs are planned; a stage that is decided may add some"]
        return [f"{total} jobs would run now, others as stages are decided; `--verbose` lists them"]

    def said(self, text: str) -> list[str]:
        """Other messages of Snakemake, without those that nobody acts on."""
        if (found := _SUBMITTED.match(text)) and (job := self._jobs.get(int(found[1]))):
            return [f"{self._time()} queued as Slurm job {found[2]}: {job.name}"]
        return [] if not text.strip() or text.lstrip().startswith(_CHATTER) else [text]

    def error(self, event: Event) -> list[str]:
        """An error of the workflow; that a job's command failed is said by `job_fails`, without the command."""
        text = str(event["msg"] or "")
        return [] if event.get("exception") == "RuleException" and "returned non-zero exit status" in text else [text]

    def job_begins(self, event: Event) -> list[str]:
        """A line for a job that reserves accelerators, because it takes minutes, unless it is queued first."""
        resources = dict(event["resources"].items())
        nodes = _EXCLUDED.findall(str(resources.get("slurm_extra", ""))) if event["jobid"] in self._jobs else []
        not_on = "".join(f", not on {node}" for node in nodes)
        written = [_written_ns(file) for file in event["log"]]
        job = self._jobs[event["jobid"]] = _Job(job_name(event) + not_on, event["log"], self._clock(), written)
        is_shown = resources.get("accelerators") and not self._is_dry_run
        return [f"{self._time()} begins: {job.name}"] if is_shown and all(rule.is_local() for rule in measuring) else []

    def job_ends(self, event: Event) -> list[str]:
        """Nothing yet: the line comes with the number of jobs that have ended."""
        if job := self._jobs.pop(event["job_id"], None):
            self._ended.append((job, self._clock() - job.started))
        return []

    def progress(self, event: Event) -> list[str]:
        """A line for each job that ended: how many have, which, how long it took, and what it said last."""
        done, total = event["done"], event["total"]
        first = done - len(self._ended)
        lines = []
        for number, (job, took_s) in enumerate(self._ended, first + 1):
            said = last_line(job.logs)
            lines.append(f"{self._time()} {number} of {total}: {job.name}, {duration(took_s)}{said and ': ' + said}")
        self._ended.clear()
        return lines

    def job_fails(self, event: Event) -> list[str]:
        """The job, the last line of its log, Slurm's own words if it has any, and the file to open."""
        job = self._jobs.get(event["jobid"])
        name = job.name if job else event["rule_name"]
        logs = [file for file in event["log"] if Path(file).is_file()] or list(event["log"])
        before = dict(zip(job.logs, job.written, strict=True)) if job else {}
        written = [file for file in logs if _written_ns(file) != before.get(file)]
        if _TOO_LATE in (why := last_line(written, "error")):
            said, self._is_too_late = self._is_too_late, True
            return [] if said else [f"{self._time()} nothing more begins: {why.removeprefix('error: ')}"]
        slurm = _words_of_slurm("\n".join(_text(file) for file in written) + str(event["rule_msg"] or ""))
        why = last_line([file for file in written if not job or file in job.logs], "error") or (
            "" if slurm else _one_line(str(event["rule_msg"] or ""))
        )
        return [
            f"{self._time()} FAILED: {name}",
            *(f"    {line}" for line in [why, slurm] if line),
            *([] if why or slurm else ["    it left no message"]),
            f"    open {', '.join(logs)}" if logs else "    it has no log",
        ]

    def _time(self) -> str:
        return time.strftime("%H:%M:%S", time.localtime(self._clock()))


def job_name(event: Event) -> str:
    """What a job does."""
    wildcards = [str(value) for value in event["wildcards"].values()]
    if titles := [rule.title(wildcards[0]) for rule in measuring if rule.name == event["rule_name"]]:
        return f"measure {titles[0]}"
    return " ".join([event["rule_name"], *wildcards])


def _words_of_slurm(text: str) -> str:
    found = ((line, pattern.findall(text)) for pattern, line in _SLURM_SAYS)
    return next((_one_line(line.format(said[-1])) for line, said in found if said), "")


def _written_ns(file: str) -> int:
    return Path(file).stat().st_mtime_ns if Path(file).is_file() else 0


def _text(log: str) -> str:
    """The end of a log; empty if it cannot be read."""
    try:
        with Path(log).open("rb") as file:
            file.seek(max(0, file.seek(0, 2) - _TAIL_BYTES))
            return file.read().decode(errors="replace")
    except OSError:
        return ""


def last_line(logs: Sequence[str], having: str = "") -> str:
    """The last line of the first log that has one, of those that begin with `having` if any does; on one line."""
    for log in logs:
        lines = [line for line in _text(log).splitlines() if _one_line(line)]
        wanted = [line for line in lines if having and line.lower().startswith(having)]
        if found := (wanted or lines)[-1:]:
            return _one_line(found[0], _WIDEST_ERROR if wanted else _WIDEST)
    return ""


def _one_line(text: str, widest: int = _WIDEST) -> str:
    printable = "".join(character if character.isprintable() else " " for character in text)
    line = " ".join(printable.split())
    return line if len(line) <= widest else line[: widest - 1] + "…"
