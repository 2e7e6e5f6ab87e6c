"""Pages that were made for the tests of drafts, with results whose figures follow from each other."""

from __future__ import annotations

import html
from dataclasses import dataclass


@dataclass(frozen=True)
class Run:
    """What a result is made from."""

    requests: int = 200
    seconds: float = 50.0
    inputs: int = 204_800
    outputs: int = 51_200
    tpot_ms: float = 21.5

    @property
    def total(self) -> str:
        """Tokens per second, as printed."""
        return f"{(self.inputs + self.outputs) / self.seconds:.2f}"

    def console(self) -> str:
        """The block that `vllm bench serve` prints."""
        rows = [
            "============ Serving Benchmark Result ============",
            f"{'Successful requests:':<41}{self.requests}",
            f"{'Benchmark duration (s):':<41}{self.seconds:.2f}",
            f"{'Total input tokens:':<41}{self.inputs}",
            f"{'Total generated tokens:':<41}{self.outputs}",
            f"{'Request throughput (req/s):':<41}{self.requests / self.seconds:.2f}",
            f"{'Output token throughput (tok/s):':<41}{self.outputs / self.seconds:.2f}",
            f"{'Total Token throughput (tok/s):':<41}{self.total}",
            "---------------Time to First Token----------------",
            f"{'Mean TTFT (ms):':<41}{310.40:.2f}",
            f"{'Median TTFT (ms):':<41}{300.10:.2f}",
            f"{'P99 TTFT (ms):':<41}{900.70:.2f}",
            "-----Time per Output Token (excl. 1st token)------",
            f"{'Mean TPOT (ms):':<41}{self.tpot_ms:.2f}",
            f"{'Median TPOT (ms):':<41}{self.tpot_ms - 1:.2f}",
            f"{'P99 TPOT (ms):':<41}{self.tpot_ms + 9:.2f}",
            "---------------Inter-token Latency----------------",
            f"{'Mean ITL (ms):':<41}{self.tpot_ms:.2f}",
            f"{'Median ITL (ms):':<41}{self.tpot_ms - 2:.2f}",
            f"{'P99 ITL (ms):':<41}{self.tpot_ms + 40:.2f}",
            "==================================================",
        ]
        return "\n".join(rows)


BASE, SGLANG, KV, LONG_BASE, LONG_KV = (
    Run(seconds=60.0),
    Run(seconds=52.0, tpot_ms=19.25),
    Run(seconds=43.0, tpot_ms=17.75),
    Run(requests=40, seconds=80.0, inputs=40 * 8000, outputs=40 * 500, tpot_ms=30.5),
    Run(requests=40, seconds=64.0, inputs=40 * 8000, outputs=40 * 500, tpot_ms=26.5),
)
MODEL = "example/Tiny-20B"
VLLM = f"vllm serve {MODEL} --tensor-parallel-size 2"
SGL = f"python -m sglang.launch_server --model-path {MODEL} --tp 2"
FP8_KV = f"{VLLM} --kv-cache-dtype fp8"
OOM = f"{VLLM} --gpu-memory-utilization 0.99"
CLIENT = (
    f"vllm bench serve --model {MODEL} --dataset-name random --random-input-len 1024 --random-output-len 256 "
    "--num-prompts 200"
)


def markdown() -> str:
    """A page with folding sections, a table by candidate, one by workload, and sentences with percentages."""
    gain, over = 100 * (60 / 43 - 1), 100 * (60 / 52 - 1)
    return f"""# Serving Tiny-20B on two A100s

All runs used 2x NVIDIA A100 and vLLM 0.12.1, SGLang v0.5.6.

## How we measured

```console
$ {CLIENT}
```

The long scenario sends 8000 input tokens, 500 output tokens.

## Which server?

### vLLM (baseline)

<details>
<summary>Launch command</summary>

```bash
vllm serve {MODEL} \\
  --tensor-parallel-size 2
```

</details>
<details><summary>Output</summary>

```text
{BASE.console()}
```

</details>

### SGLang

```
$ {SGL}
```

```text
{SGLANG.console()}
```

SGLang reaches {SGLANG.total} tok/s, {over:.1f}% higher throughput than vLLM. Accuracy drops by 0.4%.

## Cache precision

Storing the cache in FP8:

```bash
{FP8_KV}
```

```text
{KV.console()}
```

Total throughput rose by {gain:.1f}% over the baseline.

## Memory share

```bash
{OOM}
```

```text
torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.
```

## Longer prompts

```bash
{VLLM}
```

```text
{LONG_BASE.console()}
```

```bash
{FP8_KV}
```

```text
{LONG_KV.console()}
```

## All figures

| Configuration | Total throughput (tok/s) | Mean TPOT (ms) | vs. baseline |
|---|---:|---:|---:|
| vLLM (baseline) | {BASE.total} | 21.50 | - |
| SGLang | {SGLANG.total} | 19.25 | +{over:.1f}% |
| FP8 cache | {KV.total} | 17.75 | +{gain:.1f}% |
"""


def page() -> str:
    """A saved HTML page with other headings; its table has a wrong figure, and a percentage of nothing known."""

    def pre(text: str) -> str:
        return f"<pre><code class='language-bash'>{html.escape(text)}</code></pre>"

    return f"""<!DOCTYPE html>
<html><head><title>Blog</title><style>pre {{ color: red }}</style></head>
<body><nav><ul><li>Home 100%</li></ul></nav>
<h1>DeepSeek-Lite-16B, tuned &amp; measured</h1>
<p>Everything ran on a single H200 with SGLang 0.5.6.</p>
<h2>Default settings</h2>
{pre("python3 -m sglang.launch_server --model-path acme/DeepSeek-Lite-16B")}
{pre(BASE.console())}
<h2>Tuned</h2>
<p>The best command we found:</p>
{pre("python3 -m sglang.launch_server --model-path acme/DeepSeek-Lite-16B --attention-backend fa3")}
<div>{pre(KV.console())}</div>
<table><thead><tr><th>Metric</th><th>Default settings</th><th>Tuned</th></tr></thead>
<tbody><tr><td>Total tok/s</td><td>{BASE.total}</td><td>9999.99 <b>(+39.5%)</b></td></tr>
<tr><td>Mean TPOT (ms)</td><td>21.50</td><td>17.75</td></tr></tbody></table>
<p>We saved 31% of the bill.</p>
</body></html>
"""
