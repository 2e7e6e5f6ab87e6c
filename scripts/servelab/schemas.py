"""The columns of every table this workflow writes: name, type and what it means, units in the name.

All times in `RUN_REQUESTS` are seconds on one monotonic clock whose zero is the start of the round.
"""

from __future__ import annotations

import pyarrow as pa

from servelab.columns import table_schema
from servelab.compared_schemas import ANSWERS, COMPARISON, HISTORY

WORKLOAD_REQUESTS = table_schema(
    ("request_index", pa.int32(), "Position in its phase, from 0."),
    ("phase", pa.string(), "`warmup` or `measured`; the two share no prompt."),
    ("prompt", pa.string(), "Text of the prompt; null where token ids are sent."),
    ("prompt_token_ids", pa.list_(pa.int32()), "Token ids of the prompt; null where text is sent."),
    ("input_tokens", pa.int32(), "The prompt's length in the model's own tokens, without chat template."),
    ("output_tokens", pa.int32(), "The output length to force, in tokens."),
    ("arrival_s", pa.float64(), "When it arrived in the recorded traffic, from 0; null where there is no record."),
)

RUN_REQUESTS = table_schema(
    ("round", pa.int32(), "Round, from 0."),
    ("request_index", pa.int32(), "The request of the workload, from 0."),
    ("phase", pa.string(), "`measured`, or `settle` for what loads the server before anything is counted."),
    ("scheduled_s", pa.float64(), "When the arrival process wanted it sent."),
    ("started_s", pa.float64(), "When the client began to connect; null if it never did."),
    ("sent_s", pa.float64(), "When it was sent; null if it never was."),
    ("first_token_s", pa.float64(), "First event that carries content; null if none came."),
    ("last_token_s", pa.float64(), "Last event that carries content; null if none came."),
    ("end_s", pa.float64(), "When the response ended or failed."),
    ("input_tokens_asked", pa.int32(), "The prompt's length by the workload."),
    ("input_tokens", pa.int32(), "`usage.prompt_tokens` of the server; null if it sent none."),
    (
        "cached_tokens",
        pa.int32(),
        "Prompt tokens the server says it took from a prefix cache; null if it says nothing.",
    ),
    ("output_tokens_asked", pa.int32(), "The output length asked for."),
    ("output_tokens", pa.int32(), "`usage.completion_tokens` of the server; null if it sent none."),
    ("chunks", pa.int32(), "Events that carried content."),
    ("chunk_gaps_ms", pa.list_(pa.float32()), "Gaps between successive events with content."),
    ("unread_ms", pa.float32(), "Longest a piece of the answer had lain in the kernel before the client read it."),
    ("finish_reason", pa.string(), "As the server gave it."),
    ("http_status", pa.int32(), "Null if there was no answer."),
    ("error", pa.string(), "Why the request failed; null for a success."),
)

METRICS = table_schema(
    ("study", pa.string(), "Study."),
    ("run_id", pa.string(), "Run; its records lie in `results/runs/<run_id>/`."),
    ("workload", pa.string(), "Name of the workload."),
    ("metric", pa.string(), "Metric family, unit in its name; see docs/metrics.md."),
    ("definition", pa.string(), "How the client's definition differs from docs/metrics.md; null where it does not."),
    ("n", pa.int64(), "Observations: rounds for a rate, requests (or gaps) for a latency."),
    ("mean", pa.float64(), "Mean of the observations."),
    ("std", pa.float64(), "Population standard deviation of the observations."),
    ("minimum", pa.float64(), "Smallest observation."),
    ("median", pa.float64(), "50th percentile, linear interpolation."),
    ("p90", pa.float64(), "90th percentile."),
    ("p95", pa.float64(), "95th percentile."),
    ("p99", pa.float64(), "99th percentile."),
    ("maximum", pa.float64(), "Largest observation."),
    ("rounds", pa.int32(), "Rounds behind the interval."),
    ("ci95_low", pa.float64(), "Lower end of the mean's 95 % interval over rounds (Student t); null below 2 rounds."),
    ("ci95_high", pa.float64(), "Upper end of it."),
)

ROUNDS = table_schema(
    ("study", pa.string(), "Study."),
    ("run_id", pa.string(), "Run; its records lie in `results/runs/<run_id>/`."),
    ("workload", pa.string(), "Name of the workload."),
    ("metric", pa.string(), "Metric family, unit in its name; see docs/metrics.md."),
    ("round", pa.int32(), "Round, from 0."),
    ("value", pa.float64(), "The round's rate, or the mean of the round's observations."),
)

STAGE_TABLE = table_schema(
    ("study", pa.string(), "Study."),
    ("stage", pa.string(), "Stage."),
    ("position", pa.int32(), "Order in the stage; 0 is the incumbent."),
    ("candidate", pa.string(), "Label of the candidate; for `comparison`, `baseline` or `winner`."),
    ("workload", pa.string(), "Name of the workload."),
    ("is_incumbent", pa.bool_(), "The configuration this stage started from."),
    ("run_id", pa.string(), "Run; its records lie in `results/runs/<run_id>/`."),
    ("engine", pa.string(), "Engine."),
    ("engine_version", pa.string(), "Engine's version."),
    ("model_variant", pa.string(), "Model variant."),
    ("changes", pa.string(), "What the candidate changes on the incumbent, as JSON."),
    ("command", pa.string(), "Serving command, for reading."),
    ("accelerators", pa.int32(), "Accelerators the run used."),
    ("accelerators_per_node", pa.int32(), "Accelerators of a node."),
    ("outcome", pa.string(), "`ok`, `failed`, or `not run` where the search left it out."),
    ("reason", pa.string(), "Why it failed: see docs/output.md; `budget` for `not run`; null for `ok`."),
    ("message", pa.string(), "The telling line of a failure, or why it was left out."),
    ("validity", pa.string(), "`ok`, `suspect` or `invalid`, by the worst of its checks; null for a failed run."),
    ("validity_note", pa.string(), "What the checks that are not ok saw; null where all are."),
    ("rounds", pa.int32(), "Rounds measured."),
    ("success_rate", pa.float64(), "Successful requests / requests, all rounds."),
    ("total_tokens_per_s", pa.float64(), "Mean over rounds."),
    ("total_tokens_per_s_ci95_low", pa.float64(), "Lower end of its 95 % interval."),
    ("total_tokens_per_s_ci95_high", pa.float64(), "Upper end of it."),
    ("output_tokens_per_s", pa.float64(), "Mean over rounds."),
    ("requests_per_s", pa.float64(), "Mean over rounds."),
    ("ttft_ms_mean", pa.float64(), "Time to first token, mean over successful requests."),
    ("ttft_ms_p99", pa.float64(), "Its 99th percentile."),
    ("tpot_ms_mean", pa.float64(), "Time per output token after the first, mean over successful requests."),
    ("tpot_ms_p99", pa.float64(), "Its 99th percentile."),
    ("itl_ms_mean", pa.float64(), "Gap between successive events with content, mean over all gaps."),
    ("e2el_ms_mean", pa.float64(), "End-to-end latency, mean over successful requests."),
    ("slo_attainment", pa.float64(), "Share of the requests that meet every SLO of the study; null where it has none."),
    (
        "constraints_missed",
        pa.string(),
        "Constraints of the objective that the run misses, and by how much; null where it keeps them, and for "
        "workloads that do not decide.",
    ),
    ("objective", pa.string(), "Metric the study improves."),
    ("objective_per", pa.string(), "Basis of the objective's figures: `deployment`, `accelerator` or `node`."),
    ("objective_value", pa.float64(), "Its mean over rounds."),
    ("objective_ci95_low", pa.float64(), "Lower end of its 95 % interval."),
    ("objective_ci95_high", pa.float64(), "Upper end of it."),
    ("accelerator_s", pa.float64(), "Accelerator-seconds the run held."),
    ("load_accelerator_s", pa.float64(), "Of these under load: in a round, from its start to its last answer."),
)

IMPROVEMENTS = table_schema(
    ("study", pa.string(), "Study."),
    ("stage", pa.string(), "Stage, or `comparison` for the winner on every workload."),
    ("candidate", pa.string(), "Label of the candidate."),
    ("workload", pa.string(), "Name of the workload."),
    ("metric", pa.string(), "Metric, unit in its name."),
    (
        "basis",
        pa.string(),
        "`deployment` (as run), `accelerator` (÷ accelerators used) or `node` (× runs that fit a node).",
    ),
    (
        "extrapolated",
        pa.bool_(),
        "The node figure multiplies a run that used part of a node; nothing that large was run.",
    ),
    ("factor", pa.float64(), "What the candidate's figure was multiplied by to reach the basis."),
    ("baseline_factor", pa.float64(), "The same for the baseline's figure."),
    ("baseline_run_id", pa.string(), "Run of the baseline on this workload."),
    ("run_id", pa.string(), "Run of the candidate on this workload."),
    ("baseline_validity", pa.string(), "`ok`, `suspect` or `invalid`: what the checks made of the baseline's run."),
    ("validity", pa.string(), "The same of the candidate's run."),
    ("baseline_value", pa.float64(), "Baseline's mean on this basis."),
    ("value", pa.float64(), "Candidate's mean on this basis."),
    ("higher_is_better", pa.bool_(), "Direction of the metric."),
    ("change_percent", pa.float64(), "100 × (value / baseline_value − 1)."),
    (
        "change_ci95_low_percent",
        pa.float64(),
        "Lower end of the change's 95 % interval (Fieller over rounds); null below 2 rounds.",
    ),
    ("change_ci95_high_percent", pa.float64(), "Upper end of it."),
)

SEARCH = table_schema(
    ("study", pa.string(), "Study."),
    ("stage", pa.string(), "Stage, or `comparison` for baseline and winner on every workload."),
    ("stage_title", pa.string(), "Its heading."),
    ("position", pa.int32(), "Order in the stage; 0 is the incumbent."),
    ("candidate", pa.string(), "Label of the candidate."),
    ("is_incumbent", pa.bool_(), "The configuration this stage started from."),
    (
        "outcome",
        pa.string(),
        "`tried`, `suspect`, `constraint missed`, `invalid`, `failed`, `refused` before any run, or `not run`: of "
        "several runs the worst.",
    ),
    ("verdict", pa.string(), "What the stage's decision made of it; null in `comparison`, and for what was not run."),
    ("reason", pa.string(), "Why: the figures, the failure, what the checks saw, or why it was not run."),
    ("run_ids", pa.list_(pa.string()), "Its runs; their records lie in `results/runs/<run_id>/`."),
    ("pair_id", pa.string(), "Pair that was measured again beside the incumbent; null where none was."),
    ("accelerator_s", pa.float64(), "Accelerator-seconds that its runs and its pair held; null where nothing ran."),
    ("load_accelerator_s", pa.float64(), "Of these under load."),
    ("new_accelerator_s", pa.float64(), "Of `accelerator_s` what no row before has: its sum is what the search took."),
    ("new_load_accelerator_s", pa.float64(), "Of these under load."),
    (
        "shared_with",
        pa.list_(pa.string()),
        "Who else has one of its runs, which was measured once: `<stage>` of this study, or `studies/<study>/<stage>`.",
    ),
)

CHECKS = table_schema(
    ("study", pa.string(), "Study."),
    ("run_id", pa.string(), "Run; its records lie in `results/runs/<run_id>/`."),
    ("workload", pa.string(), "Name of the workload."),
    ("check", pa.string(), "Check; see docs/validity.md."),
    ("level", pa.string(), "`ok`, `suspect`, `invalid`, or `not applicable` where it had nothing to look at."),
    ("saw", pa.string(), "What it saw."),
    ("action", pa.string(), "What to do about it; null where there is nothing to do."),
)

TELEMETRY = table_schema(
    ("round", pa.int32(), "Round, from 0; its warm-up included."),
    ("time_s", pa.float64(), "On the round's clock, as in `requests.parquet`; negative before its load began."),
    ("source", pa.string(), "Who says so: `nvml`, `npu-smi`, `psutil`, `rapl`, `server`."),
    ("device", pa.string(), "Index of the accelerator; null where the figure is not of one."),
    ("metric", pa.string(), "What was read, unit in its name; see docs/telemetry.md."),
    ("value", pa.float64(), "What it was."),
)

TIMELINE = table_schema(
    ("study", pa.string(), "Study."),
    ("run_id", pa.string(), "Run; its records lie in `results/runs/<run_id>/`."),
    ("workload", pa.string(), "Name of the workload."),
    ("round", pa.int32(), "Round, from 0."),
    ("start_s", pa.float64(), "Start of the bucket on the round's clock."),
    ("seconds", pa.float64(), "Length of the bucket."),
    ("requests_in_flight", pa.float64(), "Requests in flight, mean over the bucket."),
    ("requests_sent", pa.int32(), "Requests sent in it."),
    ("requests_ended", pa.int32(), "Requests that ended in it, failed ones included."),
    ("output_tokens", pa.float64(), "Output tokens that arrived in it; an event's share is the request's mean."),
)

DISTRIBUTIONS = table_schema(
    ("study", pa.string(), "Study."),
    ("run_id", pa.string(), "Run of baseline or winner; its records lie in `results/runs/<run_id>/`."),
    ("workload", pa.string(), "Name of the workload."),
    ("metric", pa.string(), "Latency: `ttft_ms`, `tpot_ms`, `itl_ms` or `e2el_ms`."),
    ("n", pa.int64(), "Observations of all rounds."),
    ("percentile", pa.float64(), "Percentile, 0 to 100."),
    ("value_ms", pa.float64(), "Its value; linear interpolation."),
)

DEVICE_SERIES = table_schema(
    ("study", pa.string(), "Study."),
    ("run_id", pa.string(), "Run of baseline or winner; its samples lie in `results/runs/<run_id>/`."),
    ("workload", pa.string(), "Name of the workload."),
    ("round", pa.int32(), "Round, from 0."),
    ("source", pa.string(), "Source of the telemetry."),
    ("metric", pa.string(), "What was read, unit in its name; see docs/telemetry.md."),
    ("time_s", pa.float64(), "Mean time of the samples of a piece of the round, on its clock."),
    ("value", pa.float64(), "Their mean, over the run's devices."),
)

CLAIMS = table_schema(
    ("study", pa.string(), "Study."),
    ("source", pa.string(), "`publication` for what was claimed of the logs, `logs` for what they say themselves."),
    ("rule", pa.string(), "Rule that computed it again; see docs/recorded.md."),
    ("claim", pa.string(), "What is claimed, in words."),
    ("where", pa.string(), "Section of the publication, or file of the log; empty where it is neither."),
    ("line", pa.int32(), "Line in it."),
    ("candidate", pa.string(), "Candidate it is of, as `<stage>/<candidate>`."),
    ("against", pa.string(), "Candidate it is compared with."),
    ("workload", pa.string(), "Name of the workload."),
    ("metric", pa.string(), "Metric, unit in its name."),
    ("statistic", pa.string(), "Statistic of the metric."),
    ("basis", pa.string(), "What a change's figures are brought to: `deployment`, `accelerator` or `node`."),
    ("published", pa.string(), "As printed; null where nothing is said."),
    ("recomputed", pa.string(), "What the logs give, to the published digits."),
    ("published_value", pa.float64(), "The printed number; null where it is none."),
    ("recomputed_value", pa.float64(), "The computed one, with all digits."),
    (
        "verdict",
        pa.string(),
        "`confirmed` to the published digit; `rounded`: off it by no more than rounding explains; `contradicted`; or "
        "`unproven` where the logs cannot tell.",
    ),
    ("reason", pa.string(), "The arithmetic or the fact behind the verdict."),
)

TABLES = {
    "workload_requests": WORKLOAD_REQUESTS,
    "run_requests": RUN_REQUESTS,
    "metrics": METRICS,
    "rounds": ROUNDS,
    "stage_table": STAGE_TABLE,
    "search": SEARCH,
    "improvements": IMPROVEMENTS,
    "history": HISTORY,
    "answers": ANSWERS,
    "comparison": COMPARISON,
    "checks": CHECKS,
    "telemetry": TELEMETRY,
    "timeline": TIMELINE,
    "distributions": DISTRIBUTIONS,
    "device_series": DEVICE_SERIES,
    "claims": CLAIMS,
}
"""Every table by name; docs/output.md is generated from it."""
