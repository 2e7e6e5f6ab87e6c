"""Logs of the jobs that made an archive's files, found by these files' names."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

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


def logs_of(members: Iterable[str]) -> Iterator[str]:
    """Members with the logs of the jobs that made these members; of a run that of a job named by it."""
    for name in members:
        if run := _RUN.fullmatch(name):
            yield f"{_MEASURE}{run[1]}.log"
        for made, logs in _MADE_BY.items():
            if match := re.fullmatch(f"{RESULTS}/{made}", name):
                yield from (f"{LOGS}{log.format(**match.groupdict())}.log" for log in logs)
