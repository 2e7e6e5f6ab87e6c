"""All that levers propose for a situation, in the order in which it is tried, and what they leave out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from servelab.core.errors import ConfigError
from servelab.core.run_spec import ArgumentValue
from servelab.engines.options import PARALLEL_OPTIONS
from servelab.engines.start_rules import PlannedStart
from servelab.tune.levers import LEVERS, Lever, Proposal
from servelab.tune.situation import Situation

_STYLE = ("reasoning-parser", "tool-call-parser", "enable-auto-tool-choice", "chat-template", "trust-remote-code")
"""Arguments that say what a server answers, and nothing of how fast."""


@dataclass(frozen=True)
class Proposed:
    """The proposals of the levers for a situation."""

    candidates: list[tuple[Lever, Proposal]] = field(default_factory=list)
    """In the order in which they are tried."""
    left_out: dict[str, str] = field(default_factory=dict)
    """Lever or candidate → why it is not tried."""


def propose(now: Situation, most: int) -> Proposed:
    """At most so many candidates; what a lever does not propose for all engines is for one.

    The sure ones come first, then those of the command's engine, then the first of each lever.
    """
    found = Proposed()
    wanted: list[tuple[Lever, Proposal]] = []
    sides = [now, *map(now.on, now.other_engines)]
    seen = {_key(side, Proposal("", "", "")): "the command" for side in sides}
    for lever in sorted(LEVERS, key=lambda each: each.rank):
        answers = [lever.propose(side) for side in sides]
        made = [[] if isinstance(answer, str) else answer for answer in answers]
        if not any(made):
            found.left_out[lever.title] = str(answers[0])
        common = [each for each in made[0] if each.engine or all(each in answer for answer in made)]
        pairs = [(now, each) for each in common]
        for side, answer in zip(sides, made, strict=True):
            pairs += [(side, replace(each, on=side.engine.name)) for each in answer if each not in common]
        for side, own in ((side, _as_typed(side, each)) for side, each in pairs):
            if why := refused(side, own):
                found.left_out[named(own)] = why
            elif same := seen.get(key := _key(side, own)):
                found.left_out[named(own)] = f"{same} does the same"
            else:
                seen[key] = own.label
                wanted.append((lever, own))
    depths = Counter[tuple[str, str | None]]()
    keys = []
    for at, (lever, own) in enumerate(wanted):
        depths[which := (lever.name, own.on)] += 1
        keys.append((not own.is_sure, own.on not in (None, now.engine.name), depths[which], lever.rank, at))
    ranked = [wanted[key[-1]] for key in sorted(keys)]
    found.candidates.extend(pair for pair in wanted if pair in ranked[:most])
    found.left_out.update({named(p): f"beyond the {most} candidates that were asked for" for _, p in ranked[most:]})
    return found


def named(proposal: Proposal) -> str:
    """Its label, behind the engine that it is for."""
    return f"{proposal.on}: {proposal.label}" if proposal.on else proposal.label


def _as_typed(now: Situation, proposal: Proposal) -> Proposal:
    """The proposal with the names that the command has for the same settings; what an option replaces is left out."""
    names = {now.engine.names.of(each): each for each in now.arguments}
    arguments = {names.get(now.engine.names.of(name), name): value for name, value in proposal.arguments.items()}
    replaced = now.engine.refused_arguments(proposal.options, now.arguments) if proposal.options else {}
    return replace(proposal, arguments={**dict.fromkeys(replaced, False), **arguments})


def refused(now: Situation, proposal: Proposal) -> str | None:
    """Why the engine refuses a candidate; None if it does not."""
    if proposal.engine or proposal.model:
        return None
    options, arguments = {**now.options, **proposal.options}, {**now.arguments, **proposal.arguments}
    try:
        now.engine.flags(options, arguments)
        now.engine.check_options(options, now.version)
    except ConfigError as error:
        return str(error)
    after = replace(now, options=options, arguments=arguments)
    most, is_raised = after.state_limit, after.number("max_num_seqs") > now.number("max_num_seqs")
    if most is not None and (is_raised or now.state_limit is None):
        return f"the KV cache has states of about {most:,} sequences, and the engine refuses a larger limit"
    settings, sizes = after.effective, now.engine.parallel(options, arguments, 1)
    context = settings["context_length"] if isinstance(settings["context_length"], int) else None
    start = PlannedStart(settings, now.model.facts.config, now.board, sizes, context)
    return next((why for rule in now.engine.start_rules if (why := rule(start))), None)


def _key(now: Situation, proposal: Proposal) -> str:
    """Equal for candidates with one effective configuration under this load."""
    settings = {**now.effective_with(proposal.options, proposal.arguments), **now.variables, **proposal.variables}
    if isinstance(limit := settings.get("max_num_seqs"), int):
        settings["max_num_seqs"] = min(limit, now.users_at(proposal.accelerators or now.accelerators))
    return repr((now.engine.name, proposal.engine, proposal.model, sorted(settings.items(), key=lambda pair: pair[0])))


def idle_settings(now: Situation) -> dict[str, str]:
    """Settings of the command that do nothing for its speed → why."""
    found = {name: "says how answers are written, not how fast" for name in now.arguments if name in _STYLE}
    whole = now.engine.effective(now.version, now.board, now.options, now.arguments)
    typed = {name: value for name, value in {**now.options, **now.arguments}.items() if value is not None}
    for name, value in typed.items():
        others = {other: each for other, each in now.options.items() if other != name}
        more = {other: each for other, each in now.arguments.items() if other != name}
        if now.engine.effective(now.version, now.board, others, more) == whole:
            own = now.engine.defaults(now.version, now.board, others, more)
            is_default = own.get(name, 1 if name in PARALLEL_OPTIONS else None) == value
            by_itself = f"{value} is what {now.engine.name} {now.version} does by itself here"
            found[name] = by_itself if is_default else "the rest of the command leaves it without effect here"
    if now.number("max_num_seqs") > now.users_each and "max_num_seqs" in typed and "max_num_seqs" not in found:
        found["max_num_seqs"] = f"{now.users_each} requests are in flight at a server, fewer than the limit"
    return found


def effective_differences(now: Situation, proposal: Proposal) -> Mapping[str, tuple[ArgumentValue, Any]]:
    """Setting → (as the command has it, as the candidate has it), as far as it is known."""
    if proposal.engine:
        return {}
    side = now.on(proposal.on)
    before = {**side.effective, **side.variables}
    after = {**before, **side.effective_with(proposal.options, proposal.arguments), **proposal.variables}
    names = [name for name in {**before, **after} if before.get(name) != after.get(name)]
    return {name: (before.get(name), after.get(name)) for name in names}
