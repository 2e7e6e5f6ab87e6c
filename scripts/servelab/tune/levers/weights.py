"""Weights in a number format that the board computes faster, or that leaves more memory for the KV cache."""

from __future__ import annotations

from collections.abc import Sequence

from servelab.tune.levers import LEVERS, Lever, Proposal
from servelab.tune.situation import Situation

_AT_START = {"vllm": {"quantization": "fp8"}, "sglang": {"quantization": "fp8"}}
"""What makes FP8 weights when the server starts."""
_GAIN = {"fp8": "+3 to +51 %", "nvfp4": "", "int8": "about +7 %", "int4": "-27 to +46 %"}


def propose(now: Situation) -> Sequence[Proposal] | str:
    """Published weights of the model, and the engine's own FP8 where there are none."""
    if now.board.capability is None:
        return "no number format is known to be faster on this board"
    if now.model.format != "bf16":
        return f"the weights are {now.model.format} already"
    formats = ["int8"]
    if now.board.has_fp8:
        formats = ["fp8", "int4"] if not now.board.has_fp4 else ["nvfp4", "fp8"]
    found = [_published(now, each) for each in formats if each in now.model.others]
    made = _AT_START.get(now.engine.name)
    if now.board.has_fp8 and "fp8" not in now.model.others and made:
        found.insert(
            0,
            Proposal(
                "FP8 weights, made at the start",
                "the board multiplies FP8 numbers; no FP8 weights of this model are known here",
                _GAIN["fp8"],
                "answers may change: they are asked",
                arguments=made,
                is_sure=True,
            ),
        )
    return found or "no such weights of this model are known here"


def _published(now: Situation, number_format: str) -> Proposal:
    weights = now.model.weights_in(number_format)
    size = f" ({weights:.0f} GiB)" if weights else ""
    return Proposal(
        f"{number_format.upper()} weights",
        f"{now.model.others[number_format]}{size}: less to read for each token, and more memory for the KV cache",
        _GAIN[number_format],
        "answers may change: they are asked",
        model=now.model.others[number_format],
        is_sure=number_format == "fp8",
    )


LEVERS.register("weights", Lever("weights", 2, "Weights", propose, "GPUStack's pages on H100, H200, 4090 and A100"))
