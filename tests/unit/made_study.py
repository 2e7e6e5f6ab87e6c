"""A study made for the tests, and tables as measured runs would have given them."""

from pathlib import Path

import pandas as pd

from servelab.config_file import read_yaml

ROOT = Path(__file__).parents[2]


def demo_study():
    """The demo study as plain data, with stages of its own so that tests do not hang on what the demo tries."""
    stages = [
        {"name": "sequences", "candidates": [{"options": {"max_num_seqs": count}} for count in (8, 16, 32)]},
        {"name": "attention", "candidates": [{"arguments": {"--flash-attn": "off"}}]},
    ]
    return read_yaml(ROOT / "config/studies/cpu-smollm2.yaml") | {"stages": stages}


def stage_rows(candidates, stage="stage", accelerators=None, per_node=1, workload="cpu-sharegpt", validity=None):
    """A stage table and its rounds from {label: [total tokens/s of each round] or 'failed'}.

    `validity` gives what the checks made of a label's run, where it is not `ok`.
    """
    table, rounds = [], []
    for position, (label, values) in enumerate(candidates.items()):
        ok = not isinstance(values, str)
        run = f"{stage}-{label}-{workload}"
        count = (accelerators or {}).get(label, 1)
        found = (validity or {}).get(label, "ok")
        table.append(
            {
                "study": "cpu-smollm2",
                "stage": stage,
                "position": position,
                "candidate": label,
                "workload": workload,
                "is_incumbent": position == 0,
                "run_id": None if values == "refused" else run,
                "engine": "llama.cpp",
                "engine_version": "1",
                "command": f"serve {label}",
                "outcome": "ok" if ok else "failed",
                "reason": None if ok else values,
                "message": None if ok else "the telling line",
                "validity": found if ok else None,
                "validity_note": f"what makes {label} {found}" if ok and found != "ok" else None,
                "rounds": len(values) if ok else 0,
                "success_rate": 1.0 if ok else 0.0,
                "accelerators": count,
                "accelerators_per_node": per_node,
                "objective_value": sum(values) / len(values) / count if ok else None,
            }
        )
        if ok:
            for number, value in enumerate(values):
                rounds.append({"run_id": run, "metric": "total_tokens_per_s", "round": number, "value": value})
    return pd.DataFrame(table), pd.DataFrame(rounds, columns=["run_id", "metric", "round", "value"])
