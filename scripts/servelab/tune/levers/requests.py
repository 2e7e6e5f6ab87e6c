"""Settings that the kind of requests decides: drafts, prefixes, streams, images."""

from __future__ import annotations

from collections.abc import Sequence

from servelab.tune.levers import Proposal, lever
from servelab.tune.situation import Situation

_FEW, _SOME = 8, 64
"""In flight at a server: so few that a tree of drafts pays, and so many that long drafts no longer do."""
_TREE = (4, 4)
"""Steps and branches of a tree: the best of nine on Qwen3-8B (GPUStack)."""


@lever("speculation", 8, "Drafts", "GPUStack's pages; Red Hat, April 2026")
def drafts(now: Situation) -> Sequence[Proposal] | str:
    """The model's own draft, or a known second model, in as many tokens as the load suggests."""
    if now.load.is_random:
        return "prompts of random tokens cannot be guessed"
    method, model = now.model.draft.get("method"), now.model.draft.get("model")
    if not (method or model) or not now.engine.draft(method, model, 1, 1):
        return "no draft of this model is known here for this engine"
    drafter = f"{model} was made for this model" if model else f"the weights have {method} layers"
    reason = f"{drafter}, and {now.users_each} are in flight at a server"
    gain = "+10 to +49 % with few in flight, -67 to +56 % at full load"
    is_few, found = now.users_each <= _FEW, []
    trees = [_TREE] if is_few and not str(method).endswith("mtp") else []
    ahead = (3, 5, 1) if is_few else (3, 1, 2) if now.users_each <= _SOME else (1, 2)
    for steps, branches in [*trees, *((each, 1) for each in ahead)]:
        if settings := now.engine.draft(method, model, steps, branches):
            label = f"{method or 'draft'}, {steps} ahead" + f", {branches} branches" * (branches > 1)
            found.append(Proposal(label, reason, gain, options=settings[0], arguments=settings[1]))
    return found


@lever("prefixes", 15, "Prefix cache", "three tries on GPUStack's pages")
def prefixes(now: Situation) -> Sequence[Proposal] | str:
    """No prefix cache where prompts share nothing; one where they do."""
    value, may_gain = now.effective.get("prefix_caching"), now.load.shares_prefixes or not now.load.is_random
    is_off = value is None and "prefix_caching" in now.engine.options  # MindIE's, which crashed with experts (GPUStack)
    if (now.load.shares_prefixes and value is False) or (may_gain and is_off and now.model.arch == "dense"):
        reason, is_sure = "prompts may begin alike, and there is no prefix cache", now.load.shares_prefixes
        return [Proposal("prefix cache", reason, "about +4 %", options={"prefix_caching": True}, is_sure=is_sure)]
    if may_gain:
        return "prompts may share their beginnings"
    if value is not True:
        return "it is off, or the engine has none"
    reason = "no two prompts begin alike"
    return [Proposal("no prefix cache", reason, "-3 to +4 %", options={"prefix_caching": False})]


@lever("stream", 17, "Events of a stream", "vLLM's issue 27869; recipes for gpt-oss")
def stream(now: Situation) -> Sequence[Proposal] | str:
    """Fewer, larger parts of each answer."""
    if now.users_each < 256:
        return f"{now.users_each} answers are streamed at once; the host keeps up"
    if not now.has("stream-interval"):
        return "the engine has no such setting"
    reason, cost = f"{now.users_each} answers are streamed at once", "tokens come in bursts of ten"
    return [Proposal("ten tokens an event", reason, "", cost, arguments={"stream-interval": 10})]


@lever("text-only", 10, "Text only", "vLLM 0.33.0")
def text_only(now: Situation) -> Sequence[Proposal] | str:
    """No vision part for a load of text."""
    switch = now.engine.traits.text_only
    if not now.model.is_multimodal or not switch:
        return "the model is for text only, or the engine has no such setting"
    reason = "the load is text, and the vision part takes memory"
    return [Proposal("text only", reason, "", "no images", arguments={switch: True})]


@lever("host", 18, "The host", "docs/evidence.md; vLLM-Ascend's guide to tuning")
def host(now: Situation) -> Sequence[Proposal] | str:
    """Threads that stay on their CPUs, and how work gets to accelerators."""
    settings = now.engine.traits.host_settings.items()
    found = [Proposal(label, "the guide sets it", "", variables={name: value}) for label, (name, value) in settings]
    if now.board.is_cpu and not now.engine.traits.binds_threads:
        reason = "Linux puts threads on one CPU when another is busy for a moment"
        found.append(Proposal("bound threads", reason, "", variables={"OMP_PROC_BIND": "true"}))
    return found or "no variable of the host is known to help this engine here"
