"""All that levers propose for a situation, in the order in which it is tried, and what they leave out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from servelab.core.errors import ConfigError
from servelab.core.run_spec import ArgumentValue
from servelab.tune.levers import LEVERS, Lever, Proposal
from servelab.tune.situation import Situation

_STYLE = ("reasoning-parser", "tool-call-parser", "enable-auto-tool-choice", "chat-template", "trust-remote-code")
"""Arguments that say what a server answers, and nothing of how fast."""


@dataclass(frozen=True)
class Proposed:
    """What levers make of a situation."""

    candidates: list[tuple[Lever, Proposal]] = field(default_factory=list)
    """In the order in which they are tried."""
    left_out: dict[str, str] = field(default_factory=dict)
    """Lever or candidate → why it is not tried."""


def propose(now: Situation, most: int) -> Proposed:
    """At most so many candidates: the sure ones of all levers first. One that changes nothing is left out."""
    found = Proposed()
    wanted: list[tuple[Lever, Proposal]] = []
    for lever in sorted(LEVERS, key=lambda each: each.rank):
        answer = lever.propose(now)
        if isinstance(answer, str):
            found.left_out[lever.title] = answer
            continue
        for proposal in answer:
            if why := refused(now, proposal):
                found.left_out[proposal.label] = why
            else:
                wanted.append((lever, proposal))
    ranked = sorted(wanted, key=lambda pair: (not pair[1].is_sure, pair[0].rank))
    found.candidates.extend(pair for pair in wanted if pair in ranked[:most])
    found.left_out.update({p.label: f"beyond the {most} candidates that were asked for" for _, p in ranked[most:]})
    return found


def refused(now: Situation, proposal: Proposal) -> str | None:
    """Why a candidate cannot or need not be tried: the engine refuses it, or it is what the command does already."""
    if proposal.engine or proposal.model:
        return None
    options = {**now.options, **proposal.options}
    arguments = {**now.arguments, **proposal.arguments}
    try:
        now.engine.flags(options, arguments)
        now.engine.check_options(options, now.version)
    except ConfigError as error:
        return str(error)
    changes = {**proposal.options, **proposal.arguments}
    same = {**now.effective, **now.arguments}
    return "the command does so already" if all(same.get(name) == value for name, value in changes.items()) else None


def idle_settings(now: Situation) -> dict[str, str]:
    """Settings of the command that do nothing for its speed → why."""
    found = {name: "says how answers are written, not how fast" for name in now.arguments if name in _STYLE}
    typed = {name: value for name, value in {**now.options, **now.arguments}.items() if value is not None}
    for name, value in typed.items():
        others = {other: each for other, each in now.options.items() if other != name}
        more = {other: each for other, each in now.arguments.items() if other != name}
        if now.engine.defaults(now.version, now.board, others, more).get(name) == value:
            found[name] = f"{value} is what {now.engine.name} {now.version} does by itself here"
    if now.number("max_num_seqs") > now.users_each and "max_num_seqs" in typed and "max_num_seqs" not in found:
        found["max_num_seqs"] = f"{now.users_each} requests are in flight at a server, fewer than the limit"
    return found


def effective_differences(now: Situation, proposal: Proposal) -> Mapping[str, tuple[ArgumentValue, Any]]:
    """Setting → (as the command has it, as the candidate has it), as far as it is known."""
    changes = {**proposal.options, **proposal.arguments}
    return {name: (now.effective.get(name, now.arguments.get(name)), value) for name, value in changes.items()}
