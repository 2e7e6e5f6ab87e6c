"""Drafts a recorded study from a page or a folder of logs."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from itertools import takewhile
from pathlib import Path

from servelab.core.errors import ConfigError
from servelab.recorded.draft.candidates import Candidate, Candidates, guess_candidates
from servelab.recorded.draft.claiming import Context, DraftClaim
from servelab.recorded.draft.facts import Facts, guess_facts
from servelab.recorded.draft.figures import Figures
from servelab.recorded.draft.fragments import complete
from servelab.recorded.draft.observed import Observed, Serving, Unplaced, Walker
from servelab.recorded.draft.page import read_log, read_page
from servelab.recorded.draft.prose import claim_line
from servelab.recorded.draft.serving import accelerators_of
from servelab.recorded.draft.tables import claim_table
from servelab.recorded.draft.words import BASELINE, TUNED, Names
from servelab.recorded.draft.workloads import Workload, sort_results
from servelab.study.recorded.commands import read_command

_PAGES = (".md", ".markdown", ".html", ".htm", ".mdx")
_TEXTS = (".txt", ".log", ".out", ".err", ".json", ".jsonl", ".csv", ".sh", ".bash", ".yaml", ".yml", "")
_MOST_FILES, _MOST_LINES = 20_000, 10_000
"""Files of a folder; lines with a number that are searched for claims."""
_CALLED = re.compile(r"\bbase\s?line", re.IGNORECASE)


@dataclass
class Draft:
    """A study as guessed."""

    name: str
    title: str
    source: str
    facts: Facts
    workloads: list[Workload]
    candidates: Candidates
    baseline: Candidate
    tuned: Candidate | None
    accelerators: dict[str, int]
    claims: list[DraftClaim] = field(default_factory=list)
    unplaced: list[Unplaced] = field(default_factory=list)


def draft(path: Path, name: str) -> Draft:
    """The draft of a page or folder; `ConfigError` if it has no result under which a study could stand."""
    observed = _observe(path)
    complete(observed)
    workloads = sort_results(observed)
    candidates = guess_candidates(observed, workloads)
    measured = [each for each in candidates.all if each.results]
    if not measured:
        tried = f"{len(observed.servings)} serving commands, {len(observed.unplaced)} results that cannot be read"
        raise ConfigError(f"{path}: no result of a load client found ({tried}); read_log.py says what is in a file")
    facts = guess_facts(observed, candidates.all)
    tuned = _tuned(observed, measured)
    decided = [each for each in measured if candidates.objective_on in each.results]
    baseline = _baseline(observed, decided, tuned)
    accelerators = {each.reference: accelerators_of(each.command) or 1 for each in candidates.all}
    figures = Figures(candidates.all, accelerators, facts.per_node)
    names = Names(candidates.stages, workloads, baseline, tuned)
    context = Context(
        names, figures, candidates.objective_on, observed.tables[0][2].file if observed.tables else path.name
    )
    _claim(observed, facts, tuned, context)
    used = {each for candidate in measured for each in candidate.results}
    return Draft(
        name,
        observed.title or path.stem,
        path.name,
        facts,
        [each for each in workloads if each.name in used],
        candidates,
        baseline,
        tuned,
        accelerators,
        sorted(context.claims, key=lambda each: each.line),
        [*observed.unplaced, *candidates.unplaced, *context.unplaced],
    )


def _observe(path: Path) -> Observed:
    observed = Observed()
    walker = Walker(observed)
    if not path.exists():
        raise ConfigError(f"{path}: no such file or folder")
    if not path.is_dir():
        walker.walk(read_page(path) if path.suffix.lower() in _PAGES else read_log(path), is_log=False)
        return observed
    for level, parts, file in _files(path):
        for depth, part in enumerate(parts, start=level - len(parts)):
            walker.enter(depth, part, file.name, 1)
        if file.suffix.lower() in _PAGES:
            walker.walk(read_page(file), is_log=False)
        else:
            walker.walk(read_log(file), is_log=True)
    return observed


def _files(folder: Path) -> list[tuple[int, tuple[str, ...], Path]]:
    """Files of a folder, those that may have commands first in each, with the headings that begin there."""
    found: list[tuple[int, tuple[str, ...], Path]] = []
    before: tuple[str, ...] = ()
    for parent, folders, files in os.walk(folder):
        folders.sort()
        inside = Path(parent).relative_to(folder).parts
        names = [name for name in files if Path(name).suffix.lower() in (*_PAGES, *_TEXTS)]
        for name in sorted(names, key=lambda each: (not _is_script(each), each)):
            own = (folder.name, *inside) if _is_script(name) else (folder.name, *inside, Path(name).stem)
            shared = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(before, own, strict=False)))
            shared = min(shared, len(own) - 1) if not _is_script(name) else shared
            found.append((len(own) + 1, own[shared:], Path(parent) / name))
            before = own
            if len(found) == _MOST_FILES:
                return found
    return found


def _is_script(name: str) -> bool:
    stem = Path(name).stem.lower()
    return name.endswith((".sh", ".bash")) or any(
        word in stem for word in ("command", "cmd", "serve", "server", "launch")
    )


def _baseline(observed: Observed, measured: list[Candidate], tuned: Candidate | None) -> Candidate:
    """The candidate that the page calls so, or else default or the like, or the first."""
    for words in (_CALLED, BASELINE):
        for serving in observed.servings:
            if words.search(_said_of(serving)):
                named = _of(serving.text, measured)
                if named is not None and named is not tuned:
                    return named
    named = next((each for each in measured if any(map(BASELINE.search, each.labels))), None)
    return named or measured[0]


def _tuned(observed: Observed, measured: list[Candidate]) -> Candidate | None:
    for serving in observed.servings:
        words = _said_of(serving)
        if TUNED.search(words) and not BASELINE.search(words):
            named = _of(serving.text, measured)
            if named is not None:
                return named
    return None


def _said_of(serving: Serving) -> str:
    return f"{serving.spot.before} {serving.spot.label or ''} {' '.join(serving.spot.path[1:])}"


def _of(command: str, candidates: list[Candidate]) -> Candidate | None:
    return next((each for each in candidates if read_command(each.command) == read_command(command)), None)


def _claim(observed: Observed, facts: Facts, tuned: Candidate | None, context: Context) -> None:
    first_result = observed.results[0].spot.line
    for serving in observed.servings:
        words = _said_of(serving)
        if TUNED.search(words) and not BASELINE.search(words):
            is_before = serving.spot.line < first_result
            guess = None if is_before else "the text above it says so"
            context.add("recommended", serving.spot, serving.spot.where, {"command": serving.text}, guess)
            break
    if facts.said_accelerators is not None:
        count, spot = facts.said_accelerators
        context.add("accelerators", spot, spot.where, {"count": count}, "what the text says of hardware")
    for table, lines, spot in observed.tables:
        claim_table(table, lines, spot, context)
    numbered = [(text, spot) for text, spot in observed.lines if any(map(str.isdigit, text))]
    for text, spot in numbered[:_MOST_LINES]:
        claim_line(text, spot, context)
    if len(numbered) > _MOST_LINES:
        rest = f"{len(numbered) - _MOST_LINES:,} lines of text from here on"
        context.leave(numbered[_MOST_LINES][1], rest, "only so many are searched for claims")
