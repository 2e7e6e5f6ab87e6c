"""Lines that a user sees while the workflow runs: one for each job that ends, three for one that fails.

Snakemake tells its events as records with attributes; `Console.lines` turns those of a job into text. Everything else
keeps Snakemake's own words.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_WIDEST = 120
"""Characters of a log line that are shown."""
_TAIL_BYTES = 16384
"""How much of a log is read for its last line."""

_CHATTER = (
    *("Assuming unrestricted shared filesystem", "Building DAG of jobs", "Conda environments: ignored"),
    *("DAG of jobs will be updated", "Execute ", "Select jobs to execute", "Touching output file", "Using profile"),
    *("Updating checkpoint dependencies", "Using shell: ", "Provided ", "Rules claiming more threads", "Elapsed time"),
    "--keep-incomplete mode is set",
)
"""How Snakemake's lines begin that no user of Servelab acts on."""

Event = Mapping[str, Any]
"""Attributes of a record of Snakemake's logger."""


@dataclass(frozen=True)
class _Job:
    name: str
    logs: Sequence[str]
    started: float


class Console:
    """The lines of one run of the workflow."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        """`clock` gives seconds since the epoch."""
        self._clock = clock
        self._jobs: dict[int, _Job] = {}
        self._ended: list[tuple[_Job, float]] = []

    def plan(self, event: Event) -> list[str]:
        """How many jobs are planned so far, in place of the table of their rules."""
        total = (event.get("stats") or {}).get("total")
        return [f"{self._time()} {total} jobs are planned; a stage that is decided may add some"] if total else []

    def said(self, text: str) -> list[str]:
        """Other messages of Snakemake, without those that nobody acts on."""
        return [] if not text.strip() or text.startswith(_CHATTER) else [text]

    def error(self, event: Event) -> list[str]:
        """An error of the workflow; that a job's command failed is said by `job_fails`, without the command."""
        text = str(event["msg"] or "")
        return [] if event.get("exception") == "RuleException" and "returned non-zero exit status" in text else [text]

    def job_begins(self, event: Event) -> list[str]:
        """A line for a job that reserves accelerators, because it takes minutes; none for others."""
        job = _Job(_name(event), event["log"], self._clock())
        self._jobs[event["jobid"]] = job
        resources = dict(event["resources"].items())
        return [f"{self._time()} begins: {job.name}"] if resources.get("accelerators") else []

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
            said = _last_line(job.logs)
            lines.append(f"{self._time()} {number} of {total}: {job.name}, {_duration(took_s)}{said and ': ' + said}")
        self._ended.clear()
        return lines

    def job_fails(self, event: Event) -> list[str]:
        """Three lines: the job, the last line of its log, and the file to open."""
        job = self._jobs.get(event["jobid"])
        name = job.name if job else event["rule_name"]
        logs = [file for file in event["log"] if Path(file).is_file()] or list(event["log"])
        why = _last_line(logs, "error") or _one_line(str(event["rule_msg"] or "")) or "it left no message"
        return [
            f"{self._time()} FAILED: {name}",
            f"    {why}",
            f"    open {', '.join(logs)}" if logs else "    it has no log",
        ]

    def _time(self) -> str:
        return time.strftime("%H:%M:%S", time.localtime(self._clock()))


def _name(event: Event) -> str:
    wildcards = [str(value) for value in event["wildcards"].values()]
    return " ".join([event["rule_name"], *wildcards])


def _duration(seconds: float) -> str:
    if seconds < 100:
        return f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s"


def _last_line(logs: Sequence[str], having: str = "") -> str:
    """The last line of the first log that has one, of those that begin with `having` if any does; on one line."""
    for log in logs:
        try:
            with Path(log).open("rb") as file:
                file.seek(max(0, file.seek(0, 2) - _TAIL_BYTES))
                text = file.read().decode(errors="replace")
        except OSError:
            continue
        lines = [line for line in map(_one_line, text.splitlines()) if line]
        wanted = [line for line in lines if having and line.lower().startswith(having)]
        if found := (wanted or lines)[-1:]:
            return found[0]
    return ""


def _one_line(text: str) -> str:
    printable = "".join(character if character.isprintable() else " " for character in text)
    line = " ".join(printable.split())
    return line if len(line) <= _WIDEST else line[: _WIDEST - 1] + "…"
