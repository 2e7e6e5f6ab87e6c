"""Adds a candidate to a study whose proof has not begun."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from servelab.core.errors import ConfigError
from servelab.core.files import write_text
from servelab.search.planning import Changes, effective_changes
from servelab.search.project import load_project
from servelab.search.upgrade import value_of
from servelab.study.configuration import apply, baseline
from servelab.study.project import Project
from servelab.study.study import CONFIRM_FIRST, PROPOSED, Candidate
from servelab.tune.study_text import in_braces


def add_candidate(file: Path, root: Path, results: Path, candidate: Mapping[str, Any], reason: str) -> Changes | None:
    """Writes a candidate into the stage `proposed` of a study's file; all other text there stays.

    Returns each setting that it changes in the baseline as the engine serves it, None if that is not known.
    `ConfigError` if the study is wrong with it, if it changes nothing, or if the proof has begun.
    """
    name = file.stem
    if (results / "studies" / name / "stages" / CONFIRM_FIRST / "plan.json").exists():
        raise ConfigError(f"{name}: its proof has begun, and takes no more candidates; begin another study")
    text = _with_candidate(file, candidate, " ".join(reason.split()))
    with tempfile.TemporaryDirectory() as folder:
        written = Path(folder) / file.name
        written.write_text(text, encoding="utf-8")
        try:
            changes = _changes(load_project(written, root), Candidate.model_validate(candidate))
        except ConfigError as error:
            raise ConfigError(str(error).replace(str(written), str(file))) from None
    write_text(file, text)
    return changes


def _changes(project: Project, candidate: Candidate) -> Changes | None:
    before = baseline(project.study).configuration
    after = apply(before, candidate)
    changes = effective_changes(project.study, before, after)
    if not changes and changes is not None and before.accelerators == after.accelerators:
        raise ConfigError(f"{candidate.name}: changes nothing of the baseline as the engine serves it")
    return changes


def _with_candidate(file: Path, candidate: Mapping[str, Any], reason: str) -> str:
    """The text of a study's file with a candidate more; its reason is a comment."""
    text = file.read_text(encoding="utf-8")
    stages = value_of(yaml.compose(text), "stages")
    if not isinstance(stages, yaml.SequenceNode) or stages.flow_style:
        raise ConfigError(f"{file}: stages: add `- {{name: {PROPOSED}, candidates: []}}` there by hand")
    own = [each for each in stages.value if getattr(value_of(each, "name"), "value", None) == PROPOSED]
    listed = value_of(own[0], "candidates") if own else None
    indent = " " * (stages.start_mark.column + 4)
    lines = [f"{indent}# {reason}"] * bool(reason) + [f"{indent}- {in_braces(candidate)}"]
    if listed is None:
        indent = " " * stages.start_mark.column
        lines = [f"{indent}- name: {PROPOSED}", f"{indent}  candidates:", *lines]
        at, left = _end(stages), ""
    elif _is_flow(listed) and listed.value:
        raise ConfigError(f"{file}: stages: write the candidates of `{PROPOSED}` a line each, or add this one by hand")
    elif _is_flow(listed):
        at, left = listed.end_mark.index, text[: listed.start_mark.index].rstrip()
    else:
        at, left = _end(listed), ""
    line_end = (text + "\n").index("\n", at)
    return (left or text[:line_end]) + "\n" + "\n".join(lines) + (text[line_end:] or "\n")


def _is_flow(node: yaml.Node) -> bool:
    return isinstance(node, yaml.CollectionNode) and bool(node.flow_style)


def _end(node: yaml.Node) -> int:
    """Where the last value in a node ends; a block's own end is behind the comments that follow it."""
    if isinstance(node, yaml.ScalarNode) or _is_flow(node):
        return int(node.end_mark.index)
    last = node.value[-1]
    return _end(last[1] if isinstance(last, tuple) else last)
