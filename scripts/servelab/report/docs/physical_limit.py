"""The section of docs/reference/metrics.md on the physical limit: arithmetic, example, devices' rates."""

from __future__ import annotations

import numpy as np

from servelab.assets.model_work import work_of_config
from servelab.engines.roofline import Formats, Served, least_time
from servelab.machine.rates import MIB, PUBLISHED, TERA, published_rates

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

The most that the devices could do with this model and these requests: a roofline
([Williams et al., 2009](https://doi.org/10.1145/1498765.1498785)). The columns `limit_*` and `share_of_limit` of each
stage's table have it. It decides nothing. The check `above_physical_limit` finds figures above it, in logs too.

- Limit = tokens / least time. Least time = the larger of arithmetic time and memory time. Communication is not counted.
- Arithmetic: 2 × the parameters that a token uses, for each prompt token computed and each output token but the last;
  2 × those of the output layer for each output token; in each layer 2 × heads × (key + value size) for each pair of
  tokens that attend. Devices count with their sum.
- Memory: all weights once per pass, less what caches hold, and the keys and values of earlier tokens once per output
  token. Passes are at least output tokens / sequences in a batch, and at least the longest output.
- Experts: a pass reads E × (1 − (1 − k / E)^b) of a layer's E experts for b sequences with k experts each. A run is
  `invalid` only above the limit with k experts per pass, `suspect` between the two.
- Quantised weights count with their bits, the KV cache with its format. Drafted tokens allow several tokens a pass; if
  their number is unknown, memory gives no bound. Prompt tokens from the prefix cache are not computed.
- If model or device is unknown there is no limit, and `limit_note` says why. Known are GGUF files and safetensors whose
  `model_type` is in `scripts/servelab/assets/model_work.py`.
- A CPU's rates are measured by a short kernel before its first run and kept in `~/.cache/servelab`. They are an
  estimate: only figures above twice the limit are `suspect`.
"""


def render_docs() -> str:
    """The section's text."""
    by_source: dict[str, list[str]] = {}
    for _, _, rates in PUBLISHED:
        operations = ", ".join(f"{rate / TERA:g} at {bits} bits" for bits, rate in rates.operations_per_s.items())
        figures = (
            f"{rates.name} {rates.memory_bytes_per_s / TERA:g} TB/s, {operations}, L2 {rates.cache_bytes / MIB:g} MiB"
        )
        by_source.setdefault(rates.source, []).append(figures)
    lines = "".join(f"- {'; '.join(figures)} ({source})\n" for source, figures in by_source.items())
    return f"{_HEAD}\n{_example()}\n{_RATES_HEAD}{lines}"


_RATES_HEAD = """\
### Rates of devices

The makers' figures, in TFLOPS or TOPS, dense; none was measured here. If a name fits several devices, each rate is the
largest of theirs.

"""


def _example() -> str:
    work, rates = work_of_config(EXAMPLE), published_rates("NVIDIA H100 SXM")
    assert work is not None and rates is not None
    one = np.ones(500)
    served = Served(2000 * one, 0 * one, 100 * one, 500)
    least = least_time(work, served, rates, 1, Formats(), fewest_experts=True)
    body, head = f"{work.active_parameters / 1e9:.2f}", f"{work.head_parameters / 1e9:.2f}"
    size = f"{(work.body_bytes + work.head_bytes) / 1e9:.1f}"
    return f"""\
Example: Qwen3-14B in 16 bits on one H100 SXM, 500 requests of 2,000 prompt and 100 output tokens at once. {body}
billion parameters and {head} billion of the output layer take {least.compute_s:.1f} s of arithmetic. 100 passes ×
{size} GB and the KV cache take {least.memory_s:.1f} s. So at most 1,050,000 / {least.seconds:.1f} =
{1050000 / least.seconds:,.0f} tokens/s.
"""
