"""The study of a command, as YAML: each candidate has its reason, its published gain and its cost as a comment."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping
from itertools import groupby
from typing import Any

import yaml

from servelab.study.study import PROPOSED
from servelab.tune.levers import Lever, Proposal
from servelab.tune.proposals import Proposed

_WIDTH = 120
_HEAD = """\
# yaml-language-server: $schema={schema}
# Begun by `servelab tune` from a command. Gains are those of published pages, of one run each.\
"""


def study_text(head: Mapping[str, Any], proposed: Proposed, variants: Mapping[str, str], notes: Iterable[str]) -> str:
    """The file: comments, all keys but the stages, then a stage for each lever.

    `variants` are names of weights in the study by their model; `notes` are lines in front.
    """
    lines = [_HEAD]
    lines += [f"# {line}".rstrip() for note in notes for line in textwrap.wrap(note, _WIDTH - 2)]
    lines.append(yaml.safe_dump(dict(head), sort_keys=False, allow_unicode=True, width=_WIDTH).rstrip())
    lines.append("stages:")
    for (lever, on), group in groupby(proposed.candidates, key=lambda pair: (pair[0], pair[1].on)):
        proposals = [proposal for _, proposal in group]
        other = f"-{on}" if on else ""
        lines += [f"  - name: {lever.name}{other}", f"    title: {lever.title}"]
        lines += [f"    when: {{engine: {on}}}"] * (on is not None and len(head["engines"]) > 1)
        lines.append("    candidates:")
        for proposal in proposals:
            lines += [f"      # {line}" for line in textwrap.wrap(explained(lever, proposal), _WIDTH - 8)]
            lines.append(f"      - {in_braces(candidate(proposal, variants))}")
    lines += [
        f"  - name: {PROPOSED} # what `servelab propose` adds, tried on the winner of the search",
        "    candidates: []",
    ]
    lines += ["# Not proposed:"]
    for name, why in proposed.left_out.items():
        lines += [f"# {line}" for line in textwrap.wrap(f"- {name}: {why}", _WIDTH - 2, subsequent_indent="  ")]
    return "\n".join(lines).replace("'on':", "on:") + "\n"


def explained(lever: Lever, proposal: Proposal) -> str:
    """Reason, published gain, cost and source in one line."""
    gain = f"published: {proposal.gain}" if proposal.gain else "no published figure"
    parts = [proposal.reason, f"{gain} ({lever.source})", proposal.cost]
    return "; ".join(part for part in parts if part)


def candidate(proposal: Proposal, variants: Mapping[str, str]) -> dict[str, Any]:
    """A candidate as a study has it."""
    changes = {
        "engine": proposal.engine,
        "model": variants.get(proposal.model or ""),
        "options": proposal.options,
        "arguments": proposal.arguments,
        "environment_variables": proposal.variables,
        "accelerators": proposal.accelerators,
    }
    return {"label": proposal.label, **{key: value for key, value in changes.items() if value}}


def in_braces(value: Mapping[str, Any]) -> str:
    """A mapping on one line of YAML."""
    return yaml.safe_dump(
        dict(value), default_flow_style=True, sort_keys=False, allow_unicode=True, width=10**6
    ).strip()
