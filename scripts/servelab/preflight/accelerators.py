"""Accelerators that a candidate is given, against its parallel sizes and against what the model can be split into."""

from __future__ import annotations

from collections.abc import Iterator

from servelab.engines.layout import Parallel
from servelab.model_facts import ModelShape
from servelab.preflight import CHECKS, Check, Finding
from servelab.preflight.place import MODEL_ACTION, Place


def look(place: Place) -> Iterator[Finding]:
    """One finding for each candidate."""
    for known in place.candidates:
        count = known.configuration.accelerators
        parallel = place.engine(known).parallel(known.configuration.options, known.configuration.arguments, count)
        shape = place.facts(known.planned.runs[0].spec.model).shape
        yield judge(known.name, count, parallel, shape)


def judge(of: str, count: int, parallel: Parallel, shape: ModelShape | None) -> Finding:
    """Sizes must take all accelerators, and heads must divide by the tensor parallel size.

    Each accelerator computes whole attention heads; KV heads are dealt out, or copied where there are fewer of them
    than accelerators. vLLM and SGLang check the same when they load a model.
    """
    saw = f"{parallel} of {count}"
    if parallel.accelerators > count:
        action = f"set `accelerators: {parallel.accelerators}`, or smaller sizes"
        return Finding(of, "error", f"{parallel} takes {parallel.accelerators} accelerators, it has {count}", action)
    if parallel.accelerators < count:
        idle = f"{parallel} takes {parallel.accelerators} of {count} accelerators, the others stand idle"
        action = f"set `accelerators: {parallel.accelerators}`, or data_parallel_size"
        return Finding(of, "warning" if count % parallel.accelerators == 0 else "error", idle, action)
    if parallel.accelerators == 1:
        return Finding(of, "ok", "1 accelerator")
    if shape is None:
        return Finding(of, "unknown", f"{saw}; the model's heads are not known here", MODEL_ACTION)
    if shape.attention_heads % parallel.tensor:
        saw = f"{shape.attention_heads} attention heads do not divide by tensor parallel size {parallel.tensor}"
        return Finding(of, "error", saw, "take a tensor_parallel_size that divides them")
    few, many = sorted((shape.kv_heads, parallel.tensor))
    if many % few:
        saw = f"{shape.kv_heads} KV heads and tensor parallel size {parallel.tensor} do not divide by one another"
        return Finding(of, "error", saw, "take another tensor_parallel_size")
    if parallel.pipeline > shape.layers:
        return Finding(of, "error", f"{shape.layers} layers, pipeline parallel size {parallel.pipeline}", "take fewer")
    return Finding(of, "ok", f"{saw}; {shape.attention_heads} attention heads, {shape.kv_heads} KV heads")


CHECKS.register(
    "accelerators", Check("accelerators", "parallel sizes against accelerators, and heads against them", look)
)
