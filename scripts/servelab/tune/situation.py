"""The situation of a proposal: the command as typed, the model, the board and the load."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from packaging.version import Version

from servelab.assets.known_models import BITS, known_bytes, known_entry
from servelab.assets.model_shape import shape_of_config
from servelab.assets.model_work import ModelFacts, stored_format
from servelab.core.run_spec import ArgumentValue
from servelab.engines.accelerator_boards import GIB, AcceleratorBoard
from servelab.engines.adapters import ENGINES, Engine
from servelab.engines.memory import UNKNOWN, Division, division_of, kv_room_bytes, kv_tokens
from servelab.engines.options import PARALLEL_OPTIONS, Parallel
from servelab.search.preflight.options import known_flags

_FP8_OWNERS = ("Qwen", "zai-org")
"""Owners on the hub that publish FP8 weights of their models as `<model>-FP8`; the hub is asked before one is used.
Qwen's have scales for blocks of 128 x 128, zai-org's for channels."""


@dataclass(frozen=True)
class ExpectedLoad:
    """The load that decides."""

    users: int
    """Requests in flight on the node."""
    prompt_tokens: int
    answer_tokens: int
    longest_tokens: int | None = None
    """Tokens of the longest request; None if nothing bounds them."""
    shares_prefixes: bool = False
    is_random: bool = False
    """Prompts of random tokens, which no draft can guess."""

    @property
    def tokens(self) -> int:
        """Tokens of a whole request."""
        return self.prompt_tokens + self.answer_tokens

    @property
    def context(self) -> int | None:
        """Context for its longest request with a chat template, in whole 1,024; None if nothing bounds it."""
        return self.longest_tokens and -(-(self.longest_tokens + 64) // 1024) * 1024


@dataclass(frozen=True)
class KnownModel:
    """The known facts of a model before it is fetched."""

    id: str
    arch: str | None = None
    """`dense` or `moe`; None if it is not known."""
    format: str = "bf16"
    """Number format of the weights."""
    weights_gib: float | None = None
    context: int | None = None
    others: Mapping[str, str] = field(default_factory=dict)
    """Number format → the model with such weights."""
    draft: Mapping[str, str] = field(default_factory=dict)
    """`method`, and `model` unless the weights have it."""
    is_multimodal: bool = False
    facts: ModelFacts = field(default_factory=ModelFacts)

    def weights_in(self, number_format: str) -> float | None:
        """GiB of the weights in another number format."""
        if self.weights_gib is None:
            return None
        return self.weights_gib * BITS.get(number_format, 16) / BITS.get(self.format, 16)


def known_model(model: str, facts: ModelFacts | None = None) -> KnownModel:
    """A model by its name on the hub, with what its files say."""
    facts, (entry, number_format) = facts or ModelFacts(), known_entry(model)
    owner = model.partition("/")[0]
    if facts.shape is None and "config" in entry:
        blocks = {"weight_block_size": [128, 128]} if number_format == "fp8" and owner == "Qwen" else {}
        config = {"max_position_embeddings": entry["context"], **entry["config"], "quantization_config": blocks}
        facts = replace(facts, shape=shape_of_config(config), config=config)
    if not entry:
        number_format = stored_format(facts.config) or ("bf16" if facts.config else number_format)
    size = facts.weights_bytes or known_bytes(model)
    others = {kind: entry[kind] for kind in BITS if entry.get(kind, model) != model and kind != number_format}
    if number_format == "bf16" and owner in _FP8_OWNERS:
        others["fp8"] = f"{model}-FP8"
    return KnownModel(
        id=model,
        arch=entry.get("arch")
        or (None if facts.shape is None else ("dense", "moe")[facts.shape.experts_per_token > 0]),
        format=number_format,
        weights_gib=size / GIB if size else None,
        context=(facts.shape and facts.shape.max_positions) or entry.get("context"),
        others=others,
        draft=entry.get("draft", {}),
        is_multimodal="multimodal" in entry.get("tasks", ()),
        facts=facts,
    )


@dataclass(frozen=True)
class Situation:
    """A command on its machine under its load."""

    engine: Engine
    version: str
    options: Mapping[str, ArgumentValue]
    arguments: Mapping[str, ArgumentValue]
    model: KnownModel
    board: AcceleratorBoard
    per_node: int
    accelerators: int
    """Of one server, as the command has it."""
    load: ExpectedLoad
    variables: Mapping[str, str] = field(default_factory=dict)
    other_engines: Mapping[str, str] = field(default_factory=dict)
    """Name → release."""

    def on(self, engine: str | None) -> Situation:
        """The same if another engine serves at its defaults: of the command its layout and context stay."""
        if engine is None or engine not in self.other_engines:
            return self
        other, kept = ENGINES.get(engine), (*PARALLEL_OPTIONS, "context_length")
        options = {name: value for name, value in self.options.items() if name in kept and name in other.options}
        if len(options) < sum(name in kept for name in self.options):  # without copies of experts, say
            options["tensor_parallel_size"] = self.accelerators
        return replace(
            self,
            engine=other,
            version=self.other_engines[engine],
            options=options,
            arguments={},
            variables={},
            other_engines={},
        )

    @cached_property
    def effective(self) -> dict[str, ArgumentValue]:
        """Every setting that is known, as the release serves with this command on this board."""
        return self.effective_with({}, {})

    def effective_with(
        self, options: Mapping[str, ArgumentValue], arguments: Mapping[str, ArgumentValue]
    ) -> dict[str, ArgumentValue]:
        """The same with changes on the command."""
        found = self.engine.effective(
            self.version, self.board, {**self.options, **options}, {**self.arguments, **arguments}
        )
        return {**found, "context_length": found.get("context_length") or self.model.context}

    def has(self, argument: str) -> bool:
        """Whether the release has an argument, or the newest with a list of flags here; not if none has a list."""
        listed = known_flags(self.engine, self.version)
        return listed is not None and f"--{argument}" in listed.flags

    def number(self, option: str) -> int:
        """An option's effective value as a whole number; 0 if it is not known."""
        value = self.effective.get(option)
        return value if isinstance(value, int) else 0

    @property
    def users_each(self) -> int:
        """Requests in flight at each server of the command; see `users_at`."""
        return self.users_at(self.accelerators)

    def users_at(self, accelerators: int) -> int:
        """Requests in flight at each server on so many accelerators, if the node is filled with such servers."""
        return max(1, self.load.users // max(1, self.per_node // accelerators))

    def _memory(self, parallel: Parallel, weights_gib: float | None) -> tuple[float, float, Division] | None:
        """Bytes of the weights and of an accelerator, and how a server divides them; None if one is not known."""
        division = division_of(self.engine, self.version, self.board, self.effective, parallel)
        weights, memory = weights_gib or self.model.weights_gib, self.board.memory_gib
        return None if division is None or not weights or not memory else (weights * GIB, memory * GIB, division)

    def kv_tokens(self, weights_gib: float | None = None) -> int | None:
        """Tokens that the KV cache of one copy holds, within 20 % or so; None if it cannot be told."""
        parallel = self.engine.parallel(self.options, self.arguments, self.accelerators)
        known, shape = self._memory(parallel, weights_gib), self.model.facts.shape
        return kv_tokens(shape, *known, self.load.tokens) if known and shape else None

    @property
    def state_limit(self) -> int | None:
        """Sequences of a step at most, by an estimate, if the engine refuses the limit that it has."""
        parallel = self.engine.parallel(self.options, self.arguments, self.accelerators)
        known, shape = self._memory(parallel, None), self.model.facts.shape
        return known[2].state_limit(shape, kv_room_bytes(shape, *known)) if known and shape else None

    @cached_property
    def smaller_formats(self) -> list[str]:
        """Number formats of published smaller weights that are worth a try on this board, the best first."""
        if own := self.engine.traits.own_weights:
            wanted = [*own]
        elif self.board.has_fp4:
            wanted = ["nvfp4", *["fp8"] * (self.model.format != "fp8")]
        elif self.model.format != "bf16" or self.board.capability is None:
            wanted = []
        elif self.board.has_fp8:
            wanted = ["fp8", "int4"]
        else:  # fp8 and int4 are only stored so: that pays where memory is what is short
            stored = self.engine.traits.stored_weights
            wanted = ["int8", *(each for each in stored if self.board.capability >= 8 and self._is_relieved_by(each))]
        return [each for each in wanted if each in self.model.others]

    def _is_relieved_by(self, number_format: str) -> bool:
        """Whether such weights let a server use half the accelerators, or the KV cache does not hold the load."""
        half, size, tokens = self.accelerators // 2, self.model.weights_in(number_format), self.kv_tokens()
        halves = half and self.fits(Parallel(half)) is False and self.fits(Parallel(half), size) is not False
        return bool(halves or (tokens and tokens < self.users_each * self.load.tokens))

    @property
    def least_weights_gib(self) -> float | None:
        """GiB of the best smaller weights that may be tried on this board."""
        smaller = next(iter(self.smaller_formats), "")
        return self.model.weights_in(smaller) if smaller else self.model.weights_gib

    def fits(self, parallel: Parallel, weights_gib: float | None = None, context: int = 0) -> bool | None:
        """Whether weights and one sequence, by default of the load, fit; None if it cannot be told."""
        known, shape, context = self._memory(parallel, weights_gib), self.model.facts.shape, context or self.load.tokens
        if known is None or shape is None:
            return known and kv_room_bytes(UNKNOWN, *known) > GIB
        return kv_tokens(shape, *known, context) >= context

    def shortened(self, parallel: Parallel, weights_gib: float | None = None) -> dict[str, ArgumentValue]:
        """The argument without which the engine refuses to start: the model's whole context does not fit."""
        since, whole, needed = self.engine.fits_context_since, self.number("context_length"), self.load.context
        is_given = self.engine.setting("context_length", self.options, self.arguments) is not None
        if since is None or is_given or self.fits(parallel, weights_gib, int(_EDGE * whole)) is not False:
            return {}
        if Version(self.version) >= Version(since):
            return {"max-model-len": "auto"}
        return {"max-model-len": min(whole, needed)} if needed else {}


_EDGE = 1.1
"""A KV cache that holds this many contexts, by an estimate, holds one for sure."""


def start_sizes(now: Situation) -> list[int] | None:
    """Accelerators of a server that hold the weights and a request of the load; None if it cannot be told."""
    if now.fits(Parallel()) is None:
        return None
    heads = now.model.facts.shape.attention_heads if now.model.facts.shape else 0
    return [each for each in (1, 2, 4, 8) if each <= now.per_node and heads % each == 0 and now.fits(Parallel(each))]


def started(now: Situation) -> tuple[Situation, str | None]:
    """The engine's plain command changed so that it starts, and why: the fewest accelerators that hold the weights and
    one whole context, or else with a shorter context.
    """
    sizes = start_sizes(now)
    if now.accelerators > 1 or sizes is None:
        return now, None
    if not sizes:
        return now, "The weights do not fit this node by an estimate: choose smaller ones, or more accelerators."
    tensor = next((each for each in sizes if not now.shortened(Parallel(each))), sizes[0])
    arguments = now.shortened(Parallel(tensor))
    options = {"tensor_parallel_size": tensor} if tensor > 1 else {}
    why = f"The baseline uses {tensor} accelerators a server: fewer do not hold weights and one whole context."
    if arguments:
        why = f"The baseline's context is shorter: the KV cache does not hold one of {now.number('context_length'):,}."
    found = replace(
        now, options={**now.options, **options}, arguments={**now.arguments, **arguments}, accelerators=tensor
    )
    if most := found.state_limit:
        found = replace(found, options={**found.options, "max_num_seqs": 1 << (most.bit_length() - 1)})
        return found, f"The baseline's limit of sequences is lower: the KV cache has states of about {most:,} of them."
    return found, why if options or arguments else None
