"""Logs of the jobs that made an archive's files: each file says which job made it, and so which log there was.

A log is archived though it is empty. So one that is missing was lost before the archive was made, or taken out since.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from servelab.archive.layout import RESULTS

LOGS = f"{RESULTS}/logs/"
_MEASURE = f"{LOGS}measure/"
_SEARCH = r"(?P<search>(?:studies|recorded)/(?P<study>[^/]+))"
_STAGE = rf"{_SEARCH}/stages/(?P<stage>[^/]+)"
_MADE_BY = {
    rf"(?=studies/){_STAGE}/plan\.json": ("plan_stage/{study}-{stage}", "parse_stage/{study}-{stage}"),
    rf"(?=recorded/){_STAGE}/plan\.json": ("parse_recorded/{study}-{stage}",),
    rf"{_STAGE}/decision\.json": ("decide_stage/{search}-{stage}",),
    rf"{_SEARCH}/study\.json": ("describe_study/{search}",),
    rf"{_SEARCH}/improvements\.parquet": ("aggregate/{search}",),
    rf"{_SEARCH}/recommended\.json": ("recommend/{search}",),
    rf"{_SEARCH}/search\.parquet": ("list_candidates/{search}",),
    rf"{_SEARCH}/report\.html": ("plot_charts/{search}", "render_report/{search}"),
    rf"(?=studies/){_SEARCH}/answers/(?P<versions>[^/]+)\.json": ("keep_answer/{study}-{versions}",),
    rf"{_SEARCH}/curves\.parquet": ("join_curves/{search}",),
    rf"(?=studies/){_SEARCH}/distributions\.parquet": ("condense_records/{study}",),
    rf"(?=studies/){_SEARCH}/history\.parquet": ("build_history/{study}",),
    rf"(?=recorded/){_SEARCH}/claims\.parquet": ("audit_claims/{study}", "copy_logs/{study}"),
    r"workloads/(?P<workload>[^/]+)/workload\.json": ("prepare_workload/{workload}",),
}
"""Files below `results/`, and the logs of the jobs that made them."""
_RUN = re.compile(rf"{RESULTS}/runs/([^/]+)/spec\.json")
_ALWAYS_PRINT = (_MEASURE, f"{LOGS}parse_stage/", f"{LOGS}decide_stage/")


def logs_of(members: Iterable[str]) -> Iterator[str]:
    """Members with the logs of the jobs that made these members; of a run that of a job named by it."""
    for name in members:
        if run := _RUN.fullmatch(name):
            yield f"{_MEASURE}{run[1]}.log"
        for made, logs in _MADE_BY.items():
            if match := re.fullmatch(f"{RESULTS}/{made}", name):
                yield from (f"{LOGS}{log.format(**match.groupdict())}.log" for log in logs)


def missing_logs(folder: Path, members: Iterable[str]) -> Iterator[str]:
    """Logs that are not in the archive, which is unpacked in `folder`.

    A job measures several runs; its log has the name of one, and names all.
    """
    there = set(members)
    said = [(folder / name).read_text(errors="replace") for name in there if name.startswith(_MEASURE)]
    for log in sorted(set(logs_of(there)) - there):
        run = log.removeprefix(_MEASURE).removesuffix(".log")
        if not log.startswith(_MEASURE) or not any(run in text for text in said):
            yield log


def may_be_empty(log: str) -> bool:
    """Whether a job may leave this log empty."""
    return log.startswith(LOGS) and not log.startswith(_ALWAYS_PRINT)
