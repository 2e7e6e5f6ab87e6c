"""The console block that GPUStack shows for a benchmark: guidellm's figures under other labels.

The labels are those of `vllm bench serve`, the figures are guidellm's: `output_tokens_per_second.successful.max`,
`time_per_output_token_ms`, `inter_token_latency_ms`, means of tokens × successes.
"""

from __future__ import annotations

from servelab.recorded.readers import READERS
from servelab.recorded.readers.consistency import LOOSE_REQUESTS, TOKEN_RATIO
from servelab.recorded.readers.console import ConsoleReader, Number, count

LATENCIES = {
    "tpot_ms": "(last token − request start) / output tokens, TTFT included, weighted by output tokens",
    "itl_ms": "(last − first token) / (output tokens − 1), one value a request, weighted: docs/metrics.md's tpot_ms",
}
"""By the labels that the block prints."""

READERS.register(
    "GPUStack, console",
    ConsoleReader(
        tool="gpustack",
        markers=frozenset({"Successful requests", "Mean Latency(s)"}),
        numbers={
            "Successful requests": count("requests_completed"),
            "Benchmark duration (s)": Number("duration_s"),
            "Total input tokens": count("input_tokens"),
            "Total generated tokens": count("output_tokens"),
            "Request throughput (req/s)": Number("requests_per_s"),
            "Output token throughput (tok/s)": Number("output_tokens_per_s"),
            "Peak output token throughput (tok/s)": Number("peak_output_tokens_per_s"),
            "Peak concurrent requests": Number("peak_concurrency"),
            "Total Token throughput (tok/s)": Number("total_tokens_per_s"),
        },
        families={
            "Latency(s)": Number("e2el_ms", factor=1000),
            "TTFT (ms)": Number("ttft_ms"),
            "TPOT (ms)": Number("tpot_ms"),
            "ITL (ms)": Number("itl_ms"),
        },
        required=(
            "Successful requests",
            "Benchmark duration (s)",
            "Total input tokens",
            "Total generated tokens",
            "Request throughput (req/s)",
            "Output token throughput (tok/s)",
            "Total Token throughput (tok/s)",
        ),
        definitions={
            **LATENCIES,
            "output_tokens_per_s": "over the time from the first to the last token, not over duration_s",
            "total_tokens_per_s": "over the time from the first to the last token, not over duration_s",
            "input_tokens": "mean of a request × successful requests",
            "output_tokens": "mean of a request × successful requests",
            "peak_output_tokens_per_s": "largest rate between two events, however close they lie",
        },
        settings={"Maximum request concurrency": "max_concurrency"},
        percentiles=frozenset({"95", "99"}),
        identities=(LOOSE_REQUESTS, TOKEN_RATIO),
    ),
)
