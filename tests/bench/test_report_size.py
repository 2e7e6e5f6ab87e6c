"""The report of a study of 1,000 runs of 1,000 requests each: how long it takes, how much memory, and how large it is.

The records are made here; what charts, report and tables are built from them by is the workflow's own command lines.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from harness import ROOT, publish, undisturbed
from process_cost import process_cost

from servelab.core.identity import content_id
from servelab.metrics.definitions import RunData, summarise, summarise_rounds
from servelab.metrics.tables import schemas
from servelab.results.compare_with_baseline import improvements

sys.path.append(str(ROOT / "tests/unit"))
import sample_study

RUNS, REQUESTS, TOKENS, ROUNDS = 1000, 1000, 64, 2
MOST_BYTES = 5_000_000
SHAPES = {"one stage of 990": 1, "ten stages of 99": 10, "forty stages of 25": 40}
WORKLOADS = {f"workload-{number}": f"Workload {number}, {REQUESTS:,} requests" for number in range(5)}
FIRST = next(iter(WORKLOADS))
KINDS = 10
"""Different records; runs that share one differ by a factor on their figures."""


def records(seed: int) -> pa.Table:
    """Two rounds in a closed loop of 64, every request of 64 tokens, one an event."""
    draw = np.random.default_rng(seed)
    rounds = []
    for number in range(ROUNDS):
        half = REQUESTS // ROUNDS
        ttft, gaps = draw.lognormal(-2, 0.4, half), draw.lognormal(3.4, 0.3, (half, TOKENS - 1)).astype(np.float32)
        sent = np.arange(half) // 64 * 2.5 + draw.uniform(0, 0.4, half)
        last = sent + ttft + gaps.sum(axis=1) / 1000
        columns = dict.fromkeys(schemas.RUN_REQUESTS.names) | {
            "round": np.full(half, number),
            "request_index": np.arange(half),
            "scheduled_s": sent,
            "started_s": sent,
            "sent_s": sent,
            "first_token_s": sent + ttft,
            "last_token_s": last,
            "end_s": last,
            "unread_ms": np.zeros(half),
        }
        columns |= {name: np.full(half, TOKENS) for name in ("output_tokens_asked", "output_tokens", "chunks")}
        columns |= {name: np.full(half, 512) for name in ("input_tokens_asked", "input_tokens")}
        columns |= {"chunk_gaps_ms": list(gaps), "phase": ["measured"] * half, "http_status": np.full(half, 200)}
        arrays = [
            pa.array(columns[field.name] if columns[field.name] is not None else [None] * half).cast(field.type)
            for field in schemas.RUN_REQUESTS
        ]
        rounds.append(pa.Table.from_arrays(arrays, schema=schemas.RUN_REQUESTS))
    return pa.concat_tables(rounds)


class Made:
    """A study of so many stages in a folder of results, with every file that the rules of its report read."""

    def __init__(self, results: Path, stages: int) -> None:
        self.results = results
        self.folder = results / "studies/large"
        self.draw = np.random.default_rng(0)
        kinds = [RunData(records(seed)) for seed in range(KINDS)]
        self.summaries = [summarise(kind) for kind in kinds]
        self.round_values = [summarise_rounds(kind) for kind in kinds]
        for number, kind in enumerate(kinds):
            pq.write_table(kind.records, results / f"records-{number}.parquet")
        self.metrics: list[dict] = []
        self.rounds: list[dict] = []
        self.checks: list[dict] = []
        candidates = (RUNS - 2 * len(WORKLOADS)) // stages
        baseline = self.run("baseline")
        self.stages, self.decisions = {}, {}
        for number in range(stages):
            self.stage(f"stage-{number}", candidates, baseline)
        self.stages["comparison"] = [
            row | {"stage": "comparison", "position": position, "candidate": name, "is_incumbent": position == 0}
            for workload in WORKLOADS
            for position, name in enumerate(("baseline", "winner"))
            for row in [self.run(f"{workload} {name}", workload, 1.0 + 0.3 * position)]
        ]
        self.write()

    def run(self, name: str, workload: str = FIRST, factor: float | None = None) -> dict:
        """The row of a run's stage table; its folder and its figures are made beside it."""
        factor = factor or float(self.draw.uniform(0.5, 1.2))
        kind = int(self.draw.integers(KINDS))
        run_id = content_id(name)
        folder = self.results / "runs" / run_id
        folder.mkdir(parents=True)
        (folder / "requests.parquet").hardlink_to(self.results / f"records-{kind}.parquet")
        row = sample_study.table_row("stage", 1, name, 4000 * factor, workload=workload) | {"run_id": run_id}
        row |= {"study": "large", "objective": "total_tokens_per_s", "objective_per": "accelerator"}
        sample_study.write_run(folder, row)
        names = {"study": "large", "run_id": run_id, "workload": workload}
        scaled = {"mean", "minimum", "median", "p90", "p95", "p99", "maximum", "ci95_low", "ci95_high", "std"}
        self.metrics += [
            names | {key: value * factor if key in scaled and value else value for key, value in entry.items()}
            for entry in self.summaries[kind]
        ]
        self.rounds += [names | entry | {"value": entry["value"] * factor} for entry in self.round_values[kind]]
        check = {"check": "disturbed_round", "level": "suspect" if kind == 0 else "ok", "saw": "round 1: 3100 of 4000"}
        self.checks.append(names | check | {"action": "Look into it." if kind == 0 else None})
        return row | {"validity": check["level"]}

    def stage(self, name: str, candidates: int, incumbent: dict) -> None:
        """A stage whose best candidate wins, and in which every tenth fails."""
        rows = [incumbent | {"stage": name, "position": 0, "candidate": "baseline", "is_incumbent": True}]
        for position in range(1, candidates + 1):
            label = f"max_num_seqs={position}, max_num_batched_tokens={1024 * position}"
            row = self.run(f"{name} {position}") | {"stage": name, "position": position, "candidate": label}
            row["command"] = f"vllm serve Qwen/Qwen3-32B --max-num-seqs {position} --stage {name} --flag {'x' * 60}"
            row["changes"] = json.dumps({"options": {"max_num_seqs": position, "enable_prefix_caching": True}})
            if position % 10 == 0:
                message = f"torch.OutOfMemoryError: tried to allocate {position}.5 GiB " + "of memory " * 20
                row |= {"outcome": "failed", "reason": "out_of_memory", "message": message, "objective_value": None}
                row |= {"total_tokens_per_s": None, "validity": None}
            rows.append(row)
        best = max((row for row in rows if row["outcome"] == "ok"), key=lambda row: row["objective_value"])
        self.stages[name] = rows
        self.decisions[name] = {
            "study": "large",
            "objective": "total_tokens_per_s",
            "margin_percent": 2.0,
            "stage": name,
            "title": name.capitalize(),
            "applies": True,
            "reason": f"{best['candidate']}: +20.0 %",
            "incumbent": {"candidate": "baseline"},
            "winner": {"candidate": best["candidate"]},
            "changed": best is not rows[0],
            "candidates": [sample_study.verdict(row, rows[0], row is best) for row in rows],
        }

    def write(self) -> None:
        """Every table and file of the study."""
        everything = pd.DataFrame([row for rows in self.stages.values() for row in rows])
        tables = {f"stages/{name}/table": (rows, schemas.STAGE_TABLE) for name, rows in self.stages.items()}
        tables |= {"metrics": (self.metrics, schemas.METRICS), "checks": (self.checks, schemas.CHECKS)}
        timeline = [
            {"study": "large", "run_id": row["run_id"], "workload": row["workload"], "round": number}
            | {"start_s": 0.1 * bucket, "seconds": 0.1, "requests_in_flight": 64.0, "requests_sent": 3}
            | {"requests_ended": 3, "output_tokens": float(self.draw.uniform(300, 400))}
            for row in self.stages["comparison"]
            for number in range(ROUNDS)
            for bucket in range(200)
        ]
        tables["stages/comparison/timeline"] = (timeline, schemas.TIMELINE)
        tables["search"] = (list(self.searched()), schemas.SEARCH)
        for name, (rows, schema) in tables.items():
            path = self.folder / f"{name}.parquet"
            path.parent.mkdir(parents=True, exist_ok=True)
            pq.write_table(pa.Table.from_pylist(rows, schema=schema), path)
        found = improvements(everything, pd.DataFrame(self.rounds), pd.DataFrame(self.metrics))
        pq.write_table(found, self.folder / "improvements.parquet")
        for stage, decision in self.decisions.items():
            (self.folder / "stages" / stage / "decision.json").write_text(json.dumps(decision))
        baseline, winner = self.stages["comparison"][:2]
        said = {"run_id": winner["run_id"], "baseline_run_id": baseline["run_id"]}
        recommended = sample_study.recommended() | said
        gains = [
            recommended["improvements"][0] | {"workload": name, "title": title, "n": ROUNDS}
            for name, title in WORKLOADS.items()
        ]
        recommended["improvements"] = gains
        (self.folder / "recommended.json").write_text(json.dumps(recommended))
        stages = [
            {"name": name, "title": name, "candidates": [row["candidate"] for row in rows[1:]]}
            for name, rows in self.stages.items()
            if name != "comparison"
        ]
        study = sample_study.study() | {"study": "large", "workloads": WORKLOADS, "stages": stages}
        study["objective"] = study["objective"] | {"on": FIRST}
        (self.folder / "study.json").write_text(json.dumps(study))

    def searched(self):
        """Rows of the audit of the search."""
        for name, rows in self.stages.items():
            for row in rows:
                yield {
                    "study": "large",
                    "stage": name,
                    "stage_title": name,
                    "position": row["position"],
                    "candidate": row["candidate"],
                    "is_incumbent": row["is_incumbent"],
                    "outcome": "tried" if row["outcome"] == "ok" else "failed",
                    "verdict": "worse",
                    "reason": "−3.1 % (95 % interval −4.2 to −2.0 %)",
                    "run_ids": [row["run_id"]],
                    "shared_with": [],
                    "accelerator_s": 1843.0,
                    "load_accelerator_s": 1200.0,
                    "new_accelerator_s": 1843.0,
                    "new_load_accelerator_s": 1200.0,
                }

    def commands(self) -> dict[str, list[str]]:
        """The command lines of the three rules that build a report, as the workflow calls them."""
        tables = [str(self.folder / "stages" / stage / "table.parquet") for stage in self.stages]
        decisions = [str(self.folder / "stages" / stage / "decision.json") for stage in self.decisions]
        common = ["--study", str(self.folder / "study.json"), "--stages", *tables, "--decisions", *decisions]
        common += ["--improvements", str(self.folder / "improvements.parquet")]
        of_runs = {name: str(self.folder / f"{name}.parquet") for name in ("distributions", "device_series")}
        condense = [
            "--table",
            str(self.folder / "stages/comparison/table.parquet"),
            "--runs",
            str(self.results / "runs"),
        ]
        drawn = ["--timeline", str(self.folder / "stages/comparison/timeline.parquet")]
        for name, path in of_runs.items():
            option = name.replace("_", "-")
            condense += [f"--output-{option}", path]
            drawn += [f"--{option}", path]
        read = [
            part
            for name in ("metrics", "checks", "search")
            for part in (f"--{name}", str(self.folder / f"{name}.parquet"))
        ]
        read += ["--recommended", str(self.folder / "recommended.json"), "--runs", str(self.results / "runs")]
        written = ["--output-md", str(self.folder / "report.md"), "--output-html", str(self.folder / "report.html")]
        written += ["--output-tables", str(self.folder / "tables")]
        written += [
            "--output-card-md",
            str(self.folder / "card.md"),
            "--output-card-png",
            str(self.folder / "card.png"),
        ]
        charts = str(self.folder / "charts")
        return {
            "condense_records": condense,
            "plot_charts": [*common, *drawn, "--output", charts],
            "render_report": [*common, *read, "--charts-dir", charts, *written],
        }


def cost(script: str, arguments: list[str]) -> tuple[float, float]:
    """Seconds and MB at the most that a script takes; it must succeed."""
    began = time.monotonic()
    took = process_cost([sys.executable, str(ROOT / f"scripts/{script}.py"), *arguments])
    assert took.returncode == 0, script
    return time.monotonic() - began, took.peak_rss_mb


@pytest.mark.bench
def test_the_report_of_a_large_study_stays_small(tmp_path):
    rows = []
    for shape, stages in SHAPES.items():
        results = tmp_path / str(stages)
        results.mkdir()
        made = Made(results, stages)
        runs = list((results / "runs").iterdir())
        assert RUNS - stages - 1 <= len(runs) <= RUNS + 1
        with undisturbed():
            costs = {script: cost(script, arguments) for script, arguments in made.commands().items()}
        size = (made.folder / "report.html").stat().st_size
        rows.append(
            {"Shape": shape, "Runs": len(runs), "Requests": len(runs) * REQUESTS}
            | {f"{script} (s)": seconds for script, (seconds, _) in costs.items()}
            | {"Peak memory (MB)": max(memory for _, memory in costs.values())}
            | {
                "report.html (MB)": size / 1e6,
                "report.md (MB)": (made.folder / "report.md").stat().st_size / 1e6,
                "tables/ (MB)": sum(path.stat().st_size for path in (made.folder / "tables").iterdir()) / 1e6,
            }
        )
        assert size < MOST_BYTES, rows[-1]
        assert len(pd.read_parquet(made.folder / "tables/stages.parquet")) >= RUNS
    publish("report_size", "The report of 1,000 runs of 1,000 requests", {"Report": pd.DataFrame(rows)})
