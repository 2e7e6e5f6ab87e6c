"""The limits of a step: tokens, sequences, and both at once."""

from __future__ import annotations

from collections.abc import Sequence

from servelab.tune.levers import LEVERS, Lever, Proposal
from servelab.tune.situation import Situation

_MODES = {"vllm": "performance-mode"}


def tokens(now: Situation) -> Sequence[Proposal] | str:
    """One and two doublings above what the engine does by itself, or the command if that is more."""
    own = now.engine.defaults(now.version, now.board, {}, now.arguments).get("max_num_batched_tokens")
    default = max(now.number("max_num_batched_tokens"), own if isinstance(own, int) else 0)
    if not default:
        return "the engine's own limit is not known here"
    if now.load.prompt_tokens < 200 and not now.board.is_cpu:
        return "prompts are short: prefill is a small part of the work"
    if now.load.prompt_tokens * now.users_each < default:
        return f"all prompts in flight are fewer tokens than the limit of {default:,}"
    found = []
    for value in (2 * default, 4 * default):
        reason = f"{default:,} {'by default on this board' if default == own else 'typed'}"
        cost = "more memory for activations, and longer gaps between tokens"
        proposal = Proposal(
            f"{value:,} tokens a step", reason, "-21 to +3 %", cost, options={"max_num_batched_tokens": value}
        )
        found.append(proposal)
    return found


def sequences(now: Situation) -> Sequence[Proposal] | str:
    """As many sequences as are in flight."""
    limit = now.number("max_num_seqs")
    if not limit:
        return "the engine's own limit is not known here"
    if now.users_each <= limit:
        return f"{now.users_each} in flight at a server are within the limit of {limit}"
    value = 1 << (now.users_each - 1).bit_length()
    reason = f"{now.users_each} are in flight at a server, and {limit} at most in a batch"
    return [
        Proposal(f"{value} sequences", reason, "+2 to +16 %", options={"max_num_seqs": value}, is_sure=True),
    ]


def mode(now: Situation) -> Sequence[Proposal] | str:
    """vLLM's mode for throughput or for few users."""
    flag = _MODES.get(now.engine.name)
    if flag is None or now.board.is_cpu or now.arguments.get(flag):
        return "the engine has no such mode, or the command sets it"
    value = "interactivity" if now.users_each <= 32 else "throughput"
    reason = {"interactivity": "a graph for every batch up to 32", "throughput": "doubles both limits of a step"}[value]
    return [Proposal(f"mode {value}", reason, "0 to +2 %", arguments={flag: value})]


LEVERS.register(
    "batched-tokens", Lever("batched-tokens", 11, "Tokens in a step", tokens, "six tries on GPUStack's pages")
)
LEVERS.register(
    "sequences", Lever("sequences", 9, "Sequences in a batch", sequences, "vllm/engine/arg_utils.py, 0.33.0")
)
LEVERS.register("mode", Lever("mode", 12, "Mode of vLLM", mode, "vllm/engine/arg_utils.py, 0.33.0; two tries"))
