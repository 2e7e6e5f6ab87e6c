"""The host's part: parts of answers, and what a text needs of a multimodal model."""

from __future__ import annotations

from collections.abc import Sequence

from servelab.tune.levers import LEVERS, Lever, Proposal
from servelab.tune.situation import Situation

_STREAM = {"vllm": "stream-interval", "sglang": "stream-interval"}
_TEXT = {"vllm": "language-model-only"}


def stream(now: Situation) -> Sequence[Proposal] | str:
    """Fewer, larger parts of each answer."""
    if now.users_each < 256:
        return f"{now.users_each} answers are streamed at once; the host keeps up"
    flag = _STREAM.get(now.engine.name)
    if flag is None:
        return "the engine has no such setting"
    reason = f"{now.users_each} answers are streamed at once"
    cost = "tokens come in bursts of ten"
    return [Proposal("ten tokens an event", reason, "", cost, arguments={flag: 10})]


def text_only(now: Situation) -> Sequence[Proposal] | str:
    """No vision part for a load of text."""
    flag = _TEXT.get(now.engine.name)
    if not now.model.is_multimodal or flag is None:
        return "the model is for text only, or the engine has no such setting"
    reason = "the load is text, and the vision part takes memory"
    return [Proposal("text only", reason, "", "no images", arguments={flag: True})]


LEVERS.register("stream", Lever("stream", 17, "Events of a stream", stream, "vLLM's issue 27869; recipes for gpt-oss"))
LEVERS.register("text-only", Lever("text-only", 10, "Text only", text_only, "vLLM 0.33.0"))
