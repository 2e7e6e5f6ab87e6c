"""Settings of the command that hold the engine back, given back to the engine."""

from __future__ import annotations

from collections.abc import Sequence

from servelab.tune.levers import LEVERS, Lever, Proposal
from servelab.tune.situation import Situation

_LIMITS = ("max_num_batched_tokens", "memory_share")
"""Settings that slow a server if they are low."""
_SWITCHES = {"enforce_eager": True, "chunked_prefill": False, "async-scheduling": False}
"""Settings whose value is the slower one, as a rule."""


def propose(now: Situation) -> Sequence[Proposal] | str:
    """Each setting that is slower than what the engine would do by itself."""
    own = now.engine.defaults(now.version, now.board, {}, {})
    found = []
    for name, default in own.items():
        value = now.effective.get(name)
        is_lower = name in _LIMITS and isinstance(value, (int, float)) and value < default  # type: ignore[operator]
        if value == default or not (is_lower or (name in _SWITCHES and value == _SWITCHES[name])):
            continue
        given = next((each for each in now.arguments if now.engine.names.of(each) == name), None)
        reason = f"the command sets {value}, the engine itself {default} on this board"
        label = f"{name.replace('_', ' ').replace('-', ' ')} {default}".lower()
        undone = {given: False} if given else {}
        options = {} if given else {name: None}
        found.append(Proposal(label, reason, "", options=options, arguments=undone, is_sure=True))
    return found or "no setting of the command is known to hold the engine back"


LEVERS.register(
    "undo", Lever("undo", 8, "The engine's own settings", propose, "effective defaults, read from the release")
)
