"""Columns of the tables that compare measurements: versions of an engine, answers, two studies."""

from __future__ import annotations

import pyarrow as pa

from servelab.metrics.tables.io import table_schema

HISTORY = table_schema(
    ("study", pa.string(), "Study."),
    ("configuration_id", pa.string(), "Hash of the specification without its engine's version and environment."),
    ("candidate", pa.string(), "Labels that the configuration has in the study's stages."),
    ("workload", pa.string(), "Name of the workload."),
    ("engine", pa.string(), "Engine."),
    *(
        (f"{name}_{side}", kind, text)
        for side in ("before", "after")
        for name, kind, text in (
            ("version", pa.string(), f"The engine's {'older' if side == 'before' else 'newer'} version of two."),
            ("environment_sha256", pa.string(), "sha256 of its environment's lock, or the image's digest."),
            ("run_id", pa.string(), "First run at that version; null for one refused before it ran."),
            ("run_ids", pa.list_(pa.string()), "All runs at that version that its figures are computed from."),
            ("place", pa.string(), "Digest of that run's place (cluster.md); null if it is unknown."),
            ("measured_on", pa.string(), "Accelerator, driver, runtime and kernel of that place."),
            ("measured_at", pa.string(), "When its last run ended, ISO 8601."),
            ("outcome", pa.string(), "`ok`, `failed`, `refused`, or `invalid`, as a stage's decision takes it."),
            ("validity", pa.string(), "`ok`, `suspect` or `invalid`; null for a failed run."),
            ("value", pa.float64(), "Mean of the objective over server starts; null if there is none."),
            ("ci95_low", pa.float64(), "Lower end of its 95 % interval; null below 2 starts."),
            ("ci95_high", pa.float64(), "Upper end of it."),
        )
    ),
    ("machine_changes", pa.string(), "How the places of the two runs differ; null if they do not."),
    ("metric", pa.string(), "Metric the study improves."),
    ("basis", pa.string(), "Basis of its figures: `deployment`, `accelerator` or `node`."),
    ("higher_is_better", pa.bool_(), "Direction of the metric."),
    ("change_percent", pa.float64(), "100 × (value_after / value_before − 1); null if the two are not comparable."),
    (
        "change_ci95_low_percent",
        pa.float64(),
        "Lower end of the change's 95 % interval, by the noise between server starts; null if there is no change.",
    ),
    ("change_ci95_high_percent", pa.float64(), "Upper end of it."),
    (
        "verdict",
        pa.string(),
        "`better`, `worse` or `no difference` by the rule that decides a stage; `new failure`, `fixed failure`, "
        "`still fails`; or `not comparable`.",
    ),
    ("why", pa.string(), "The figures or the failure behind the verdict."),
)

ANSWERS = table_schema(
    ("study", pa.string(), "Study."),
    ("versions_id", pa.string(), "Set of versions; its answer is `answers/<versions_id>.json`."),
    ("versions", pa.string(), "Every engine of the study with its version."),
    ("is_current", pa.bool_(), "The study's current versions."),
    ("same_question", pa.bool_(), "Except for versions and title the study was the same as now."),
    ("winner_changed", pa.bool_(), "A different configuration from the row before; null in the first."),
    ("candidate", pa.string(), "Label of the winner."),
    ("engine", pa.string(), "Its engine."),
    ("engine_version", pa.string(), "Its engine's version."),
    ("command", pa.string(), "Its serving command, for reading."),
    ("metric", pa.string(), "Metric the study improves."),
    ("basis", pa.string(), "Basis of its figures: `deployment`, `accelerator` or `node`."),
    ("value", pa.float64(), "The winner's mean over server starts, on the workload that decides."),
    ("ci95_low", pa.float64(), "Lower end of its 95 % interval; null below 2 starts."),
    ("ci95_high", pa.float64(), "Upper end of it."),
    (
        "change_percent",
        pa.float64(),
        "Gain on the baseline under the same versions, from the proof; null if the baseline is kept.",
    ),
    ("change_ci95_low_percent", pa.float64(), "Lower end of the gain's 95 % interval; null below 2 pairs."),
    ("change_ci95_high_percent", pa.float64(), "Upper end of it."),
    ("run_id", pa.string(), "The winner's run."),
    ("place", pa.string(), "Digest of that run's place (cluster.md); null if it is unknown."),
    ("measured_on", pa.string(), "Accelerator, driver, runtime and kernel of that place."),
    ("measured_at", pa.string(), "When the later of the winner's and the baseline's run ended, ISO 8601."),
)

COMPARISON = table_schema(
    ("study_a", pa.string(), "The first study, as it was named."),
    ("study_b", pa.string(), "The second."),
    (
        "kind",
        pa.string(),
        "`configuration`: a run of each with the same configuration; `answer`: their winners on a workload.",
    ),
    ("workload", pa.string(), "Name of the workload, as in the first study if the names differ."),
    *(
        (f"{name}_{side}", kind, text)
        for side in ("a", "b")
        for name, kind, text in (
            ("candidate", pa.string(), f"Labels that study {side} has for it; null if it has no such run."),
            ("engine", pa.string(), "Its engine."),
            ("engine_version", pa.string(), "Its engine's version."),
            ("accelerators", pa.int32(), "Accelerators it used."),
            ("run_id", pa.string(), "First run; a study shares its runs with others."),
            ("measured_at", pa.string(), "When its last run ended, ISO 8601; null if unknown."),
            ("outcome", pa.string(), "`ok`, or `failed`."),
            ("validity", pa.string(), "`ok`, `suspect` or `invalid`; null for a failed run."),
            ("value", pa.float64(), "Mean of the metric over server starts or logs; null if there is none."),
            ("ci95_low", pa.float64(), "Lower end of its 95 % interval; null below 2 starts."),
            ("ci95_high", pa.float64(), "Upper end of it."),
        )
    ),
    (
        "metric",
        pa.string(),
        "Metric, unit in its name. Rows that cannot be compared list only the first study's objective.",
    ),
    ("basis", pa.string(), "Basis of its figures: `deployment`, `accelerator` or `node`."),
    ("is_objective", pa.bool_(), "It is the objective of the first study: one such row per pair."),
    ("higher_is_better", pa.bool_(), "Direction of the metric."),
    ("change_percent", pa.float64(), "100 × (value_b / value_a − 1); null if the two are not comparable."),
    (
        "change_ci95_low_percent",
        pa.float64(),
        "Lower end of the change's 95 % interval: of the objective by the noise between server starts, else Fieller's.",
    ),
    ("change_ci95_high_percent", pa.float64(), "Upper end of it."),
    (
        "verdict",
        pa.string(),
        "For the pair, by its objective: `better`, `worse` or `no difference` by the rule that decides a stage; `new "
        "failure`, `fixed failure`, `still fails`; `same run`; `not comparable`; `only in a`, `only in b`.",
    ),
    ("why", pa.string(), "The figures, the failure, or the fields that keep the two from being compared."),
    ("differs", pa.string(), "Every field in which the two runs differ, as `<field> <a> → <b>`, machine and date too."),
    ("not_known", pa.string(), "What is unknown about a recorded run; null if both were measured."),
)


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

CLAIMS = table_schema(
    ("study", pa.string(), "Study."),
    (
        "source",
        pa.string(),
        "`publication` for published claims about the logs, `logs` for claims in the logs themselves.",
    ),
    ("rule", pa.string(), "Rule that recomputed it; see docs/recorded.md."),
    ("claim", pa.string(), "The claim in words."),
    ("where", pa.string(), "Section of the publication, or file of the log; empty if it is neither."),
    ("line", pa.int32(), "Line in it."),
    ("candidate", pa.string(), "Its candidate, as `<stage>/<candidate>`."),
    ("against", pa.string(), "Candidate it is compared with."),
    ("workload", pa.string(), "Name of the workload."),
    ("metric", pa.string(), "Metric, unit in its name."),
    ("statistic", pa.string(), "Statistic of the metric."),
    ("basis", pa.string(), "Basis of a change's figures: `deployment`, `accelerator` or `node`."),
    ("published", pa.string(), "As printed; null if nothing is."),
    ("recomputed", pa.string(), "What the logs give, to the published digits."),
    ("published_value", pa.float64(), "The printed number; null if it is not a number."),
    ("recomputed_value", pa.float64(), "The computed one, with all digits."),
    (
        "verdict",
        pa.string(),
        "`confirmed` to the published digit; `rounded`: off it by no more than rounding explains; `arithmetic right, "
        "figures unsound`: so by printed rates that are not tokens / duration; `contradicted`; or "
        "`unproven` if the logs are not sufficient.",
    ),
    (
        "points",
        pa.float64(),
        "Size of the error in points of percent: a percentage's difference, a figure's relative one.",
    ),
    ("cause", pa.string(), "Likely cause of what is wrong; null if nothing is, or none was found."),
    ("reason", pa.string(), "The arithmetic or the fact behind the verdict."),
)
