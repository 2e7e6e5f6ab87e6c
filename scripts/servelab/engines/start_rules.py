"""Settings with which an engine refuses to start, by plain arithmetic: known before any accelerator is reserved."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from servelab.core.credentials import leaves
from servelab.core.run_spec import ArgumentValue
from servelab.engines.accelerator_boards import AcceleratorBoard
from servelab.engines.options import Parallel, argument


@dataclass(frozen=True)
class PlannedStart:
    """A configuration as it would start."""

    settings: Mapping[str, ArgumentValue]
    """`Engine.effective`."""
    config: Mapping[str, Any]
    """The model's `config.json`."""
    board: AcceleratorBoard
    parallel: Parallel
    context: int | None
    """Tokens of the longest sequence that it accepts."""

    def number(self, name: str) -> int | None:
        """A setting that is a whole number; None if it is not known."""
        value = self.settings.get(name)
        return value if isinstance(value, int) and not isinstance(value, bool) else None


Rule = Callable[[PlannedStart], str | None]
"""The reason why the engine refuses a launch, in a sentence; None if it starts."""


def _steps_hold_a_prompt(launch: PlannedStart) -> str | None:
    tokens = launch.number("max_num_batched_tokens")
    is_chunked = launch.settings.get("chunked_prefill") is not False
    if is_chunked or not tokens or not launch.context or tokens >= launch.context:
        return None
    return (
        f"max_num_batched_tokens {tokens:,} is below the context of {launch.context:,} tokens without chunked prefill"
    )


def _steps_hold_all_sequences(launch: PlannedStart) -> str | None:
    tokens, sequences = launch.number("max_num_batched_tokens"), launch.number("max_num_seqs")
    if not tokens or not sequences or sequences <= tokens:
        return None
    return f"max_num_seqs {sequences:,} is above max_num_batched_tokens {tokens:,}"


def _quantisation_is_the_weights(launch: PlannedStart) -> str | None:
    asked = str(launch.settings.get("quantization") or "").removesuffix("_marlin")
    stored = (launch.config.get("quantization_config") or {}).get("quant_method")
    if not asked or not stored or asked == stored or {asked, stored} <= {"fp8", "fbgemm_fp8", "modelopt"}:
        return None
    return f"quantization `{asked}` of weights that are stored as `{stored}`"


def _attention_has_fp8(launch: PlannedStart) -> str | None:
    is_fp8 = str(launch.settings.get("kv_cache_dtype")).startswith("fp8")
    capability = launch.board.capability
    if not is_fp8 or launch.settings.get("attention_backend") != "FLASH_ATTN" or capability is None or capability >= 9:
        return None
    return f"an FP8 KV cache with FLASH_ATTN needs compute capability 9.0, {launch.board.name} has {capability}"


def blocks_are_whole(launch: PlannedStart) -> str | None:
    """As the FP8 layers of vLLM and SGLang ask of tensor parallelism."""
    text = launch.config.get("text_config", launch.config)
    block = (launch.config.get("quantization_config") or {}).get("weight_block_size")
    experts = () if launch.settings.get("expert_parallel") else ("moe_intermediate_size",)
    name = next((name for name in (*experts, "intermediate_size") if text.get(name)), None)
    if not block or name is None or launch.parallel.tensor == 1:
        return None
    each = text[name] / launch.parallel.tensor
    if each % block[0] == 0:
        return None
    return f"{name} {text[name]} / tensor_parallel_size {launch.parallel.tensor} = {each:g}, in blocks of {block[0]}"


VLLM_RULES: tuple[Rule, ...] = (
    _steps_hold_a_prompt,
    _steps_hold_all_sequences,
    _quantisation_is_the_weights,
    _attention_has_fp8,
    blocks_are_whole,
)
"""vLLM's, from config/scheduler.py, config/model.py, v1/attention and the FP8 layers of 0.11.0 to 0.33.0."""

_OVERRIDES = ("hf-overrides", "json-model-override-args", "rope-scaling")
_ALLOWED = ("VLLM_ALLOW_LONG_MAX_MODEL_LEN", "SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN")


def own_positions(arguments: Mapping[str, ArgumentValue], variables: Mapping[str, str], own: int | None) -> int | None:
    """The longest sequence in tokens that a model takes after overrides such as YaRN; `own` without any.

    None if it is not known, or a variable allows any length.
    """
    if any(variables.get(name, "0").lower() in ("1", "true") for name in _ALLOWED):
        return None
    found = dict(_overridden(arguments))
    if isinstance(positions := found.get("max_position_embeddings"), int):
        own = positions
    factor, first = found.get("factor"), found.get("original_max_position_embeddings", own)
    return max(own or 0, int(factor * first)) if isinstance(factor, int | float) and first else own


_SECOND_MODELS = re.compile(
    r"(speculative-config|extra-llm-api-options\.speculative-config)(\..*model.*)?|(spec-)?draft-model"
    r"|speculative-draft-model(-path)?|lora-(modules|paths?)"
)
"""Arguments that name a draft or a LoRA adapter; `_` counts as `-`."""
_HUB_ID = re.compile(r"(?:[\w.-]+=)?([A-Za-z0-9][\w.-]*/[\w.-]+)")
_NAMES = re.compile(r"(?!base).*(model|path).*")
"""Keys of a JSON value that name a second model; `base_model_name` of an adapter is the model itself."""


def second_models(arguments: Mapping[str, ArgumentValue]) -> Iterator[tuple[str, str, str | None]]:
    """(argument, model, revision if given) for each draft or adapter, a folder or a repository of the hub."""
    for name, value in arguments.items():
        if not _SECOND_MODELS.fullmatch(name.lstrip("-").replace("_", "-")):
            continue
        named = [str(value)]
        given: object = argument(arguments, "speculative-draft-model-revision")
        with suppress(ValueError):
            found = [(key, each) for _, key, each in leaves(json.loads(str(value)))]
            named, given = [str(each) for key, each in found if _NAMES.fullmatch(key)], dict(found).get("revision")
        yield from ((name, each, str(given) if given else None) for each in named)


def hub_models(arguments: Mapping[str, ArgumentValue]) -> Iterator[tuple[str, str, str | None]]:
    """The same for those that are named by their repository on the hub."""
    for name, model, revision in second_models(arguments):
        if repository := _HUB_ID.fullmatch(model):
            yield name, repository[1], revision


def with_folders(arguments: Mapping[str, ArgumentValue], folders: Mapping[str, Path]) -> dict[str, ArgumentValue]:
    """Arguments with a folder in place of each second model's repository."""
    found = dict(arguments)
    for name, repository, _ in hub_models(arguments):
        if repository in folders:
            whole = rf"(?<![\w./-]){re.escape(repository)}(?![\w./-])"
            found[name] = re.sub(whole, str(folders[repository]), str(found[name]))
    return found


def _overridden(arguments: Mapping[str, ArgumentValue]) -> Iterator[tuple[str, Any]]:
    """Each key of the model's configuration that arguments override, without those that it is inside of."""
    for name, value in arguments.items():
        first, *inside = name.lstrip("-").replace("_", "-").split(".")
        if first not in _OVERRIDES:
            continue
        if inside:
            yield name.rpartition(".")[2].replace("-", "_"), value
            continue
        with suppress(ValueError):
            yield from ((key, each) for _, key, each in leaves(json.loads(str(argument(arguments, name)))))
