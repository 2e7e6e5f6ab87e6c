"""Judges a new release of an engine beside the one that a study has, and puts it into the study's file.

Baseline and winner are served by both releases, in pairs of fresh starts next to each other (`servelab.search.bisect`),
so unlike in a study's history no change of the machine can come in between.
"""

from __future__ import annotations

from pathlib import Path

import yaml

from servelab.core.errors import ConfigError
from servelab.core.files import write_text
from servelab.core.identity import content_id, run_id
from servelab.results.past_runs import PastTimes
from servelab.search.bisect import FIRST_PAIRS
from servelab.search.proof import BASELINE, WINNER
from servelab.search.recommended import Recommended
from servelab.study.configuration import Configuration, Load, baseline
from servelab.study.project import Project
from servelab.study.spec_builder import run_spec


def served_by(project: Project, alias: str, results: Path) -> dict[str, Configuration]:
    """Baseline and winner of a study, as far as this engine serves them; `ConfigError` if neither is.

    `results` is the study's folder; without an answer there, or if the baseline won, there is no winner.
    """
    found = {BASELINE: baseline(project.study).configuration}
    if (file := results / "recommended.json").exists():
        found[WINNER] = Recommended.read(file).configuration
    served = {name: each for name, each in found.items() if each.engine == alias}
    if not served:
        raise ConfigError(f"{project.file}: --engine {alias}: neither the baseline nor the winner is served by it")
    if served.get(WINNER) == served.get(BASELINE):
        served.pop(WINNER, None)
    return served


def cost_text(project: Project, served: dict[str, Configuration], most_pairs: int, runs: Path) -> str:
    """`16 to 40 server starts, about 1.2 to 3.1 accelerator-hours by past runs`."""
    times, on = PastTimes(runs), project.study.objective.on
    costs = [times.of_visit([run_spec(project, each, Load(workload=on))]) for each in served.values()]
    least, most = (2 * pairs * len(served) for pairs in (FIRST_PAIRS, most_pairs))
    text = f"{least} to {most} server starts"
    known = [cost.accelerator_s for cost in costs if cost]
    if len(known) < len(costs):
        return text
    low, high = (2 * pairs * sum(known) / 3600 for pairs in (FIRST_PAIRS, most_pairs))
    return f"{text}, about {low:.2g} to {high:.2g} accelerator-hours by past runs"


def verdict_file(project: Project, served: dict[str, Configuration], version: str, most_pairs: int) -> Path:
    """File of the verdict on a release, if there is one: its name has all that the verdict depends on."""
    load = Load(workload=project.study.objective.on)
    runs = {name: run_id(run_spec(project, each, load)) for name, each in served.items()}
    about = content_id([project.study.objective.model_dump(mode="json"), most_pairs, runs])
    return Path("results/studies") / project.study.study / "upgrades" / f"{version}-{about}.txt"


def take_release(file: Path, alias: str, version: str, lock: Path) -> None:
    """Writes version and lock of an engine into a study's file, and leaves all other text there.

    `ConfigError` if its place cannot be found, as where the engine is an alias of another part of the file.
    """
    text = file.read_text(encoding="utf-8")
    entry = value_of(value_of(yaml.compose(text), "engines"), alias)
    at = value_of(entry, "version")
    if not isinstance(entry, yaml.MappingNode) or not isinstance(at, yaml.ScalarNode):
        raise ConfigError(f"{file}: engines.{alias}: write `version: {version}` and `lock: {lock}` there by hand")
    edits: list[tuple[yaml.Node, str]] = [(at, version)]
    if old := value_of(entry, "lock"):
        edits.append((old, str(lock)))
    else:
        # On a line of its own in a block, else behind the version in its braces.
        between = ", " if entry.flow_style else "\n" + " " * entry.value[0][0].start_mark.column
        edits[0] = (at, f"{version}{between}lock: {lock}")
    for node, new in sorted(edits, key=lambda edit: -edit[0].start_mark.index):
        text = text[: node.start_mark.index] + new + text[node.end_mark.index :]
    write_text(file, text)


def value_of(node: yaml.Node | None, key: str) -> yaml.Node | None:
    """The value of a key of a mapping; None if there is none."""
    pairs = node.value if isinstance(node, yaml.MappingNode) else []
    return next((value for name, value in pairs if name.value == key), None)
