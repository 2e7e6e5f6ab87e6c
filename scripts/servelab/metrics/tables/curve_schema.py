"""The columns of curves.parquet."""

from __future__ import annotations

import pyarrow as pa

from servelab.metrics.tables.column import table_schema

CURVES = table_schema(
    ("study", pa.string(), "Study."),
    ("curve", pa.string(), "Workload with several loads, as the study names it."),
    ("load", pa.string(), "What its points differ in: `max_concurrency` or `request_rate` (1/s)."),
    ("level", pa.float64(), "The point: its value of `load`."),
    ("workload", pa.string(), "Name of the point."),
    ("decides", pa.bool_(), "Whether the search decides at this point."),
    ("stage", pa.string(), "Stage that measured it first; `confirm` for the pairs of the proof."),
    ("candidate", pa.string(), "Label of the candidate; in `confirm`, `baseline` or `winner`."),
    ("engine", pa.string(), "Engine."),
    ("command", pa.string(), "Serving command, for reading."),
    ("accelerators", pa.int32(), "Accelerators the run used."),
    ("run_id", pa.string(), "Its first run; the records are in `results/runs/<run_id>/`."),
    ("run_ids", pa.list_(pa.string()), "Its runs, one for each server start."),
    ("starts", pa.int32(), "Server starts that gave a value of the objective."),
    ("outcome", pa.string(), "`ok`, `saturated` if it was not sent because a lower rate saturated it, or `failed`."),
    ("reason", pa.string(), "Why there are no figures; null for `ok`."),
    ("validity", pa.string(), "`ok`, `suspect` or `invalid`, by the worst check; null without figures."),
    ("objective", pa.string(), "Metric the study improves."),
    ("objective_per", pa.string(), "Basis of its figures: `deployment`, `accelerator` or `node`."),
    ("objective_value", pa.float64(), "Its mean over server starts."),
    ("objective_ci95_low", pa.float64(), "Lower end of its 95 % interval over starts (Student t); null below 2."),
    ("objective_ci95_high", pa.float64(), "Upper end of it."),
    ("total_tokens_per_s", pa.float64(), "Mean over server starts, as run, as the figures below."),
    ("total_tokens_per_s_ci95_low", pa.float64(), "Lower end of its 95 % interval over starts; null below 2."),
    ("total_tokens_per_s_ci95_high", pa.float64(), "Upper end of it."),
    ("output_tokens_per_s", pa.float64(), "Mean over rounds, then over starts."),
    ("requests_per_s", pa.float64(), "Mean over rounds, then over starts."),
    ("ttft_ms_mean", pa.float64(), "Time to first token: mean over a round's successful requests, then over rounds."),
    ("ttft_ms_p99", pa.float64(), "Its 99th percentile over the requests of all rounds."),
    ("tpot_ms_mean", pa.float64(), "Time per output token after the first, likewise."),
    ("tpot_ms_p99", pa.float64(), "Its 99th percentile over the requests of all rounds."),
    ("e2el_ms_mean", pa.float64(), "End-to-end latency: mean over a round's successful requests, then over rounds."),
)
