"""Tokens drafted ahead."""

from __future__ import annotations

import json
from collections.abc import Sequence

from servelab.tune.levers import LEVERS, Lever, Proposal
from servelab.tune.situation import Situation

_FLAGS = {"vllm": "speculative-config"}


def propose(now: Situation) -> Sequence[Proposal] | str:
    """The model's own draft, in as many tokens as the load suggests."""
    if now.load.is_random:
        return "prompts of random tokens cannot be guessed"
    method = now.model.draft.get("method")
    flag = _FLAGS.get(now.engine.name)
    if flag is None or not method:
        return "no draft of this model is known here for this engine"
    if "model" in now.model.draft:
        return f"{now.model.draft['model']}: a second model is not fetched by a study yet; name its path by hand"
    counts = [3, 1] if now.users_each <= 64 else [1]
    gain = "+10 to +49 % with few in flight, -67 to +56 % at full load"
    return [
        Proposal(
            f"{method}, {tokens} ahead",
            f"the weights have {method} layers, and {now.users_each} are in flight at a server",
            gain,
            arguments={flag: json.dumps({"method": method, "num_speculative_tokens": tokens}, separators=(",", ":"))},
        )
        for tokens in counts
    ]


LEVERS.register("speculation", Lever("speculation", 8, "Drafts", propose, "GPUStack's pages; Red Hat, April 2026"))
