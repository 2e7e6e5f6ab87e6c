"""How engines divide an accelerator's memory: weights, working memory, and what is left for the KV cache."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil

from packaging.specifiers import SpecifierSet
from packaging.version import Version

from servelab.assets.model_shape import ModelShape
from servelab.core.run_spec import ArgumentValue
from servelab.engines.accelerator_boards import GIB, AcceleratorBoard
from servelab.engines.adapters import Engine
from servelab.engines.options import Parallel

_SHARE, _STATIC_SHARE = 0.9, 0.83
"""Share of an accelerator's memory that an engine uses if neither study nor release is known to set it: for all, or for
weights and KV cache alone."""
UNKNOWN = ModelShape(0, 1, 1, 0, None, 0, hidden=4096, widest=14336, vocabulary=128256)
"""In place of a shape that is not known, for what a step takes."""
_BYTES = {
    **dict.fromkeys(("auto", "bfloat16", "bf16", "float16", "f16"), 2.0),
    **{"f32": 4.0, "q8_0": 34 / 32, "q5_1": 24 / 32, "q5_0": 22 / 32, "q4_1": 20 / 32},
    **dict.fromkeys(("q4_0", "iq4_nl"), 18 / 32),
}
"""Bytes per value by number format; ggml's formats are blocks of 32 values with their scales."""
_LATENT_FP8 = 656.0
"""Bytes of a token in a layer in vLLM's `fp8_ds_mla`: 512 FP8 values, their scales, and the rotary part in 16 bits."""
_SORTED, _UNSORTED = 38.0, 14.0
"""Bytes per value of the vocabulary while tokens are drawn: the logits in 16 and 32 bits (2 + 4), with probabilities
and noise (4 + 4), or sorted with their places (4 + 8), for which PyTorch keeps both twice and the places once more."""
_MLP, _HIDDEN = 2.5, 4.0
"""Copies of the widest layer's values, and of the hidden ones, that a step holds at once."""
_IMAGE_TOKENS = 16_384
"""Of the largest image of Qwen's families; vLLM tries it when it starts, and keeps what the encoder makes of it."""
_RUNTIME, _EXCHANGE, _SWITCHED, _GRAPHS, _DRIVER = 0.3, 0.5, 1.8, 0.6, 0.7
"""GiB that kernels' workspaces, the exchange between accelerators (with a switch that sums: vLLM's pull request 10511),
captured graphs and the driver take."""


@dataclass(frozen=True)
class Division:
    """The settings by which an engine divides the memory of each accelerator."""

    parallel: Parallel
    share: float
    """Share of the memory that it uses."""
    batched_tokens: int
    """Most tokens of a step."""
    sequences: int
    """Most sequences of a step."""
    has_graphs: bool
    """Whether graphs are captured, and counted inside the share."""
    works_inside: bool = True
    """Whether the working memory is inside the share, as in vLLM; SGLang keeps it outside, and what the driver has."""
    number_bytes: float = 2.0
    """Bytes per value in the KV cache."""
    image_tokens: int = _IMAGE_TOKENS
    """Most tokens that the encoder makes at once; vLLM 0.11 took 153,600 for a video of Qwen3-VL."""
    sorts: bool = True
    """Whether all logits are sorted to draw tokens."""
    has_switch: bool = False
    """`AcceleratorBoard.has_switch`."""
    states: int = 1
    """Of linear attention that a sequence keeps in each such layer."""
    state_pool: float = 0.0
    """Size of a pool of its own for them, as a multiple of the KV cache's: SGLang's; 0 if it holds `sequences`."""
    draft: ModelShape | None = None
    """The second model that guesses tokens, which keeps them too."""
    runtime_gib: float = _RUNTIME
    """GiB of kernels' workspaces; with the driver's, which vLLM before 0.9.2 counted too, 1.8 on an H100."""

    def state_limit(self, shape: ModelShape, room_bytes: float) -> int | None:
        """Sequences at most: a vLLM that counts graphs refuses more than have a block for a state; None if all do."""
        if not shape.state_bytes or not self.has_graphs:
            return None
        group = min(shape.full_layers, shape.state_layers) or 1
        groups = -(-shape.full_layers // group) - (-shape.state_layers // group)
        most = int(room_bytes * groups / kv_bytes_each(shape, 1, self.number_bytes, self.parallel))
        return max(0, most) if most < self.sequences else None


def division_of(
    engine: Engine, version: str, board: AcceleratorBoard, effective: Mapping[str, ArgumentValue], parallel: Parallel
) -> Division | None:
    """The division by `Engine.effective` settings; None for a KV-cache format of unknown size."""
    dtype, share = effective.get("kv_cache_dtype"), effective.get("memory_share")
    number_bytes = kv_number_bytes(dtype if isinstance(dtype, str) else None)
    if number_bytes is None:
        return None
    tokens, sequences = (effective.get(f"max_num_{each}") for each in ("batched_tokens", "seqs"))
    release, drafted = Version(version), effective.get("speculative_tokens")
    pool, since = effective.get("mamba-full-memory-ratio"), engine.graphs_inside_since
    if isinstance(sequences, int) and not effective.get("prefix_caching"):
        pool = 0.0
    counts_graphs = since is not None and release >= Version(since)
    context, is_amd = effective.get("context_length"), board.name.startswith("AMD")
    is_short = isinstance(context, int) and context <= 8192
    is_cut = is_amd and effective.get("attention_backend", "aiter") == "aiter" and not is_short
    part = engine.aiter_share if is_cut else 1.0
    states = 2 if counts_graphs and effective.get("prefix_caching") else 1  # such a vLLM keeps the last block's too
    return Division(
        parallel=parallel,
        share=part * (share if isinstance(share, float) else _SHARE if engine.works_inside_share else _STATIC_SHARE),
        batched_tokens=tokens if isinstance(tokens, int) else 2048,
        sequences=sequences if isinstance(sequences, int) else 256,
        has_graphs=counts_graphs and not effective.get("enforce_eager"),
        works_inside=engine.works_inside_share,
        number_bytes=number_bytes,
        image_tokens=0 if effective.get("language-model-only") else _IMAGE_TOKENS,
        sorts=SpecifierSet(engine.sorting_releases).contains(version, prereleases=True),
        has_switch=board.has_switch and not Version("0.11") <= release < Version("0.17"),  # vLLM's exchange
        states=states + (drafted if isinstance(drafted, int) else 0),
        state_pool=pool if isinstance(pool, int | float) else 0.0,
    )


def kv_number_bytes(kv_cache_dtype: str | None) -> float | None:
    """Bytes per value in the KV cache; 2 if no format is set, None for an unknown format."""
    name = (kv_cache_dtype or "auto").lower()
    return 1.0 if name.startswith(("fp8", "int8")) else _BYTES.get(name)


def weights_bytes_each(weights_bytes: float, parallel: Parallel, shape: ModelShape) -> float:
    """Bytes of weights on each accelerator; data-parallel copies share the experts, and each holds everything else."""
    split = parallel.tensor * parallel.pipeline
    copied = 2 * shape.copied_values * (1 - 1 / parallel.tensor) / parallel.pipeline
    return copied + weights_bytes * (1 - shape.expert_share + shape.expert_share / parallel.data) / split


def kv_bytes_each(
    shape: ModelShape, tokens: int, number_bytes: float, parallel: Parallel, batched_tokens: int = 1, states: int = 1
) -> float:
    """Bytes of KV cache for one sequence of `tokens` tokens, on each accelerator that computes it.

    Layers × KV heads × values × bytes for each token (Kwon et al., SOSP 2023, section 3). A layer with a window keeps
    at most that, with the tokens of a step in place of its last one. Layers with and without one share blocks in equal
    groups, so the last group may have layers that do not exist; a state takes a block, which holds more tokens then.
    Tensor parallelism spreads the KV heads, at least one each; pipeline parallelism spreads the layers.
    """
    heads = -(-shape.kv_heads // parallel.tensor)
    each = heads * shape.values_per_kv_head * number_bytes
    if shape.is_latent and number_bytes == 1:
        each = _LATENT_FP8
    each += shape.index_bytes
    full_each = each
    if shape.full_values_per_kv_head:
        full_each = -(-shape.full_kv_heads // parallel.tensor) * shape.full_values_per_kv_head * number_bytes
    full, others = shape.full_layers, shape.window_layers or shape.state_layers
    group = min(full, others) or 1
    if states and shape.state_bytes:
        block = 16 * ceil(shape.state_bytes / shape.state_layers / parallel.tensor / each / 16)
        tokens = -(-tokens // block) * block
        kept = each * states * block
    else:
        kept = each * min(tokens, shape.window_tokens - 1 + batched_tokens) * bool(shape.window_layers)
    whole = -(-full // group) * group * tokens * full_each
    return (whole + -(-others // group) * group * kept) / parallel.pipeline


def sequence_bytes(shape: ModelShape, tokens: int, division: Division) -> float:
    """The same for a sequence with what its draft keeps."""
    states = division.states if division.works_inside else 0
    given = (tokens, division.number_bytes, division.parallel, division.batched_tokens, states)
    return sum(kv_bytes_each(each, *given) for each in (shape, division.draft) if each)


def working_bytes(shape: ModelShape, division: Division) -> float:
    """Bytes that a step takes on each accelerator besides weights and KV cache, within a third or so.

    The encoder, the layers and the drawing of tokens come one after the other: the largest counts. With experts a layer
    has the hidden values of a token once for each of them.
    """
    tokens, tensor = division.batched_tokens, division.parallel.tensor
    layers = 2 * tokens * (_MLP * shape.widest / tensor + (_HIDDEN + shape.experts_per_token) * shape.hidden)
    logits = (_SORTED if division.sorts else _UNSORTED) * min(division.sequences, tokens) * shape.vocabulary
    patches = min(division.image_tokens, _IMAGE_TOKENS) * shape.patches_per_image_token
    encoder = 2 * patches * (_MLP * shape.encoder_widest / tensor + _HIDDEN * shape.encoder_hidden)
    kept = 2 * division.image_tokens * shape.values_per_image_token
    return max(encoder, layers, logits) + kept + _fixed_bytes(division) + _GRAPHS * GIB * division.has_graphs


def _fixed_bytes(division: Division) -> float:
    exchange = _SWITCHED if division.has_switch else _EXCHANGE
    return GIB * (division.runtime_gib + (exchange if division.parallel.accelerators > 1 else 0.0))


def kv_room_bytes(shape: ModelShape, weights_bytes: float, memory_bytes: float, division: Division) -> float:
    """Bytes for the KV cache on each accelerator of `memory_bytes`; below 0 if not even the weights fit."""
    weights = weights_bytes_each(weights_bytes, division.parallel, shape)
    if not division.works_inside:
        room = (memory_bytes - _fixed_bytes(division) - _DRIVER * GIB) * division.share - weights
        kept = 0.0 if division.state_pool else division.sequences * shape.state_bytes / division.parallel.tensor
        return (room - kept) / (1 + division.state_pool * bool(shape.state_bytes))
    return memory_bytes * division.share - weights - working_bytes(shape, division)


def kv_tokens(shape: ModelShape, weights_bytes: float, memory_bytes: float, division: Division, context: int) -> int:
    """Tokens that the KV cache of one copy holds, in sequences of `context` tokens, as a start-up log prints it."""
    room = max(0.0, kv_room_bytes(shape, weights_bytes, memory_bytes, division))
    return int(room / (sequence_bytes(shape, context, division) or 1.0) * context)


def gib(count: float) -> str:
    """Bytes as `65.5 GiB`."""
    return f"{count / GIB:.1f} GiB" if count < 1000 * GIB else f"{count / GIB:,.0f} GiB"
