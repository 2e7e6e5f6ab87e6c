"""The physical limit of a recorded run, from the model's config.json in its study and the totals of its logs."""

from __future__ import annotations

import numpy as np

from servelab.assets.model_work import work_of_config
from servelab.engines.roofline import Served
from servelab.machine.cpu_rates import published_rates
from servelab.recorded.audit import Run
from servelab.recorded.readers import Block
from servelab.results.physical_limit import PhysicalLimit, RoundServed, Serving, limit_of, serving
from servelab.study.recorded.commands import read_command


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
    return limit_of(work, rates, candidate.accelerators, how.formats, rounds, remarks)


def _served(block: Block, run: Run, how: Serving) -> RoundServed | None:
    """What a log says was served; None if it lacks requests, tokens or duration."""
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
