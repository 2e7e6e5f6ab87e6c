"""Engine, layout of a node, and experts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from servelab.engines.options import Parallel
from servelab.tune.levers import Proposal, lever
from servelab.tune.situation import Situation

_OTHER_SPLITS = ("expert_parallel", "data_parallel_size", "pipeline_parallel_size")


@lever("engine", 1, "Another engine", "GPUStack, 25 tuning pages")
def other_engines(now: Situation) -> Sequence[Proposal] | str:
    """Each engine that was asked for, at its own defaults."""
    if not now.other_engines:
        return "no other engine was asked for (--engines, --all-engines)"
    reason = "14 of 25 published tunings were won by another engine than the first"
    found = []
    for name in now.other_engines:
        own = now.on(name).options
        changed = {each: own.get(each) for each in {**now.options, **own} if own.get(each) != now.options.get(each)}
        label, gain = f"{name} at its defaults", "×0.4 to ×1.9"
        found.append(Proposal(label, reason, gain, engine=name, options=changed, is_sure=True))
    return found


@lever("layout", 3, "Accelerators for each server", "three pages of GPUStack")
def tensor_parallel(now: Situation) -> Sequence[Proposal] | str:
    """Every other tensor parallel size that fits, judged by accelerator."""
    if now.per_node == 1:
        return "the node has one accelerator"
    heads = now.model.facts.shape.attention_heads if now.model.facts.shape else None
    split = {name: None for name in _OTHER_SPLITS if now.options.get(name)}
    copies = {name: False for name in ("enable-dp-attention", "attn-dp-size") if now.arguments.get(name)}
    found = []
    for tensor in (1, 2, 4, 8):
        each = Parallel(tensor)
        fits = (heads is None or heads % tensor == 0) and now.fits(each, now.least_weights_gib) is not False
        if tensor > now.per_node or (tensor == now.accelerators and not split and not copies) or not fits:
            continue
        servers, tight = now.per_node // tensor, now.fits(each) is False
        shorter = now.shortened(each, now.least_weights_gib if tight else None)
        effect = "fewer exchanges between accelerators"
        if tensor == now.accelerators:
            effect = "each layer is shared, experts and attention alike"
        elif tensor > now.accelerators:
            effect = "more KV cache each"
            split.pop("expert_parallel", None)  # experts would be split more finely
        costs = ["fits only with smaller weights"] * tight + ["its context is shorter than the model's"] * bool(shorter)
        costs += ["several servers need a balancer"] * (servers > 1)
        reason = f"{servers} server{'s' * (servers > 1)} a node, each on {tensor}: {effect}"
        proposal = Proposal(f"TP{tensor}", reason, "-21 to +80 % a node", "; ".join(costs), accelerators=tensor)
        options, arguments = {"tensor_parallel_size": tensor, **split}, {**copies, **shorter}
        found.append(replace(proposal, options=options, arguments=arguments, is_sure=tensor != now.accelerators))
    return found or "no other size fits"


@lever("experts", 4, "Experts", "DeepSeek-V3.2 and GLM on H200, GPUStack")
def whole_experts(now: Situation) -> Sequence[Proposal] | str:
    """Expert parallel with the command's layout, and with attention copied on each accelerator."""
    if now.model.arch != "moe":
        return "the model has no experts, or it is not known here"
    if now.per_node == 1:
        return "one accelerator has all experts"
    found = []
    count = now.accelerators
    if count > 1 and not now.effective.get("expert_parallel"):
        reason = "each accelerator has whole experts, which tensor parallel may split too finely"
        found.append(Proposal("expert parallel", reason, "-7 to +4 %", options={"expert_parallel": True}))
    spread, shape = Parallel(data=now.per_node), now.model.facts.shape
    is_latent = bool(shape and shape.is_latent)
    size, copies = count if count > 1 else now.per_node, now.engine.traits.copies_attention
    if copies and now.number(copies) < size:
        wide = {"tensor_parallel_size": size} if size != count else {}
        reason = f"the KV cache is not copied on {size} accelerators"
        if shape and shape.kv_heads % size == 0:
            reason = f"each of {size} accelerators computes the attention of its own requests"
        for share in ({}, {"memory_share": 0.85}):
            label = f"attention DP{size}" + (", memory share 0.85" if share else "")
            proposal = Proposal(label, reason, "-9 to +144 %", options={**wide, **share}, arguments={copies: size})
            found.append(replace(proposal, accelerators=wide.get("tensor_parallel_size"), is_sure=is_latent))
    elif not copies and now.number("data_parallel_size") == 1 and now.fits(spread) is not False:
        reason = f"experts spread over {now.per_node}, attention and its KV cache whole on each"
        cost = "the weights of attention on each accelerator; the context may have to be shorter"
        proposal = Proposal(f"DP{now.per_node} with experts", reason, "-9 to +144 %", cost, is_sure=is_latent)
        options = {"tensor_parallel_size": 1, "data_parallel_size": now.per_node, "expert_parallel": True}
        arguments = now.shortened(spread)
        found.append(replace(proposal, options=options, arguments=arguments, accelerators=now.per_node))
    return found or "the command does so already"


@lever("moe-kernels", 16, "Kernels of experts", "vllm's oracle/fp8.py, 0.33.0; GLM-5.2 on H200, GPUStack")
def expert_kernels(now: Situation) -> Sequence[Proposal] | str:
    """DeepGEMM for FP8 experts on Hopper; DeepEP where attention is copied."""
    shape, exchange = now.model.facts.shape, "moe-a2a-backend"
    is_spread = now.model.arch == "moe" and now.accelerators > 1 and (now.board.capability or 0) >= 9
    if is_spread and (shape is None or shape.is_latent) and now.has(exchange):
        reason, cost = "its kernels exchange the tokens of experts, of 256 sequences at most", "the image must have it"
        seats = {} if now.number("max_num_seqs") else {"max_num_seqs": 256}
        return [Proposal("DeepEP", reason, "+5 %", cost, options=seats, arguments={exchange: "deepep"})]
    if now.model.arch != "moe" or now.model.format != "fp8" or not now.has("moe-backend"):
        return "the model has no FP8 experts, or the engine chooses by itself"
    if now.board.capability != 9.0:
        return "this is for Hopper"
    reason = "vLLM takes Triton first for FP8 blocks with tensor parallel on Hopper"
    return [Proposal("DeepGEMM", reason, "-6 to +3 %", arguments={"moe-backend": "deep_gemm"})]
