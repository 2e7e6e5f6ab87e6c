"""Writes a draft: `study.yaml` with a comment at each guess, the logs, and a list of what could not be placed."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from servelab.core.errors import ConfigError
from servelab.core.files import write_text
from servelab.recorded.draft.candidates import Candidate, Stage
from servelab.recorded.draft.claiming import DEFAULT_METRIC
from servelab.recorded.draft.drafted import Draft
from servelab.recorded.draft.facts import variant_of
from servelab.recorded.draft.observed import Result
from servelab.recorded.draft.serving import ENGINES
from servelab.recorded.draft.workloads import Workload
from servelab.recorded.logs import Logs
from servelab.study.recorded.study import FILE, LOGS, load_recorded

UNPLACED, LEFT_LOGS = "unplaced.md", "unplaced"
_HEAD = """# yaml-language-server: $schema=../../schema/recorded.schema.json
# A draft. Look at each line marked `# guessed`, then remove the mark. unplaced.md lists what no line here has.
"""


def write_draft(draft: Draft, folder: Path) -> None:
    """Writes `study.yaml`, `logs/` and `unplaced.md`, and reads them again; `ConfigError` if the folder has a study."""
    if (folder / FILE).exists() or (folder / LOGS).exists():
        raise ConfigError(f"{folder}: there is a study already; name another folder or remove it")
    logs = folder / LOGS
    logs.mkdir(parents=True)
    files: dict[int, str] = {}
    for candidate in draft.candidates.all:
        for workload, results in candidate.results.items():
            for number, result in enumerate(results, start=1):
                again = f"-{number}" if len(results) > 1 else ""
                file = _unique(f"{candidate.stage}-{candidate.name}-{workload}{again}", result, files)
                files[id(result)] = file
                (logs / file).write_text(result.log, encoding="utf-8", errors="surrogateescape")
    left = folder / LEFT_LOGS
    for number, unplaced in enumerate(draft.unplaced, start=1):
        if unplaced.log is not None:
            left.mkdir(exist_ok=True)
            (left / f"{number}.txt").write_text(unplaced.log, encoding="utf-8", errors="surrogateescape")
    write_text(folder / UNPLACED, _shown("\n".join(_unplaced(draft)) + "\n"))
    write_text(folder / FILE, _shown(_HEAD + "\n".join(_study(draft, files)) + "\n"))
    _check(folder)


def _check(folder: Path) -> None:
    """`ConfigError` if the workflow would not read the draft as it was meant."""
    study = load_recorded(folder)
    logs = Logs(study, folder)
    for reference, workload, _ in study.log_files():
        for broken in logs.broken(reference, workload):
            raise ConfigError(f"{folder / LOGS / broken.file}: {reference}, {workload}: {broken.reason}")


def _unique(stem: str, result: Result, files: dict[int, str]) -> str:
    suffix = ".json" if result.log.lstrip().startswith("{") else ".txt"
    name, number = f"{stem}{suffix}", 2
    while name in files.values():
        name, number = f"{stem}-{number}{suffix}", number + 1
    return name


def _shown(text: str) -> str:
    """A text that YAML can hold and UTF-8 can write."""
    return "".join(each if each == "\n" or each.isprintable() else "\ufffd" for each in text)


def _q(value: Any) -> str:
    if isinstance(value, str):
        value = _shown(value.replace("\n", " "))
    return json.dumps(value, ensure_ascii=False)


def _mark(why: str | None) -> str:
    return f" # guessed: {' '.join(why.split())}" if why else ""


def _study(draft: Draft, files: dict[int, str]) -> Iterator[str]:
    facts = draft.facts
    yield f"study: {draft.name}"
    yield f"title: {_q(draft.title)}"
    yield f"source: {_q(draft.source)}"
    yield ""
    yield "model:"
    yield f"  id: {_q(facts.model)}{_mark(facts.guesses.get('model'))}"
    if facts.names:
        yield f"  names: [{', '.join(map(_q, facts.names))}]"
    if facts.variants:
        yield "  variants:"
        yield from (f"    {_q(key)}: {_q(name)}" for key, name in facts.variants.items())
    yield ""
    yield "hardware:"
    yield f"  accelerator: {_q(facts.accelerator)}{_mark(facts.guesses.get('accelerator'))}"
    yield f"  device: {facts.device}{_mark('from the name of the accelerator')}"
    yield f"  per_node: {facts.per_node}{_mark(facts.guesses.get('per_node'))}"
    yield ""
    yield "engines:"
    for key, version in facts.versions.items():
        yield f"  {_q(key)}:"
        title = next((each.title for each in ENGINES if each.key == key), None)
        if title:
            yield f"    title: {_q(title)}"
        yield f"    version: {_q(version)}{_mark(facts.guesses.get(f'version {key}'))}"
        if key in facts.programs:
            yield f"    program: {_q(facts.programs[key])}"
    yield ""
    yield from _objective(draft)
    yield ""
    yield "workloads:"
    for workload in draft.workloads:
        yield from _workload(workload)
    yield ""
    yield f"baseline: {_q(draft.baseline.reference)}{_mark('what the page calls so, or the first candidate')}"
    yield ""
    yield "stages:"
    for stage in draft.candidates.stages:
        yield from _stage(draft, stage, files)
    if draft.claims:
        yield ""
        yield "claims:"
        for claim in draft.claims:
            keys = {"kind": claim.kind, "where": claim.where, "line": claim.line, **claim.keys}
            text = ", ".join(f"{key}: {_q(value)}" for key, value in keys.items())
            yield f"  - {{{text}}}{_mark(claim.guess)}"


def _objective(draft: Draft) -> Iterator[str]:
    doubled = any(claim.keys.get("times", 1) > 1 or claim.keys.get("basis") == "node" for claim in draft.claims)
    yield "objective:"
    changed = [claim.keys.get("metric", DEFAULT_METRIC) for claim in draft.claims if claim.kind == "change"]
    metric, count = Counter(changed).most_common(1)[0] if changed else (DEFAULT_METRIC, 0)
    if 2 * count > len(changed) and metric != DEFAULT_METRIC:
        yield f"  metric: {metric}{_mark('most changes that the page claims are of it')}"
    else:
        yield f"  metric: {DEFAULT_METRIC}{_mark('the usual one; docs/metrics.md lists all')}"
    yield f"  per: {'node' if doubled else 'deployment'}{_mark('whether the page multiplies figures to a whole node')}"
    yield f"  on: {_q(draft.candidates.objective_on)}{_mark('the workload that most candidates were measured on')}"
    prompts = {each.name: each.prompts for each in draft.workloads}[draft.candidates.objective_on]
    done = [
        result.block.value("requests_completed") or 0
        for candidate in draft.candidates.all
        for result in candidate.results.get(draft.candidates.objective_on, [])
    ]
    rate = max(done, default=0) / prompts
    if rate < 0.99:
        floor = int(rate * 100) / 100
        yield f"  min_success_rate: {floor}{_mark(f'no run has more than {max(done):.0f} successes of {prompts}')}"


def _workload(workload: Workload) -> Iterator[str]:
    yield f"  {_q(workload.name)}:"
    yield f"    title: {_q(workload.title)}{_mark(workload.guesses.get('title'))}"
    yield f"    prompts: {workload.prompts}{_mark(workload.guesses.get('prompts'))}"
    for key in ("input_tokens", "output_tokens", "max_concurrency", "request_rate"):
        value = getattr(workload, key)
        if value:
            yield f"    {key}: {value}{_mark('from the page, by the lengths in the logs') if 'tokens' in key else ''}"
    if workload.command:
        yield f"    command: {_q(workload.command)}{_mark(workload.guesses.get('command'))}"


def _stage(draft: Draft, stage: Stage, files: dict[int, str]) -> Iterator[str]:
    yield f"  - name: {_q(stage.name)}{_mark('from the heading')}"
    yield f"    title: {_q(stage.title)}"
    yield "    candidates:"
    for candidate in stage.candidates:
        yield from _candidate(draft, candidate, files)


def _candidate(draft: Draft, candidate: Candidate, files: dict[int, str]) -> Iterator[str]:
    variant, why = variant_of(draft.facts, candidate.command)
    yield f"      - name: {_q(candidate.name)}{_mark(candidate.guesses.get('label'))}"
    yield f"        label: {_q(candidate.label)}"
    yield f"        engine: {_q(candidate.engine)}{_mark(candidate.guesses.get('engine'))}"
    if variant != "base" or why:
        yield f"        model: {_q(variant)}{_mark(why)}"
    if draft.accelerators[candidate.reference] != 1:
        yield f"        accelerators: {draft.accelerators[candidate.reference]}{_mark('from its command')}"
    if candidate.printed:
        yield f"        printed: {_q(candidate.printed)}"
    yield f"        command: {_q(candidate.command)}{_mark(candidate.guesses.get('command'))}"
    if candidate.commands:
        yield f"        commands:{_mark(candidate.guesses.get('commands'))}"
        yield from (f"          {_q(workload)}: {_q(command)}" for workload, command in candidate.commands.items())
    if candidate.failure is not None:
        is_refused = re.search(r"\b(?:not |un)support", candidate.failure.message, re.IGNORECASE)
        yield f"        outcome: {'unsupported' if is_refused else 'crash'}{_mark(candidate.guesses.get('outcome'))}"
        yield f"        message: {_q(candidate.failure.message)}"
        return
    yield "        logs:"
    for workload, results in candidate.results.items():
        yield f"          {_q(workload)}: [{', '.join(_q(files[id(result)]) for result in results)}]"


def _unplaced(draft: Draft) -> Iterator[str]:
    yield f"# Not placed in the draft of {draft.source}"
    yield ""
    if not draft.unplaced:
        yield "Everything was placed."
    for number, each in enumerate(draft.unplaced, start=1):
        kept = f" Its lines are in {LEFT_LOGS}/{number}.txt." if each.log is not None else ""
        yield f"- {each.spot.file}:{each.spot.line}: {each.what}: {each.why}.{kept}"
