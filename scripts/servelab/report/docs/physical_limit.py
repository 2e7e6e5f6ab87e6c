"""The section of docs/metrics.md on the physical limit: its arithmetic, an example, and the devices' rates."""

from __future__ import annotations

import numpy as np

from servelab.assets.model_work import work_of_config
from servelab.engines.roofline import Formats, Served, least_time
from servelab.machine.cpu_rates import MIB, PUBLISHED, TERA, published_rates

EXAMPLE = {
    "model_type": "qwen3",
    "num_hidden_layers": 40,
    "hidden_size": 5120,
    "num_attention_heads": 40,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "intermediate_size": 17408,
    "vocab_size": 151936,
}
"""Sizes of Qwen3-14B."""

_HEAD = """\
## The physical limit

Beside each figure is the most that its devices could do with this model and these requests: a roofline
([Williams et al., 2009](https://doi.org/10.1145/1498765.1498785)). `limit_total_tokens_per_s`,
`limit_output_tokens_per_s` and `share_of_limit` are columns of each stage's table. They order nothing and decide
nothing. A run above its limit is impossible: the check
[`above_physical_limit`](validity.md#above_physical_limit) finds it, in logs too.

- Least time = the larger of arithmetic time and memory time; both can go on at once. Limit = tokens / least time.
  Share = least time / duration.
- Arithmetic time = operations / (devices × operations per second). Operations: 2 × the parameters that a token uses,
  for each prompt token that was computed and each output token but a request's last; 2 × the output layer's for each
  output token; and in each layer 2 × heads × (size of a key + size of a value) for each pair of a token and one that
  it attends to (in a sliding window, only those in it). Embeddings, norms and the state of recurrent layers count
  nothing.
- Memory time = bytes / (devices × bandwidth). Bytes: all weights once per pass, less what the devices' caches hold; and
  the keys and values of a request's earlier tokens, once per output token. There are at least as many passes as
  output tokens / sequences in the batch at once (the most requests in flight, or `max_num_seqs` if it is less), and as
  the longest output has tokens. If the caches can hold all weights, there is no bound from memory.
- Several devices count with all their bandwidth and arithmetic, however the model is split over them; communication
  is not counted.
- Experts: a token computes with its own. A pass reads E × (1 − (1 − k / E)^b) of a layer's E experts, if each of b
  sequences draws k evenly: k for one sequence, nearly all for many. As tokens could all draw the same, the check calls
  a run `invalid` only above the limit with k experts per pass, and `suspect` between the two.
- Quantised weights count with their bits, by the model's files or by an argument that narrows them, and compute at the
  fastest rate for that many bits or more. The KV cache counts with the bytes of its format; 1 per value if the weights
  are quantised and no format is set, as engines may narrow it.
- Speculative decoding: a pass gives a sequence up to as many tokens as are drafted, and one. If their number is not
  known, there is no bound from memory. Drafting is not counted.
- Prefix caching: prompt tokens that the server took from its cache are not computed. If it does not report them,
  prompts of the workloads `random` and `sharegpt`, which have next to nothing in common, count in full, others not
  at all. In logs they count in full, unless the command turns a prefix cache on.
- Logs have totals: each request counts with the mean lengths, which need the least time. The sizes are those of
  `model.config` in the recorded study.
- Unknown model or device: there is no limit, `limit_note` says why, and the check is *not applicable*. Known models are
  GGUF files (read from their tensors) and safetensors whose `model_type` is in
  `scripts/servelab/assets/model_work.py`. A model that was fetched by an earlier version is known after its folder in
  `results/models/` is removed and it is fetched again.
- A CPU's rates are measured before its first run, by a triad on all its threads over arrays beyond the caches and a
  product of 32-bit matrices, five times; the best counts, by its CPU time. They are kept in `~/.cache/servelab` and
  measured again, at most 20 times, as long as their noise is above 10 %: how far the median repetition is below the
  best, or the part of the CPUs that other programs had. Narrower
  numbers count 4 times (16 bits) and 8 times (8 bits) as fast, with AMX 16 and 32 times. So a CPU's limit is an
  estimate: the check finds figures above twice of it, as `suspect`.
"""


def render_docs() -> str:
    """The section's text."""
    lines = [
        f"| {rates.name} | {rates.memory_bytes_per_s / TERA:g} | "
        f"{', '.join(f'{bits} bits: {rate / TERA:g}' for bits, rate in rates.operations_per_s.items())} | "
        f"{rates.cache_bytes / MIB:g} | {rates.source} |"
        for _, _, rates in PUBLISHED
    ]
    table = "| device | TB/s | TFLOPS or TOPS, dense | L2, MiB | source |\n|---|---|---|---|---|\n" + "\n".join(lines)
    after = (
        "If a name fits several devices, such as `NVIDIA H100`, each rate is the largest of theirs. These are the "
        "makers' figures, as quoted; none was measured here.\n"
    )
    return f"{_HEAD}\n{_example()}\n### Rates of devices\n\n{table}\n\n{after}"


def _example() -> str:
    work, rates = work_of_config(EXAMPLE), published_rates("NVIDIA H100 SXM")
    assert work is not None and rates is not None
    one = np.ones(500)
    served = Served(2000 * one, 0 * one, 100 * one, 500)
    least = least_time(work, served, rates, 1, Formats(), fewest_experts=True)
    body, head = f"{work.active_parameters / 1e9:.2f}", f"{work.head_parameters / 1e9:.2f}"
    size = f"{(work.body_bytes + work.head_bytes) / 1e9:.1f}"
    return f"""\
Example: Qwen3-14B in 16 bits on one H100 SXM, 500 requests of 2,000 prompt and 100 output tokens, all at once. A token
computes with {body} billion parameters, and {head} billion of the output layer: 2 × {body}e9 × 500 × 2,099 + 2 ×
{head}e9 × 50,000, and 40 layers × 500 × 2,099 × 2,100 / 2 pairs × {work.attention_operations:,.0f} operations, at
{rates.fastest(16) / TERA:g} TFLOPS: {least.compute_s:.1f} s. Memory: 100 passes × {size} GB, and the KV cache, at
{rates.memory_bytes_per_s / TERA:g} TB/s: {least.memory_s:.1f} s. So at most 1,050,000 / {least.seconds:.1f} =
{1050000 / least.seconds:,.0f} total tokens/s.
"""
