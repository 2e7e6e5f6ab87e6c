"""Checks each candidate's accelerators against its parallel sizes and against how the model can be split."""

from __future__ import annotations

from collections.abc import Iterator

from servelab.assets.model_work import ModelShape
from servelab.engines.options import Parallel
from servelab.search.preflight import CHECKS, Check, Finding
from servelab.search.preflight.place import MODEL_ACTION, Place


def look(place: Place) -> Iterator[Finding]:
    """One finding per candidate."""
    for known in place.candidates:
        count = known.configuration.accelerators
        parallel = place.engine(known).parallel(known.configuration.options, known.configuration.arguments, count)
        shape = place.facts(known.planned.runs[0].spec.model).shape
        yield judge(known.name, count, parallel, shape)


def judge(of: str, count: int, parallel: Parallel, shape: ModelShape | None) -> Finding:
    """Parallel sizes must use all accelerators, and heads must be divisible by the tensor parallel size.

    Each accelerator computes whole attention heads. KV heads are distributed, or copied if there are fewer of them than
    accelerators. vLLM and SGLang check the same when they load a model.
    """
    saw = f"{parallel} of {count}"
    if parallel.accelerators > count:
        action = f"set `accelerators: {parallel.accelerators}`, or smaller sizes"
        return Finding(of, "error", f"{parallel} needs {parallel.accelerators} accelerators, it has {count}", action)
    if parallel.accelerators < count:
        idle = f"{parallel} uses {parallel.accelerators} of {count} accelerators, the others are idle"
        action = f"set `accelerators: {parallel.accelerators}`, or data_parallel_size"
        return Finding(of, "warning" if count % parallel.accelerators == 0 else "error", idle, action)
    if parallel.accelerators == 1:
        return Finding(of, "ok", "1 accelerator")
    if shape is None:
        return Finding(of, "unknown", f"{saw}; the model's heads are not known here", MODEL_ACTION)
    if shape.attention_heads % parallel.tensor:
        saw = f"{shape.attention_heads} attention heads are not divisible by tensor parallel size {parallel.tensor}"
        return Finding(of, "error", saw, "use a tensor_parallel_size that divides them")
    few, many = sorted((shape.kv_heads, parallel.tensor))
    if many % few:
        saw = f"neither of {shape.kv_heads} KV heads and tensor parallel size {parallel.tensor} divides the other"
        return Finding(of, "error", saw, "use another tensor_parallel_size")
    if parallel.pipeline > shape.layers:
        saw = f"{shape.layers} layers, pipeline parallel size {parallel.pipeline}"
        return Finding(of, "error", saw, "use a smaller pipeline_parallel_size")
    return Finding(of, "ok", f"{saw}; {shape.attention_heads} attention heads, {shape.kv_heads} KV heads")


CHECKS.register(
    "accelerators", Check("accelerators", "parallel sizes against accelerators and the model's heads", look)
)
