"""Writes the audit of a search: what became of every candidate, why, what it cost, and who shares its runs."""

import argparse
import json
from pathlib import Path

from servelab import schemas
from servelab.cli import run
from servelab.decide import Decision
from servelab.deciding_pair import SIDES
from servelab.parse import read_table, write_table
from servelab.search_audit import AuditedStage, Held, audit_search, stages_elsewhere
from servelab.searched import load_searched, read_plan


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--study", type=Path, required=True, help="config/studies/X.yaml or config/recorded/X")
    parser.add_argument("--plans", type=Path, nargs="+", required=True, help="plan.json of every stage, in order")
    parser.add_argument("--tables", type=Path, nargs="+", required=True, help="table.parquet of every stage")
    parser.add_argument(
        "--decisions", type=Path, nargs="+", required=True, help="decision.json of every stage but the last"
    )
    parser.add_argument("--results", type=Path, help="folder of pairs/ and studies/; without it nothing ran here")
    parser.add_argument("--output", type=Path, required=True)
    arguments = parser.parse_args()

    decisions = [Decision.model_validate_json(path.read_bytes()) for path in arguments.decisions]
    stages = [
        AuditedStage(read_plan(plan), read_table(table, schemas.STAGE_TABLE), decision)
        for plan, table, decision in zip(arguments.plans, arguments.tables, [*decisions, None], strict=True)
    ]
    pair_ids = [entry.pair_id for decision in decisions for entry in decision.candidates if entry.pair_id]
    study = load_searched(arguments.study)
    audited = audit_search(
        study,
        stages,
        {pair_id: _pair(arguments.results / "pairs" / pair_id) for pair_id in pair_ids},
        stages_elsewhere(_planned_runs(arguments.results), f"studies/{study.study}") if arguments.results else {},
    )
    write_table(audited, arguments.output)


def _pair(folder: Path) -> Held:
    """What a measured pair held."""
    sides = [json.loads((folder / side / "status.json").read_bytes()) for side in SIDES]
    accelerators = [json.loads((folder / side / "spec.json").read_bytes())["hardware"]["count"] for side in SIDES]
    load_s = sum(side["load_s"] * count for side, count in zip(sides, accelerators, strict=True))
    return Held(sum(side["accelerator_s"] for side in sides), load_s)


def _planned_runs(results: Path) -> dict[str, list[str]]:
    """Runs of every stage of every live study that is planned by now, by `studies/<study>/<stage>`."""
    found = {}
    for path in results.glob("studies/*/stages/*/plan.json"):
        candidates = json.loads(path.read_bytes())["candidates"]
        stage = path.parent
        runs = [run["run_id"] for candidate in candidates for run in candidate["runs"]]
        found[f"studies/{stage.parents[1].name}/{stage.name}"] = runs
    return found


if __name__ == "__main__":
    run(main)
