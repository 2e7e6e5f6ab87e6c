"""Compares drafts of pages with the recorded studies that were made of them by hand.

    python tests/bench/drafted_studies.py PAGES     # a folder with <study>.md for each study of config/recorded

How things match: a *log* by its figures, if draft and study file it under the same command (options in any order) and
one workload of the draft holds the logs of one workload of the study. A *candidate* by its command; a *stage* by its
candidates. A *claim* by kind, line, number as printed, metric, statistic, and the candidates and workload it names; an
`order` also by the order, `chosen` by the candidate. Everything in a draft without a match is *invented*, everything in
the study without one *missed*.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from servelab.recorded.draft.drafted import draft
from servelab.recorded.draft.writing import write_draft
from servelab.recorded.logs import figures_of
from servelab.recorded.readers import read_file
from servelab.study.recorded.commands import read_command
from servelab.study.recorded.published_claims import Claim
from servelab.study.recorded.study import LOGS, RecordedStudy, load_recorded

Things = dict[str, Counter[Any]]
RECORDED = Path(__file__).parents[2] / "config" / "recorded"


def things(study: RecordedStudy, folder: Path) -> Things:
    """What a study says, in a form that does not depend on the names it gives."""
    commands = {name: _command(each.command, each.outcome) for name, each in study.candidates.items()}
    logs: Counter[Any] = Counter()
    held: dict[str, set[Any]] = {}
    for reference, workload, file in study.log_files():
        figures = figures_of(read_file(folder / LOGS / file)[0])
        logs[commands[reference], figures] += 1
        held.setdefault(workload, set()).add(figures)
    sent = {name: frozenset(figures) for name, figures in held.items()}
    return {
        "candidates": Counter(commands.values()),
        "commands": Counter({command[0] for command in commands.values()}),
        "workloads": Counter(sent.values()),
        "logs": logs,
        "stages": Counter(
            frozenset(commands[f"{stage.name}/{each.name}"] for each in stage.candidates) for stage in study.stages
        ),
        "claims": Counter(_claim(each, commands, sent) for each in study.claims),
    }


def _command(text: str, outcome: str) -> tuple[Any, ...]:
    parts = read_command(text)
    options = tuple(sorted(parts.options.items(), key=str))
    return ((tuple(sorted(parts.variables.items())), parts.words, options), outcome == "ok")


def _claim(claim: Claim, commands: dict[str, Any], sent: dict[str, Any]) -> tuple[Any, ...]:
    found: list[Any] = [claim.kind, claim.line]
    for key in ("printed", "metric", "statistic", "count", "times", "because"):
        found.append(getattr(claim, key, None))
    for key in ("candidate", "against"):
        found.append(commands.get(getattr(claim, key, "")))
    found.append(sent.get(getattr(claim, "workload", "")))
    found.append(tuple(commands[name] for name in getattr(claim, "candidates", [])))
    found.append(_command(claim.command, "ok") if claim.kind == "recommended" else None)
    return tuple(found)


def compare(page: Path, name: str, details: bool) -> tuple[dict[str, tuple[int, int, int]], float]:
    """What of a study is found, invented and missed in the draft of its page; and the seconds that drafting takes."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / name
        begins = time.perf_counter()
        write_draft(draft(page, name), folder)
        took = time.perf_counter() - begins
        mine, theirs = load_recorded(folder), load_recorded(RECORDED / name)
        drafted, made = things(mine, folder), things(theirs, RECORDED / name)
        if details:
            _show(drafted, made)
    counts = {}
    for kind in made:
        found = (drafted[kind] & made[kind]).total()
        counts[kind] = (found, drafted[kind].total() - found, made[kind].total() - found)
    return counts, took


def _show(drafted: Things, made: Things) -> None:
    for kind in ("candidates", "stages", "claims"):
        for sign, rest in (("invented", drafted[kind] - made[kind]), ("missed", made[kind] - drafted[kind])):
            for each in rest.elements():
                print(f"  {kind} {sign}: {str(each)[:260]}", file=sys.stderr)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("pages", type=Path)
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--details", action="store_true")
    arguments = parser.parse_args()
    for page in sorted(arguments.pages.glob("*.md")):
        if not (RECORDED / page.stem).is_dir() or (arguments.only and page.stem not in arguments.only):
            continue
        counts, took = compare(page, page.stem, arguments.details)
        shown = "  ".join(
            f"{kind} {found}/{found + missed} +{invented}" for kind, (found, invented, missed) in counts.items()
        )
        print(f"{page.stem:22} {took:5.2f} s  {shown}")


if __name__ == "__main__":
    main()
