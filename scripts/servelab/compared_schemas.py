"""Columns of the tables that hold one measurement against another: versions of an engine, answers, two studies."""

from __future__ import annotations

import pyarrow as pa

from servelab.columns import table_schema

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
            ("run_id", pa.string(), "Run at that version; null for one refused before it ran."),
            ("measured_at", pa.string(), "When that run ended, ISO 8601."),
            ("outcome", pa.string(), "`ok`, `failed`, `refused`, or `invalid`, as a stage's decision takes it."),
            ("validity", pa.string(), "`ok`, `suspect` or `invalid`; null for a failed run."),
            ("value", pa.float64(), "Mean of the objective over rounds; null where there is none."),
            ("ci95_low", pa.float64(), "Lower end of its 95 % interval; null below 2 rounds."),
            ("ci95_high", pa.float64(), "Upper end of it."),
        )
    ),
    ("machine_changes", pa.string(), "How machine or driver differ between the two runs; null where they do not."),
    ("metric", pa.string(), "Metric the study improves."),
    ("basis", pa.string(), "Basis of its figures: `deployment`, `accelerator` or `node`."),
    ("higher_is_better", pa.bool_(), "Direction of the metric."),
    ("change_percent", pa.float64(), "100 × (value_after / value_before − 1); null where the two are not comparable."),
    (
        "change_ci95_low_percent",
        pa.float64(),
        "Lower end of the change's 95 % interval (Fieller over rounds); null below 2 rounds.",
    ),
    ("change_ci95_high_percent", pa.float64(), "Upper end of it."),
    (
        "verdict",
        pa.string(),
        "`better`, `worse` or `no difference` by the rule that decides a stage; `new failure`, `fixed failure`, `still "
        "fails`; or `not comparable`.",
    ),
    ("why", pa.string(), "The figures or the failure behind the verdict."),
)

ANSWERS = table_schema(
    ("study", pa.string(), "Study."),
    ("versions_id", pa.string(), "Set of versions; its answer is `answers/<versions_id>.json`."),
    ("versions", pa.string(), "Every engine of the study with its version."),
    ("is_current", pa.bool_(), "The versions that the study has now."),
    ("same_question", pa.bool_(), "But for versions and title the study was what it is now."),
    ("winner_changed", pa.bool_(), "Another configuration than in the row before; null in the first."),
    ("candidate", pa.string(), "Label of the winner."),
    ("engine", pa.string(), "Its engine."),
    ("engine_version", pa.string(), "Its engine's version."),
    ("command", pa.string(), "Its serving command, for reading."),
    ("metric", pa.string(), "Metric the study improves."),
    ("basis", pa.string(), "Basis of its figures: `deployment`, `accelerator` or `node`."),
    ("value", pa.float64(), "The winner's mean over rounds, on the workload that decides."),
    ("ci95_low", pa.float64(), "Lower end of its 95 % interval; null below 2 rounds."),
    ("ci95_high", pa.float64(), "Upper end of it."),
    ("change_percent", pa.float64(), "Gain on the baseline under the same versions; null where the baseline won."),
    ("change_ci95_low_percent", pa.float64(), "Lower end of the gain's 95 % interval; null below 2 rounds."),
    ("change_ci95_high_percent", pa.float64(), "Upper end of it."),
    ("run_id", pa.string(), "The winner's run."),
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
    ("workload", pa.string(), "Name of the workload, the first study's where they call it otherwise."),
    *(
        (f"{name}_{side}", kind, text)
        for side in ("a", "b")
        for name, kind, text in (
            ("candidate", pa.string(), f"Labels that study {side} has for it; null where it has no such run."),
            ("engine", pa.string(), "Its engine."),
            ("engine_version", pa.string(), "Its engine's version."),
            ("accelerators", pa.int32(), "Accelerators it used."),
            ("run_id", pa.string(), "Run; a study shares its runs with others."),
            ("measured_at", pa.string(), "When that run ended, ISO 8601; null where nobody knows."),
            ("outcome", pa.string(), "`ok`, or `failed`."),
            ("validity", pa.string(), "`ok`, `suspect` or `invalid`; null for a failed run."),
            ("value", pa.float64(), "Mean of the metric over rounds; null where there is none."),
            ("ci95_low", pa.float64(), "Lower end of its 95 % interval; null below 2 rounds."),
            ("ci95_high", pa.float64(), "Upper end of it."),
        )
    ),
    ("metric", pa.string(), "Metric, unit in its name; of what is not comparable the first study's objective only."),
    ("basis", pa.string(), "Basis of its figures: `deployment`, `accelerator` or `node`."),
    ("is_objective", pa.bool_(), "It is the objective of the first study: one such row a pair."),
    ("higher_is_better", pa.bool_(), "Direction of the metric."),
    ("change_percent", pa.float64(), "100 × (value_b / value_a − 1); null where the two are not comparable."),
    (
        "change_ci95_low_percent",
        pa.float64(),
        "Lower end of the change's 95 % interval (Fieller over rounds); null below 2 rounds.",
    ),
    ("change_ci95_high_percent", pa.float64(), "Upper end of it."),
    (
        "verdict",
        pa.string(),
        "Of the pair, by its objective: `better`, `worse` or `no difference` by the rule that decides a stage; `new "
        "failure`, `fixed failure`, `still fails`; `same run`; `not comparable`; `only in a`, `only in b`.",
    ),
    ("why", pa.string(), "The figures, the failure, or the fields that keep the two from being compared."),
    ("differs", pa.string(), "Every field in which the two runs differ, as `<field> <a> → <b>`, machine and date too."),
    ("not_known", pa.string(), "What nobody can say of a recorded run; null where both were measured."),
)
