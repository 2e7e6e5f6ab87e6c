"""The columns of every table this workflow writes: name with unit, type and meaning.

All times in `RUN_REQUESTS` are seconds on one monotonic clock whose zero is the start of the round.
"""

from __future__ import annotations

import pyarrow as pa

from servelab.metrics.tables.comparison_schemas import ANSWERS, COMPARISON, CURVES, HISTORY
from servelab.metrics.tables.comparison_schemas import CLAIMS as CLAIMS
from servelab.metrics.tables.io import ANSWER_COLUMNS, table_schema
from servelab.metrics.tables.io import ASKED as ASKED
from servelab.metrics.tables.io import RUN_ANSWERS as RUN_ANSWERS
from servelab.metrics.tables.io import STAGE_ANSWERS as STAGE_ANSWERS

WORKLOAD_REQUESTS = table_schema(
    ("request_index", pa.int32(), "Position in its phase, from 0."),
    ("phase", pa.string(), "`warmup` or `measured`; the two share no prompt."),
    ("prompt", pa.string(), "Text of the prompt; null where token ids are sent."),
    ("prompt_token_ids", pa.list_(pa.int32()), "Token ids of the prompt; null where text is sent."),
    ("input_tokens", pa.int32(), "The prompt's length in the model's own tokens, without chat template."),
    ("output_tokens", pa.int32(), "The output length to force, in tokens."),
    ("arrival_s", pa.float64(), "Arrival time in the recorded traffic, from 0; null without recorded traffic."),
)

TURNS = table_schema(
    ("earlier", pa.string(), "JSON list of the messages that go before the prompt; null where none do."),
    (
        "turn",
        pa.int32(),
        "Turn of its conversation, from 0; a later one follows the row before and is sent when that is answered, with "
        "its messages and answer. Null for a request of its own.",
    ),
    ("think_s", pa.float64(), "Seconds from the answer before to this turn; null where `turn` is null or 0."),
)
"""Further columns of a workload whose requests have several messages."""

RUN_REQUESTS = table_schema(
    ("round", pa.int32(), "Round, from 0."),
    ("request_index", pa.int32(), "The request of the workload, from 0."),
    ("phase", pa.string(), "`measured`, or `settle` for requests that load the server before counting starts."),
    ("turn", pa.int32(), "Turn of its conversation, from 0; null for a request of its own."),
    ("scheduled_s", pa.float64(), "When it was due: by the arrival process, or a later turn after the answer before."),
    ("started_s", pa.float64(), "When the client began to connect; null if it never did."),
    ("sent_s", pa.float64(), "When it was sent; null if it never was."),
    ("first_token_s", pa.float64(), "First event with content; null if none came."),
    ("last_token_s", pa.float64(), "Last event with content; null if none came."),
    ("end_s", pa.float64(), "When the response ended or failed."),
    ("input_tokens_asked", pa.int32(), "The prompt's length in the workload."),
    ("input_tokens", pa.int32(), "`usage.prompt_tokens` of the server; null if it sent none."),
    (
        "cached_tokens",
        pa.int32(),
        "Prompt tokens from a prefix cache, as the server reports; null if it does not.",
    ),
    ("output_tokens_asked", pa.int32(), "The requested output length."),
    ("output_tokens", pa.int32(), "`usage.completion_tokens` of the server; null if it sent none."),
    ("chunks", pa.int32(), "Events with content."),
    ("chunk_gaps_ms", pa.list_(pa.float32()), "Gaps between successive events with content."),
    (
        "unread_ms",
        pa.float32(),
        "Longest time that a part of the answer waited in the kernel before the client read it.",
    ),
    ("finish_reason", pa.string(), "As the server gave it."),
    ("http_status", pa.int32(), "Null if there was no answer."),
    ("error", pa.string(), "Why the request failed; null for a success."),
)

METRICS = table_schema(
    ("study", pa.string(), "Study."),
    ("run_id", pa.string(), "Run; its records are in `results/runs/<run_id>/`."),
    ("workload", pa.string(), "Name of the workload."),
    ("start", pa.string(), "Server start, such as `search-0`; null for a recorded run."),
    ("metric", pa.string(), "Metric family, unit in its name; see docs/reference/metrics.md."),
    ("definition", pa.string(), "How the client's definition differs from metrics.md; null if it does not."),
    ("n", pa.int64(), "Observations: rounds for a rate, requests (or gaps) for a latency."),
    ("mean", pa.float64(), "Mean of the rounds' values in `rounds.parquet`: each round counts alike."),
    ("std", pa.float64(), "Population standard deviation of the observations."),
    ("minimum", pa.float64(), "Smallest observation."),
    ("median", pa.float64(), "50th percentile, linear interpolation."),
    ("p90", pa.float64(), "90th percentile."),
    ("p95", pa.float64(), "95th percentile."),
    ("p99", pa.float64(), "99th percentile."),
    ("maximum", pa.float64(), "Largest observation."),
    ("rounds", pa.int32(), "Rounds that have observations."),
    (
        "ci95_low",
        pa.float64(),
        "Lower end of the mean's 95 % interval over the logs of a recorded run (Student t); null for a run measured "
        "here, which is one server start and has no interval, and for a single log.",
    ),
    ("ci95_high", pa.float64(), "Upper end of it."),
)

ROUNDS = table_schema(
    ("study", pa.string(), "Study."),
    ("run_id", pa.string(), "Run; its records are in `results/runs/<run_id>/`."),
    ("workload", pa.string(), "Name of the workload."),
    ("start", pa.string(), "Server start, such as `search-0`; null for a recorded run."),
    ("metric", pa.string(), "Metric family, unit in its name; see docs/reference/metrics.md."),
    ("round", pa.int32(), "Round, from 0."),
    ("value", pa.float64(), "The round's rate, or the mean of the round's observations."),
)

STAGE_TABLE = table_schema(
    ("study", pa.string(), "Study."),
    ("stage", pa.string(), "Stage."),
    ("position", pa.int32(), "Order in the stage; 0 is the incumbent."),
    ("candidate", pa.string(), "Label of the candidate; in the last stage, `baseline` or `winner`."),
    ("workload", pa.string(), "Name of the workload."),
    ("is_incumbent", pa.bool_(), "The configuration this stage started from."),
    ("run_id", pa.string(), "Its first run; the records are in `results/runs/<run_id>/`."),
    ("run_ids", pa.list_(pa.string()), "Its runs on this workload, one for each server start."),
    ("starts", pa.int32(), "Server starts that gave a value of the objective; of a recorded candidate, logs."),
    ("start_labels", pa.list_(pa.string()), "Their labels, such as `search-0`; of logs, `log-0` and so on."),
    ("start_values", pa.list_(pa.float64()), "The objective on each of them: the mean of its rounds, on its basis."),
    ("start_disturbed", pa.list_(pa.bool_()), "Whether other processes disturbed it, also when it was measured again."),
    ("start_jobs", pa.list_(pa.string()), "The job that measured each; the two starts of a pair have the same."),
    (
        "run_places",
        pa.list_(pa.string()),
        "Digest of the place of each of `run_ids` (cluster.md); null if it is not recorded, empty for logs.",
    ),
    ("places", pa.string(), "These digests with the facts of each place, as JSON; null without any."),
    ("engine", pa.string(), "Engine."),
    ("engine_version", pa.string(), "Engine's version."),
    ("model_variant", pa.string(), "Model variant."),
    ("changes", pa.string(), "What the candidate changes on the incumbent, as JSON."),
    ("command", pa.string(), "Serving command, for reading."),
    ("accelerators", pa.int32(), "Accelerators the run used."),
    ("accelerators_per_node", pa.int32(), "Accelerators of a node."),
    ("outcome", pa.string(), "`ok`, `failed` if any start failed, `saturated`, or `not run` if the search skipped it."),
    ("reason", pa.string(), "Why it failed: see docs/reference/files.md; `budget` for `not run`; null for `ok`."),
    (
        "message",
        pa.string(),
        "The log line that explains a failure, with how many of how many starts failed, or why it was skipped.",
    ),
    (
        "validity",
        pa.string(),
        "`ok`, `suspect` or `invalid`, by the worst check of any start; null if none gave figures.",
    ),
    ("validity_note", pa.string(), "What the failed checks found, and on which start; null if none failed."),
    (
        "disturbed",
        pa.string(),
        "What disturbed all of its starts, by the checks that mean so (checks.md); null if one was undisturbed: the "
        "others then do not count.",
    ),
    ("rounds", pa.int32(), "Rounds measured, on all starts."),
    ("success_rate", pa.float64(), "Successful requests / requests, all starts."),
    ("total_tokens_per_s", pa.float64(), "Mean over server starts, as the figures below."),
    (
        "total_tokens_per_s_ci95_low",
        pa.float64(),
        "Lower end of its 95 % interval over server starts (Student t); null below 2 starts.",
    ),
    ("total_tokens_per_s_ci95_high", pa.float64(), "Upper end of it."),
    ("output_tokens_per_s", pa.float64(), "Mean over rounds, then over starts."),
    ("requests_per_s", pa.float64(), "Mean over rounds, then over starts."),
    ("ttft_ms_mean", pa.float64(), "Time to first token: mean over a round's successful requests, then over rounds."),
    ("ttft_ms_p99", pa.float64(), "Its 99th percentile over the requests of all rounds."),
    ("tpot_ms_mean", pa.float64(), "Time per output token after the first, likewise."),
    ("tpot_ms_p99", pa.float64(), "Its 99th percentile over the requests of all rounds."),
    (
        "itl_ms_mean",
        pa.float64(),
        "Gap between successive events with content: mean over a round's gaps, then over rounds.",
    ),
    ("e2el_ms_mean", pa.float64(), "End-to-end latency: mean over a round's successful requests, then over rounds."),
    ("slo_attainment", pa.float64(), "Share of the requests that meet every SLO of the study; null without SLOs."),
    (
        "natural_length_tokens",
        pa.float64(),
        "Output tokens of a request, where answers end by themselves; mean over rounds, then starts; else null.",
    ),
    (
        "constraints_missed",
        pa.string(),
        "Constraints of the objective that it misses over all starts, and by how much, or that cannot be shown with so "
        "few requests; null if it meets them, and for workloads that do not decide.",
    ),
    (
        "capacity_note",
        pa.string(),
        "Of a search for capacity: on each start, which load did not hold and what was missed; else null.",
    ),
    (
        "capacity_load",
        pa.float64(),
        "Of a search for capacity: the lowest capacity of its starts, in requests/s asked for or in flight; else null.",
    ),
    *ANSWER_COLUMNS,
    (
        "startup_s",
        pa.float64(),
        "Seconds from the server's command until its first healthy answer (metrics.md): mean over its server starts.",
    ),
    ("startup_s_ci95_low", pa.float64(), "Lower end of its 95 % interval over them (Student t); null below 2 starts."),
    ("startup_s_ci95_high", pa.float64(), "Upper end of it."),
    ("startup_cold_s", pa.float64(), "The same over cold starts: at most 5 % of the weights were in the page cache."),
    ("startup_cold_s_ci95_low", pa.float64(), "Lower end of its interval."),
    ("startup_cold_s_ci95_high", pa.float64(), "Upper end of it."),
    ("startup_warm_s", pa.float64(), "The same over warm starts: at least 95 % of the weights were there."),
    ("startup_warm_s_ci95_low", pa.float64(), "Lower end of its interval."),
    ("startup_warm_s_ci95_high", pa.float64(), "Upper end of it."),
    ("objective", pa.string(), "Metric the study improves."),
    ("objective_per", pa.string(), "Basis of the objective's figures: `deployment`, `accelerator` or `node`."),
    ("objective_value", pa.float64(), "Its mean over server starts."),
    (
        "objective_ci95_low",
        pa.float64(),
        "Lower end of its 95 % interval over server starts (Student t); null below 2 starts.",
    ),
    ("objective_ci95_high", pa.float64(), "Upper end of it."),
    (
        "limit_total_tokens_per_s",
        pa.float64(),
        "Total tokens/s that its devices cannot exceed with this model and these requests, as run (metrics.md); mean "
        "over rounds, then over starts; null if model or device are not known.",
    ),
    ("limit_output_tokens_per_s", pa.float64(), "The same for output tokens/s."),
    ("share_of_limit", pa.float64(), "The least time that these requests need / the time they took."),
    ("limit_note", pa.string(), "What the limit is made from, or why there is none."),
    (
        "accelerator_s",
        pa.float64(),
        "Accelerator-seconds reserved for its runs; where a curve decides, with those of its other points.",
    ),
    ("load_accelerator_s", pa.float64(), "The part under load: in each round, from its start to its last answer."),
)

IMPROVEMENTS = table_schema(
    ("study", pa.string(), "Study."),
    ("stage", pa.string(), "Stage; the last one is `confirm`, or `comparison` of a recorded study."),
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
        "The node figure is a multiple of a run that used part of a node; nothing that large was run.",
    ),
    ("factor", pa.float64(), "Factor from the candidate's figure to the basis."),
    ("baseline_factor", pa.float64(), "The same for the baseline's figure."),
    ("baseline_run_id", pa.string(), "First run of the baseline on this workload."),
    ("run_id", pa.string(), "First run of the candidate on this workload."),
    ("baseline_validity", pa.string(), "`ok`, `suspect` or `invalid`: result of the checks of the baseline's runs."),
    ("validity", pa.string(), "The same for the candidate's runs."),
    ("baseline_value", pa.float64(), "Baseline's mean over starts on this basis; for a proof, over its pairs."),
    ("value", pa.float64(), "Candidate's mean over starts on this basis; for a proof, over its pairs."),
    ("higher_is_better", pa.bool_(), "Direction of the metric."),
    ("evidence", pa.string(), "`proof`: from pairs of fresh server starts; `search`: what chose; `logs`: recorded."),
    ("starts", pa.int32(), "Server starts of the candidate; for a proof, the pairs that count."),
    (
        "unequal_places",
        pa.string(),
        "How the places of the runs of both sides differ, such as in their driver; null if they do not.",
    ),
    ("change_percent", pa.float64(), "Change on the baseline in percent; for a proof, from the ratios of its pairs."),
    (
        "change_ci95_low_percent",
        pa.float64(),
        "Lower end of the change's 95 % interval: of a proof over pairs of server starts, of logs Fieller's; null for "
        "`search`, and below 2 pairs or logs.",
    ),
    ("change_ci95_high_percent", pa.float64(), "Upper end of it."),
)

SEARCH = table_schema(
    ("study", pa.string(), "Study."),
    ("stage", pa.string(), "Stage; the last one, of baseline and winner, is `confirm`, or `comparison` if recorded."),
    ("stage_title", pa.string(), "Its heading."),
    ("position", pa.int32(), "Order in the stage; 0 is the incumbent."),
    ("candidate", pa.string(), "Label of the candidate."),
    ("is_incumbent", pa.bool_(), "The configuration this stage started from."),
    (
        "outcome",
        pa.string(),
        "`tried`, `suspect`, `below the incumbent`, `constraint missed`, `changes answers`, `invalid`, `failed`, "
        "`refused` before any run, or `not run`; the worst if it has several runs.",
    ),
    ("verdict", pa.string(), "Verdict of the stage's decision; null in the last stage, and if it was not run."),
    ("reason", pa.string(), "Why: the figures, the failure, what the checks found, or why it was not run."),
    ("run_ids", pa.list_(pa.string()), "Its runs; their records are in `results/runs/<run_id>/`."),
    ("accelerator_s", pa.float64(), "Accelerator-seconds reserved for its runs; null if nothing ran."),
    ("load_accelerator_s", pa.float64(), "The part under load."),
    (
        "new_accelerator_s",
        pa.float64(),
        "The part of `accelerator_s` that no earlier row has; the sum is the cost of the search.",
    ),
    ("new_load_accelerator_s", pa.float64(), "The part under load."),
    (
        "shared_with",
        pa.list_(pa.string()),
        "Other stages of this study that share one of its runs, which was measured once.",
    ),
)

CHECKS = table_schema(
    ("study", pa.string(), "Study."),
    ("run_id", pa.string(), "Run; its records are in `results/runs/<run_id>/`."),
    ("workload", pa.string(), "Name of the workload."),
    ("start", pa.string(), "Server start, such as `search-0`; null for a recorded run."),
    ("check", pa.string(), "Check; see docs/reference/checks.md."),
    ("level", pa.string(), "`ok`, `suspect`, `invalid`, or `not applicable` if it had nothing to check."),
    ("saw", pa.string(), "What it found."),
    ("action", pa.string(), "What to do about it; null if there is nothing to do."),
)

TELEMETRY = table_schema(
    ("round", pa.int32(), "Round, from 0; its warm-up included."),
    ("time_s", pa.float64(), "On the round's clock, as in `requests.parquet`; negative before its load began."),
    ("source", pa.string(), "Source: `nvml`, `npu-smi`, `psutil`, `rapl`, `server`."),
    ("device", pa.string(), "Index of the accelerator; null if the value does not belong to one."),
    ("metric", pa.string(), "What was read, unit in its name; see docs/reference/files.md."),
    ("value", pa.float64(), "Its value."),
)

TIMELINE = table_schema(
    ("study", pa.string(), "Study."),
    ("run_id", pa.string(), "Run; its records are in `results/runs/<run_id>/`."),
    ("workload", pa.string(), "Name of the workload."),
    ("start", pa.string(), "Server start, such as `search-0`; null for a recorded run."),
    ("round", pa.int32(), "Round, from 0."),
    ("start_s", pa.float64(), "Start of the bucket on the round's clock."),
    ("seconds", pa.float64(), "Length of the bucket."),
    ("requests_in_flight", pa.float64(), "Requests in flight, mean over the bucket."),
    ("requests_sent", pa.int32(), "Requests sent in it."),
    ("requests_ended", pa.int32(), "Requests that ended in it, including failed ones."),
    ("output_tokens", pa.float64(), "Output tokens that arrived in it; an event counts for the request's mean."),
)

DEVICE_SERIES = table_schema(
    ("study", pa.string(), "Study."),
    ("run_id", pa.string(), "Run of baseline or winner; its samples are in `results/runs/<run_id>/`."),
    ("workload", pa.string(), "Name of the workload."),
    ("round", pa.int32(), "Round, from 0."),
    ("source", pa.string(), "Source of the telemetry."),
    ("metric", pa.string(), "What was read, unit in its name; see docs/reference/files.md."),
    ("time_s", pa.float64(), "Mean time of the samples in a piece of the round, on its clock."),
    ("value", pa.float64(), "Their mean, over the run's devices."),
)

TABLES = {
    "workload_requests": WORKLOAD_REQUESTS,
    "run_requests": RUN_REQUESTS,
    "run_answers": RUN_ANSWERS,
    "stage_answers": STAGE_ANSWERS,
    "metrics": METRICS,
    "rounds": ROUNDS,
    "stage_table": STAGE_TABLE,
    "search": SEARCH,
    "improvements": IMPROVEMENTS,
    "curves": CURVES,
    "history": HISTORY,
    "answers": ANSWERS,
    "comparison": COMPARISON,
    "checks": CHECKS,
    "telemetry": TELEMETRY,
    "timeline": TIMELINE,
    "device_series": DEVICE_SERIES,
    "claims": CLAIMS,
}
"""Every table by name; docs/reference/files.md is generated from it."""
