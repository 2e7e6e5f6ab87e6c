"""A study made for the tests, and tables as measured runs would have given them."""

import math
from pathlib import Path

import pandas as pd

from servelab.core.yaml_file import read_yaml
from servelab.metrics.statistics import mean_ci95
from servelab.study.study import COMPARISON, CONFIRM

ROOT = Path(__file__).parents[2]
ROUND_COLUMNS = ("run_id", "start", "workload", "metric", "round", "value")


def demo_study():
    """The demo study without questions, with stages and a proof of its own: no test hangs on what the demo tries."""
    stages = [
        {"name": "sequences", "candidates": [{"options": {"max_num_seqs": count}} for count in (8, 16, 32)]},
        {"name": "attention", "candidates": [{"arguments": {"--flash-attn": "off"}}]},
    ]
    workloads = ["cpu-sharegpt", "cpu-short", "cpu-long", "cpu-generation"]
    demo = read_yaml(ROOT / "config/studies/cpu-smollm2.yaml")
    protocol = demo["protocol"] | {"rounds": 3}
    del demo["answers"], demo["proof"]
    own = {"baseline": {"engine": "llama.cpp"}, "search": {"strategy": "staged"}, "stages": stages}
    return demo | own | {"workloads": workloads, "protocol": protocol}


def stage_rows(
    candidates,
    stage="stage",
    accelerators=None,
    per_node=1,
    workload="cpu-sharegpt",
    validity=None,
    per="accelerator",
    **faults,
):
    """A stage table and its rounds from {label: [total tokens/s of each start] or 'failed'}; a start has one round.

    `validity` gives what the checks made of a label's runs, where it is not `ok`; `faults` are other columns by label:
    `success_rate`, `disturbed`, `constraints_missed`. In a proof the starts of all candidates are pairs, each measured
    in one job; in the comparison of a recorded study they are logs.
    """
    table, rounds = [], []
    for position, (label, values) in enumerate(candidates.items()):
        ok = not isinstance(values, str)
        count = (accelerators or {}).get(label, 1)
        found = (validity or {}).get(label, "ok")
        name = f"{stage}-{label}-{workload}"
        is_recorded, kind = stage == COMPARISON, "proof" if stage == CONFIRM else "search"
        numbers = range(len(values)) if ok else range(1)
        run_ids = [name] if is_recorded else [name if number == 0 else f"{name}-{number}" for number in numbers]
        scaled = [value / (count if per == "accelerator" else 1) for value in values] if ok else []
        mean, low, high = mean_ci95(scaled) if ok else (None, None, None)
        table.append(
            {
                "study": "cpu-smollm2",
                "stage": stage,
                "position": position,
                "candidate": label,
                "workload": workload,
                "is_incumbent": position == 0,
                "run_id": None if values == "refused" else name,
                "run_ids": [] if values == "refused" else run_ids,
                "starts": len(scaled),
                "start_labels": [f"{'log' if is_recorded else kind}-{number}" for number in range(len(scaled))],
                "start_values": scaled,
                "start_delays_percent": [math.nan if label in faults.get("disturbed", {}) else 0.0] * len(scaled),
                "start_jobs": [None if is_recorded else f"job-{number}" for number in range(len(scaled))],
                "engine": "llama.cpp",
                "engine_version": "1",
                "command": f"serve {label}",
                "outcome": "ok" if ok else "failed",
                "reason": None if ok else values,
                "message": None if ok else "the telling line",
                "validity": found if ok else None,
                "validity_note": f"what makes {label} {found}" if ok and found != "ok" else None,
                "rounds": len(scaled),
                "success_rate": faults.get("success_rate", {}).get(label, 1.0) if ok else 0.0,
                "disturbed": faults.get("disturbed", {}).get(label),
                "constraints_missed": faults.get("constraints_missed", {}).get(label),
                "accelerators": count,
                "accelerators_per_node": per_node,
                "objective_value": mean,
                "objective_ci95_low": low,
                "objective_ci95_high": high,
            }
        )
        for number, value in enumerate(values if ok else []):
            place = (
                {"run_id": name, "start": None, "round": number}
                if is_recorded
                else {"run_id": run_ids[number], "start": f"{kind}-{number}", "round": 0}
            )
            rounds.append({**place, "workload": workload, "metric": "total_tokens_per_s", "value": value})
    return pd.DataFrame(table), pd.DataFrame(rounds, columns=list(ROUND_COLUMNS))
