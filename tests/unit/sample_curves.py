"""The curve of a sample study: baseline and winner of the proof, a candidate with doubtful points."""

from __future__ import annotations

import pandas as pd
import pyarrow as pa

from servelab.metrics.tables.schemas import CURVES

LEVELS = (1, 4, 16)


def curves() -> pd.DataFrame:
    """Rows of schemas.CURVES."""
    rows = []
    lines = (("engine", "SGLang", 1.1), ("confirm", "baseline", 1.0), ("confirm", "winner", 1.4))
    for stage, candidate, factor in lines:
        for level in LEVELS:
            value = factor * 100 * level**0.7
            row = {
                "study": "sample",
                "curve": "sharegpt",
                "load": "request_rate",
                "level": level,
                "workload": f"sharegpt-r{level}",
                "decides": level == 4,
                "stage": stage,
                "candidate": candidate,
                "accelerators": 2,
                "run_id": f"{candidate}-{level}",
                "run_ids": [f"{candidate}-{level}"],
                "starts": 3 if stage == "confirm" else 1,
                "outcome": "ok",
                "validity": {("SGLang", 1): "suspect", ("SGLang", 16): "invalid"}.get((candidate, level), "ok"),
                "total_tokens_per_s": value,
                "requests_per_s": value / 100,
                "ttft_ms_mean": 20 * level / factor,
                "ttft_ms_p99": 90 * level / factor,
                "tpot_ms_mean": 5 + level / factor,
                "tpot_ms_p99": 7 + level / factor,
            }
            if stage == "confirm":
                row |= {"total_tokens_per_s_ci95_low": 0.95 * value, "total_tokens_per_s_ci95_high": 1.05 * value}
            if (candidate, level) == ("baseline", 16):
                row = {name: value for name, value in row.items() if "_per_s" not in name and "_ms" not in name}
                row |= {"outcome": "saturated", "reason": "saturated", "validity": None}
            rows.append(row)
    return pa.Table.from_pylist(rows, schema=CURVES).to_pandas()
