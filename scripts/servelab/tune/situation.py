"""The situation of a proposal: the command as typed, the model, the board and the load."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from servelab.assets.known_models import BITS, known_bytes, known_entry
from servelab.assets.model_work import ModelFacts
from servelab.core.run_spec import ArgumentValue
from servelab.engines.accelerator_boards import GIB, AcceleratorBoard
from servelab.engines.adapters import ENGINES, Engine
from servelab.engines.memory import UNKNOWN, Division, division_of, kv_room_bytes, kv_tokens
from servelab.engines.options import PARALLEL_OPTIONS, Parallel

_FP8_OWNERS = ("Qwen", "zai-org")
"""Owners on the hub that publish FP8 weights of their models as `<model>-FP8`; the hub is asked before one is used."""


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
    facts = facts or ModelFacts()
    entry, number_format = known_entry(model)
    size = facts.weights_bytes or known_bytes(model)
    others = {kind: entry[kind] for kind in BITS if entry.get(kind, model) != model and kind != number_format}
    if number_format == "bf16" and model.partition("/")[0] in _FP8_OWNERS:
        others["fp8"] = f"{model}-FP8"
    return KnownModel(
        id=model,
        arch=entry.get("arch"),
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
    other_engines: Mapping[str, str] = field(default_factory=dict)
    """Name → release."""

    def on(self, engine: str | None) -> Situation:
        """The same if another engine serves at its defaults: of the command its layout and context stay."""
        if engine is None or engine not in self.other_engines:
            return self
        options = {name: value for name, value in self.options.items() if name in (*PARALLEL_OPTIONS, "context_length")}
        return replace(
            self,
            engine=ENGINES.get(engine),
            version=self.other_engines[engine],
            options=options,
            arguments={},
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

    def number(self, option: str) -> int:
        """An option's effective value as a whole number; 0 if it is not known."""
        value = self.effective.get(option)
        return value if isinstance(value, int) else 0

    @property
    def users_each(self) -> int:
        """Requests in flight at each server, if the node is filled with such servers."""
        return max(1, self.load.users * self.accelerators // self.per_node)

    def division(self, tensor: int) -> Division | None:
        """How a server on so many accelerators divides their memory; None for a KV cache of unknown format."""
        return division_of(self.engine, self.version, self.board, self.effective, Parallel(tensor))

    def kv_tokens(self, tensor: int | None = None, weights_gib: float | None = None) -> int | None:
        """Tokens that the KV cache of one server holds, within 20 % or so; None if it cannot be told."""
        division = self.division(tensor or self.number("tensor_parallel_size") or 1)
        weights = weights_gib if weights_gib is not None else self.model.weights_gib
        shape, memory = self.model.facts.shape, self.board.memory_gib
        if division is None or weights is None or shape is None or memory is None:
            return None
        return kv_tokens(shape, weights * GIB, memory * GIB, division, self.load.tokens)

    @property
    def least_weights_gib(self) -> float | None:
        """GiB of the smallest weights that may be tried on this board."""
        smaller = "fp8" if self.board.has_fp8 else "int8"
        return self.model.weights_in(smaller) if smaller in self.model.others else self.model.weights_gib

    def fits(self, tensor: int, weights_gib: float | None = None) -> bool | None:
        """Whether weights and one request of the load fit on so many accelerators; None if it cannot be told."""
        weights = weights_gib if weights_gib is not None else self.model.weights_gib
        division, memory = self.division(tensor), self.board.memory_gib
        if weights is None or memory is None or division is None:
            return None
        tokens = self.kv_tokens(tensor, weights_gib)
        room = kv_room_bytes(self.model.facts.shape or UNKNOWN, weights * GIB, memory * GIB, division)
        return room > GIB if tokens is None else tokens > self.load.tokens


_EDGE = 1.1
"""A KV cache that holds this many contexts, by an estimate, holds one for sure."""


def start_options(now: Situation) -> tuple[dict[str, int], str | None]:
    """Options with which the engine's plain command starts, and why: the fewest accelerators that hold the weights and
    one sequence of the whole context, or else the context of the load.
    """
    if now.fits(1) is None or now.accelerators > 1:
        return {}, None
    heads = now.model.facts.shape.attention_heads if now.model.facts.shape else 0
    sizes = [each for each in (1, 2, 4, 8) if each <= now.per_node and heads % each == 0 and now.fits(each)]
    context = now.number("context_length")
    for tensor in sizes:
        tokens = now.kv_tokens(tensor)
        if tokens is None or tokens >= _EDGE * context:
            why = f"The baseline uses {tensor} accelerators a server: fewer do not hold weights and one whole context."
            return ({"tensor_parallel_size": tensor}, why) if tensor > 1 else ({}, None)
    if not sizes:
        return (
            {},
            "The weights do not fit this node by an estimate: choose smaller ones (--model), or more accelerators.",
        )
    longest = now.load.longest_tokens or 4 * now.load.tokens
    options = {"context_length": min(context, -(-(longest + 64) // 1024) * 1024)}
    if sizes[0] > 1:
        options["tensor_parallel_size"] = sizes[0]
    why = f"The baseline's context is that of the load: the KV cache does not hold one of {context:,} tokens."
    return options, why
