"""Versions of an engine of the sample study: a gain, a suspect figure, a new failure, a mended one; two answers."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pyarrow as pa
import sample_study

from servelab.metrics.tables import schemas

BROKEN = "unsupported_argument: error: unrecognized arguments: --old | flag"


def row(candidate: str, before: float | None, after: float | None, verdict: str, **changes: Any) -> dict[str, Any]:
    change = 100 * (after / before - 1) if before and after else None
    found = {
        "study": sample_study.STUDY,
        "configuration_id": sample_study.run_id(candidate),
        "candidate": candidate,
        "workload": "sharegpt",
        "engine": "sglang",
        "metric": sample_study.OBJECTIVE,
        "basis": "accelerator",
        "higher_is_better": True,
        "change_percent": change,
        "change_ci95_low_percent": change and change - 1,
        "change_ci95_high_percent": change and change + 1,
        "verdict": verdict,
        "why": f"{change:+.1f} %" if change else BROKEN,
    }
    for side, version, value in (("before", "0.5.5", before), ("after", "0.5.6", after)):
        found |= {
            f"version_{side}": version,
            f"environment_sha256_{side}": sample_study.run_id(version) * 3,
            f"run_id_{side}": sample_study.run_id(f"{candidate} {version}"),
            f"measured_at_{side}": f"2026-{10 + (side == 'after')}-01T12:00:00+00:00",
            f"outcome_{side}": "ok" if value else "failed",
            f"validity_{side}": "ok" if value else None,
            f"value_{side}": value,
            f"ci95_low_{side}": value and value * 0.99,
            f"ci95_high_{side}": value and value * 1.01,
        }
    return dict.fromkeys(schemas.HISTORY.names) | found | changes


def history() -> pd.DataFrame:
    rows = [
        row("sglang", 284.0, 299.0, "better", machine_changes="kernel 5.10.0 → 6.1.0"),
        row("tensor_parallel_size=4", 566.0, 568.0, "no difference", validity_after="suspect"),
        row("--old-flag=1", 310.0, None, "new failure"),
        row("--new-flag=1", None, 305.0, "fixed failure"),
    ]
    return pa.Table.from_pylist(rows, schema=schemas.HISTORY).to_pandas()


def answers() -> pd.DataFrame:
    shared = {
        "study": sample_study.STUDY,
        "engine": "sglang",
        "metric": sample_study.OBJECTIVE,
        "basis": "accelerator",
        "same_question": True,
    }
    rows = [
        dict.fromkeys(schemas.ANSWERS.names)
        | shared
        | {
            "versions_id": sample_study.run_id(version),
            "versions": f"vllm 0.32.0, sglang {version}",
            "is_current": version == "0.5.6",
            "winner_changed": changed,
            "candidate": candidate,
            "engine_version": version,
            "command": f"sglang serve --option {candidate}",
            "value": value,
            "ci95_low": value - 5,
            "ci95_high": value + 5,
            "change_percent": gain,
            "change_ci95_low_percent": gain - 2,
            "change_ci95_high_percent": gain + 2,
            "run_id": sample_study.run_id(version),
            "measured_at": "2026-11-01T12:00:00+00:00",
        }
        for version, candidate, value, gain, changed in (
            ("0.5.5", "--old-flag=1", 310.0, 21.1, None),
            ("0.5.6", "tensor_parallel_size=4", 568.0, 121.6, True),
        )
    ]
    return pa.Table.from_pylist(rows, schema=schemas.ANSWERS).to_pandas()
