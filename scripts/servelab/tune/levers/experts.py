"""Whole experts on each accelerator of a mixture of experts."""

from __future__ import annotations

from collections.abc import Sequence

from servelab.tune.levers import LEVERS, Lever, Proposal
from servelab.tune.situation import Situation

_ATTENTION_DP = {"sglang": "attn-dp-size"}


def propose(now: Situation) -> Sequence[Proposal] | str:
    """Expert parallel with the command's layout, and with attention copied on each accelerator."""
    if now.model.arch != "moe":
        return "the model has no experts, or it is not known here"
    if now.per_node == 1:
        return "one accelerator has all experts"
    found = []
    if now.accelerators > 1 and not now.effective.get("expert_parallel"):
        reason = "each accelerator has whole experts, which tensor parallel may split too finely"
        found.append(Proposal("expert parallel", reason, "-7 to +4 %", options={"expert_parallel": True}))
    attention = _ATTENTION_DP.get(now.engine.name)
    if attention and now.accelerators > 1:
        count = now.accelerators
        for share in (None, 0.85):
            options = {"memory_share": share} if share else {}
            label = f"attention DP{count}" + (f", memory share {share}" if share else "")
            reason = f"the KV cache is not copied on {count} accelerators"
            found.append(Proposal(label, reason, "-9 to +144 %", options=options, arguments={attention: count}))
    elif now.number("data_parallel_size") == 1 and "data_parallel_size" in now.engine.options and now.per_node > 1:
        layout = {"tensor_parallel_size": 1, "data_parallel_size": now.per_node, "expert_parallel": True}
        reason = f"experts spread over {now.per_node}, attention and its KV cache whole on each"
        cost = "the weights of attention on each accelerator; the context may have to be shorter"
        found.append(
            Proposal(
                f"DP{now.per_node} with experts",
                reason,
                "-9 to +144 %",
                cost,
                options=layout,
                accelerators=now.per_node,
            )
        )
    return found or "the command does so already"


LEVERS.register("experts", Lever("experts", 4, "Experts", propose, "DeepSeek-V3.2 and GLM on H200, GPUStack"))
