"""Reads the logs of a recorded stage into the tables of a live stage."""

from __future__ import annotations

import statistics
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from servelab.assets.model_work import work_of_config
from servelab.engines.roofline import Served
from servelab.machine.rates import published_rates
from servelab.metrics.definitions import METRICS
from servelab.metrics.objective import missed_constraints, per_basis
from servelab.metrics.statistics import mean_ci95
from servelab.recorded.audit import RUN_RULES, Run, RunRule, summary
from servelab.recorded.logs import Logs, unsound_rates
from servelab.recorded.readers import VALUE, Block
from servelab.results.checks import CHECKS, Saw, invalid, not_applicable, ok, suspect, verdict
from servelab.results.checks.bandwidth import Decoding, judge_device
from servelab.results.checks.server import judge
from servelab.results.parse import HEADLINE, WITH_INTERVAL, candidate_columns, interval_columns
from servelab.results.parse import TABLES as TABLES_OF_RUNS
from servelab.results.physical_limit import PhysicalLimit, RoundServed, Serving, decode_step, limit_of, serving
from servelab.study.recorded.commands import read_command
from servelab.study.recorded.plan import RecordedPlan, RecordedRun
from servelab.study.recorded.study import RecordedStudy


def limit_of_recorded(run: Run) -> PhysicalLimit:
    """The limit of a candidate on a workload.

    A log has totals only, so every request counts with the mean lengths. Prompts count in full unless the log counts
    tokens from a cache; they do not count if the command turns a prefix cache on and the log does not.
    """
    study, candidate = run.study, run.candidate
    config = study.model.config_of(candidate.model)
    work = work_of_config(config) if config else None
    if work is None:
        return PhysicalLimit(note="the study does not give the model's config.json (`model.config`), or it is unknown")
    rates = published_rates(study.hardware.accelerator)
    if rates is None:
        return PhysicalLimit(note=f"how fast `{study.hardware.accelerator}` is at most is not known")
    how = serving(candidate.engine, work, {}, dict(read_command(run.command).options), candidate.accelerators)
    found = [_served(block, run, how) for block in run.blocks]
    rounds = [each for each in found if each is not None]
    if not rounds:
        return PhysicalLimit(note="a log does not give requests, tokens and duration")
    remarks = list(how.remarks)
    if how.caches_prefixes:
        remarks.append("prompts may have come from the prefix cache and do not count")
    step = decode_step(work, study.hardware.accelerator, rates, candidate.accelerators, how.formats)
    return replace(limit_of(work, rates, candidate.accelerators, how.formats, rounds, remarks), step=step)


def device_of_recorded(run: Run, limit: PhysicalLimit) -> Saw:
    """The check of the device by the slowest of a run's logs."""
    found = []
    for block in run.blocks:
        names = ("output_tokens_per_s", "tpot_ms", "itl_ms", "input_tokens", "output_tokens", "requests_completed")
        statistics_of = (VALUE, "mean", "median", VALUE, VALUE, VALUE)
        figures = [block.value(*each) for each in zip(names, statistics_of, strict=True)]
        if None in figures or not figures[-1]:
            continue
        rate, tpot, gap, inputs, outputs, requests = (float(each or 0) for each in figures)
        seen = Decoding(rate, tpot, gap, inputs / requests, outputs / requests)
        found.append(judge_device(limit, run.study.hardware.accelerator, seen))
    return max(found, key=lambda saw: saw.level, default=judge_device(limit, "", None))


def _served(block: Block, run: Run, how: Serving) -> RoundServed | None:
    """The requests and tokens of a log; None if it lacks requests, tokens or duration."""
    names = ("requests_completed", "input_tokens", "output_tokens", "duration_s")
    requests, inputs, outputs, duration = (block.value(name) for name in names)
    if not requests or inputs is None or outputs is None or not duration:
        return None
    most = run.study.workloads[run.workload].max_concurrency or run.study.workloads[run.workload].prompts
    one = np.ones(int(requests))
    return RoundServed(
        Served(
            prompts=one * (0.0 if how.caches_prefixes else inputs / len(one)),
            cached=0 * one,
            outputs=one * outputs / len(one),
            in_flight=min(how.most_sequences, block.value("peak_concurrency") or most),
            is_mean=True,
        ),
        inputs,
        outputs,
        duration,
        block.value("total_tokens_per_s"),
        block.value("output_tokens_per_s"),
    )


_FAILED = {"suspect": suspect, "invalid": invalid}


def _checks(run: Run) -> list[dict[str, Any]]:
    """A row of `schemas.CHECKS` for each run rule, the physical limit and the device; without study, run, workload."""
    limit = limit_of_recorded(run)
    found = [(rule.name, _saw(rule, run), rule.action) for rule in RUN_RULES]
    for name, saw in (("above_physical_limit", judge(limit)), ("device_speed", device_of_recorded(run, limit))):
        found.append((name, saw, CHECKS.get(name).action))
    return [
        {"check": name, "level": saw.level, "saw": saw.text, "action": action if saw.level in _FAILED else None}
        for name, saw, action in found
    ]


def _saw(rule: RunRule, run: Run) -> Saw:
    findings = list(rule.look(run))
    contradicted = [finding for finding in findings if finding["verdict"] == "contradicted"]
    if not findings:
        return not_applicable(f"nothing is known to compare: {rule.compares}")
    texts = "; ".join(dict.fromkeys(summary(finding) for finding in contradicted or findings))
    return _FAILED[rule.fails_as](texts) if contradicted else ok(texts)


Row = dict[str, Any]

TABLES = {name: schema for name, schema in TABLES_OF_RUNS.items() if name != "answers"}
"""Tables of a recorded stage: those of a live one, but nothing was asked."""
_SPREAD = ("std", "minimum", "median", "p90", "p95", "p99", "maximum")
_REASONS = {"crash": "crashed", "unsupported": "unsupported", "not run": "no_log"}
"""Outcome of a recorded run → reason in the stage's table."""


def parse_recorded(study: RecordedStudy, plan: RecordedPlan, folder: Path) -> dict[str, pa.Table]:
    """The tables of `TABLES` for a recorded plan.

    A log is one measurement, in the tables one start and one round: it has no interval, and its percentiles are the
    printed ones. Several logs of a candidate and workload have an interval but no percentiles, which cannot be
    combined. A run without a log that can be read has failed, and one without logs was not run; `ConfigError` if no
    log of a workload has its `prompts`.
    """
    logs = Logs(study, folder)
    rows: dict[str, list[Row]] = {name: [] for name in TABLES}
    for position, planned in enumerate(plan.candidates):
        of_candidate = candidate_columns(study, plan, position)
        for planned_run in planned.runs:
            run = Run(study, logs, planned.reference, planned_run.workload)
            parsed = _parse_run(run) if run.blocks else {}
            names = {"study": plan.study, "run_id": planned_run.run_id, "workload": run.workload}
            for table in rows.keys() & parsed.keys():
                rows[table] += [names | entry for entry in parsed[table]]
            rows["table"].append(of_candidate | names | _run_columns(run, parsed) | _end(run, planned_run))
    return {name: pa.Table.from_pylist(rows[name], schema=schema) for name, schema in TABLES.items()}


def _end(run: Run, planned: RecordedRun) -> Row:
    """Outcome of a run, with its reason and message if it is not `ok`, and its command."""
    outcome, reason, message = planned.spec.outcome, _REASONS.get(planned.spec.outcome), None
    if outcome == "not run":
        message = f"no log of `{run.workload}` under its command"
    elif outcome != "ok":
        outcome, message = "failed", run.candidate.message or ""
    elif not run.blocks:
        broken = run.logs.broken(run.reference, run.workload)
        outcome, reason = "failed", "broken_log"
        message = "; ".join(f"{each.file}: {each.reason}" for each in broken)
    end = {"outcome": outcome, "reason": reason, "message": message}
    return {"run_ids": [planned.run_id], "command": planned.spec.command, **end}


def _values(run: Run, block: Block) -> dict[str, float]:
    """Metric → the round's rate, or the mean of its observations; only metrics of docs/reference/metrics.md.

    A token rate that is not tokens / duration, as the log itself has them, is replaced by that.
    """
    found = {tag: block.value(tag, VALUE) for tag in METRICS.names()}
    found |= {tag: block.value(tag, "mean") for tag, value in found.items() if value is None}
    found |= unsound_rates(block)
    completed = block.value("requests_completed")
    found["success_rate"] = None if completed is None else completed / run.study.workloads[run.workload].prompts
    return {tag: value for tag, value in found.items() if value is not None}


def _parse_run(run: Run) -> dict[str, list[Row]]:
    """Rows of a run's tables without study, run_id and workload; only metrics that every round has."""
    per_round = [_values(run, block) for block in run.blocks]
    common = [tag for tag in per_round[0] if all(tag in values for values in per_round)]
    return {
        "metrics": [_metric_row(tag, [values[tag] for values in per_round], run.blocks) for tag in common],
        "rounds": [
            {"metric": tag, "round": number, "value": value}
            for number, values in enumerate(per_round)
            for tag, value in values.items()
        ],
        "checks": _checks(run),
        "physical_limit": [limit_of_recorded(run).columns],
    }


def _metric_row(tag: str, values: list[float], blocks: list[Block]) -> Row:
    is_one_number = blocks[0].value(tag, "mean") is None
    interval = mean_ci95(values)
    spread: Row = dict.fromkeys(_SPREAD)
    if is_one_number:
        spread |= {"std": statistics.pstdev(values), "minimum": min(values), "maximum": max(values)}
    elif len(blocks) == 1:
        spread |= {statistic: blocks[0].value(tag, statistic) for statistic in _SPREAD}
    definitions = dict.fromkeys(text for block in blocks if (text := _definition(tag, block)))
    return {
        "metric": tag,
        "definition": "; ".join(definitions) or None,
        "n": len(values) if is_one_number else _observations(tag, blocks),
        "mean": interval.value,
        **spread,
        "rounds": len(values),
        "ci95_low": interval.low,
        "ci95_high": interval.high,
    }


def _definition(tag: str, block: Block) -> str | None:
    if tag in unsound_rates(block):
        return f"tokens / duration; the log prints {block.value(tag):g}, which is over a different time"
    return block.definitions.get(tag)


def _observations(tag: str, blocks: list[Block]) -> int | None:
    """Number of observations of a latency that each successful request has once; None for others, which logs lack."""
    completed = [block.value("requests_completed") for block in blocks]
    if tag not in ("ttft_ms", "e2el_ms") or None in completed:
        return None
    return sum(int(count) for count in completed if count is not None)


def _run_columns(run: Run, parsed: dict[str, list[Row]]) -> Row:
    """Columns of a run in the stage's table, from its rows in the other tables."""
    study, accelerators, blocks = run.study, run.candidate.accelerators, run.blocks
    by_metric = {entry["metric"]: entry for entry in parsed.get("metrics", [])}
    columns: Row = {
        name: by_metric[metric][statistic] for name, (metric, statistic) in HEADLINE.items() if metric in by_metric
    }

    def of_logs(metric: str) -> list[float]:
        """A metric in each log, as run; none unless every log has it."""
        found = parsed["rounds"] if metric in by_metric else []
        return [entry["value"] for entry in found if entry["metric"] == metric]

    metric, basis = study.objective.metric_and_basis
    factor, _ = per_basis(basis, accelerators, study.hardware.per_node)
    values = [value * factor for value in of_logs(metric)]
    columns |= interval_columns("objective", "_value", values)
    columns |= interval_columns(WITH_INTERVAL, "", of_logs(WITH_INTERVAL))
    if parsed:
        columns |= parsed["physical_limit"][0]
        columns["validity"], columns["validity_note"] = verdict(parsed["checks"])
        if run.workload == study.objective.on:
            columns["constraints_missed"] = missed_constraints(study.objective.constraints, by_metric, None)
    # a log gives only the duration of its load, not of the server's start
    used = sum(block.value("duration_s") or 0.0 for block in blocks) * accelerators
    return {
        **columns,
        "starts": len(values),
        "start_labels": [f"log-{number}" for number in range(len(values))],
        "start_values": values,
        "start_delays_percent": [0.0] * len(values),
        "start_jobs": [None] * len(values),
        "run_places": [],
        "rounds": len(blocks),
        "success_rate": by_metric.get("success_rate", {}).get("mean"),
        "accelerator_s": used,
        "load_accelerator_s": used,
    }
