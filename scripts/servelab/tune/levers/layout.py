"""The layout of a node: larger servers, or more of them."""

from __future__ import annotations

from collections.abc import Sequence

from servelab.tune.levers import LEVERS, Lever, Proposal
from servelab.tune.situation import Situation


def propose(now: Situation) -> Sequence[Proposal] | str:
    """Every other tensor parallel size that fits, judged by accelerator."""
    if now.per_node == 1:
        return "the node has one accelerator"
    if now.accelerators != now.number("tensor_parallel_size"):
        return "the command uses another layout than tensor parallel; write its alternatives by hand"
    heads = now.model.facts.shape.attention_heads if now.model.facts.shape else None
    found = []
    for tensor in (1, 2, 4, 8):
        fits = (heads is None or heads % tensor == 0) and now.fits(tensor, now.least_weights_gib) is not False
        if tensor > now.per_node or tensor == now.accelerators or not fits:
            continue
        servers = now.per_node // tensor
        found.append(
            Proposal(
                f"TP{tensor}",
                f"{servers} server{'s' * (servers > 1)} a node, each on {tensor}: "
                + ("fewer exchanges between accelerators" if tensor < now.accelerators else "more KV cache each"),
                "-21 to +80 % a node",
                "; ".join(
                    ["fits only with smaller weights"] * (now.fits(tensor) is False)
                    + ["several servers need a balancer"] * (servers > 1)
                ),
                options={"tensor_parallel_size": tensor},
                accelerators=tensor,
                is_sure=True,
            )
        )
    return found or "no other size fits"


LEVERS.register("layout", Lever("layout", 3, "Accelerators for each server", propose, "three pages of GPUStack"))
