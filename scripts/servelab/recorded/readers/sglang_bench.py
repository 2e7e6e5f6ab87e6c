"""SGLang's `bench_serving`, releases 0.4 to 0.5: console block and JSON lines.

Source: `python/sglang/bench_serving.py` (later `benchmark/serving.py`), `benchmark` and `calculate_metrics`.
"""

from __future__ import annotations

from servelab.recorded.readers.consistency import CONCURRENCY, TOKEN_RATES
from servelab.recorded.readers.results import LATENCIES, READERS, FigureForm, Reader, document_runs
from servelab.recorded.readers.vllm_bench import CONSOLE_FAMILIES, JSON_DETAILS, JSON_FAMILIES, by_key, by_label

_NAMES = (
    ("Successful requests", "completed", "requests_completed", 0),
    ("Benchmark duration (s)", "duration", "duration_s", 2),
    ("Total input tokens", "total_input_tokens", "input_tokens", 0),
    ("Total input text tokens", "total_input_text_tokens", "input_text_tokens", 0),
    ("Total input vision tokens", "total_input_vision_tokens", "input_vision_tokens", 0),
    ("Total generated tokens", "total_output_tokens", "output_tokens", 0),
    ("Total generated tokens (retokenized)", "total_output_tokens_retokenized", "output_tokens_retokenized", 0),
    ("Request throughput (req/s)", "request_throughput", "requests_per_s", 2),
    ("Input token throughput (tok/s)", "input_throughput", "input_tokens_per_s", 2),
    ("Output token throughput (tok/s)", "output_throughput", "output_tokens_per_s", 2),
    ("Peak output token throughput (tok/s)", "max_output_tokens_per_s", "peak_output_tokens_per_s", 2),
    ("Peak concurrent requests", "max_concurrent_requests", "peak_concurrency", 0),
    ("Total token throughput (tok/s)", "total_throughput", "total_tokens_per_s", 2),
    ("Concurrency", "concurrency", "concurrency", 2),
    ("Accept length", "accept_length", "acceptance_length", 2),
    ("Total prompt tokens", "", "cache_asked_tokens", 0),
    ("Total cached tokens", "", "cached_tokens", 0),
    ("Device", "", "cached_tokens_device", 0),
    ("Host", "", "cached_tokens_host", 0),
    ("Storage", "", "cached_tokens_storage", 0),
    ("Cache hit rate (%)", "", "cache_hit_rate_percent", 1),
    ("Device (%)", "", "cached_device_percent", 1),
    ("Host (%)", "", "cached_host_percent", 1),
    ("Storage (%)", "", "cached_storage_percent", 1),
)
"""Label of the console, key of the JSON, metric, digits after the point in the console."""
_LENGTHS = ("sharegpt_output_len", "fixed_output_len", "random_input_len", "random_output_len", "random_range_ratio")
_LATENCY = FigureForm("e2el_ms")
_DEFINITIONS = {
    "duration_s": "until the client has also read the server's state, after the last request",
    "input_tokens": "the client's count of the prompts",
    "itl_ms": "on SGLang's own endpoint, and with speculative decoding, a gap is shared among the event's tokens",
    "peak_output_tokens_per_s": "most events, not tokens, in a second, except where gaps are shared among tokens",
    "peak_concurrency": "most successful requests that touch one second, which can be more than were in flight at once",
}

READERS.register(
    "SGLang bench_serving, console",
    Reader(
        tool="sglang-bench",
        form="console",
        markers=frozenset({"Successful requests", "Backend"}),
        figures=by_label(_NAMES),
        families={**CONSOLE_FAMILIES, "E2E Latency (ms)": _LATENCY},
        settings={
            "Backend": "backend",
            "Traffic request rate": "request_rate_per_s",
            "Max request concurrency": "max_concurrency",
            "Max reqeuest concurrency": "max_concurrency",
        },
        required=(
            "requests_completed",
            "duration_s",
            "input_tokens",
            "requests_per_s",
            "input_tokens_per_s",
            "e2el_ms",
        ),
        rules=(*TOKEN_RATES, CONCURRENCY),
        within_run=LATENCIES,
        definitions=_DEFINITIONS,
        releases={"Peak concurrent requests": ">=0.5.6", "Total input text tokens": ">=0.5.6"},
        may_be_abbreviated=True,
    ),
)

READERS.register(
    "SGLang bench_serving, JSON lines",
    Reader(
        tool="sglang-bench",
        form="json",
        markers=frozenset({"duration", "completed", "backend", "total_output_tokens_retokenized"}),
        figures=by_key(_NAMES),
        families={**JSON_FAMILIES, "e2e_latency_ms": _LATENCY},
        settings={
            **{name: name for name in ("backend", "max_concurrency", *_LENGTHS)},
            "request_rate": "request_rate_per_s",
        },
        ignored=JSON_DETAILS | {"server_info", "cache_report", "cached_tokens", "cached_tokens_details"},
        required=("duration_s", "requests_completed", "input_tokens", "output_tokens", "output_tokens_per_s"),
        rules=(*TOKEN_RATES, CONCURRENCY),
        within_run=LATENCIES,
        definitions=_DEFINITIONS,
        releases={"max_concurrent_requests": ">=0.5.6", "total_input_text_tokens": ">=0.5.6"},
        runs=document_runs,
    ),
)
