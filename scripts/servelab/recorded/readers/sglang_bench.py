"""SGLang's `bench_serving`, releases 0.4 to 0.5: console block and JSON lines.

Source: `python/sglang/bench_serving.py` (later `benchmark/serving.py`), `benchmark` and `calculate_metrics`.
"""

from __future__ import annotations

from servelab.recorded.readers import READERS
from servelab.recorded.readers.consistency import TOKEN_RATES, Identity, ValueRange, value_of
from servelab.recorded.readers.console import ConsoleReader, Number, count
from servelab.recorded.readers.documents import DocumentReader
from servelab.recorded.readers.vllm_bench import JSON_DETAILS, LATENCIES

DEFINITIONS = {
    "duration_s": "until the client has also read the server's state, after the last request",
    "input_tokens": "the client's count of the prompts",
    "itl_ms": "on SGLang's own endpoint, and with speculative decoding, a gap is shared among the event's tokens",
    "peak_output_tokens_per_s": "most events, not tokens, in a second, except where gaps are shared among tokens",
    "peak_concurrency": "most successful requests that touch one second, which can be more than were in flight at once",
}

_MS_PER_S = ValueRange(1000.0, 1000.0)

_CONCURRENCY = Identity(
    value_of("concurrency"),
    (("e2el_ms", "mean"), value_of("requests_completed"), value_of("duration_s")),
    lambda latency, completed, duration: latency * completed / duration / _MS_PER_S,
    "mean of e2el_ms × requests_completed / (1000 × duration_s)",
)

READERS.register(
    "SGLang bench_serving, console",
    ConsoleReader(
        tool="sglang-bench",
        markers=frozenset({"Successful requests", "Backend"}),
        numbers={
            "Successful requests": count("requests_completed"),
            "Benchmark duration (s)": Number("duration_s"),
            "Total input tokens": count("input_tokens"),
            "Total input text tokens": count("input_text_tokens"),
            "Total input vision tokens": count("input_vision_tokens"),
            "Total generated tokens": count("output_tokens"),
            "Total generated tokens (retokenized)": count("output_tokens_retokenized"),
            "Request throughput (req/s)": Number("requests_per_s"),
            "Input token throughput (tok/s)": Number("input_tokens_per_s"),
            "Output token throughput (tok/s)": Number("output_tokens_per_s"),
            "Peak output token throughput (tok/s)": Number("peak_output_tokens_per_s"),
            "Peak concurrent requests": count("peak_concurrency"),
            "Total token throughput (tok/s)": Number("total_tokens_per_s"),
            "Concurrency": Number("concurrency"),
            "Accept length": Number("acceptance_length"),
            "Total prompt tokens": count("cache_asked_tokens"),
            "Total cached tokens": count("cached_tokens"),
            "Device": count("cached_tokens_device"),
            "Host": count("cached_tokens_host"),
            "Storage": count("cached_tokens_storage"),
            "Cache hit rate (%)": Number("cache_hit_rate_percent", decimals=1),
            "Device (%)": Number("cached_device_percent", decimals=1),
            "Host (%)": Number("cached_host_percent", decimals=1),
            "Storage (%)": Number("cached_storage_percent", decimals=1),
        },
        families={
            "E2E Latency (ms)": Number("e2el_ms"),
            "TTFT (ms)": Number("ttft_ms"),
            "TPOT (ms)": Number("tpot_ms"),
            "ITL (ms)": Number("itl_ms"),
        },
        required=(
            "Successful requests",
            "Benchmark duration (s)",
            "Total input tokens",
            "Request throughput (req/s)",
            "Input token throughput (tok/s)",
            "Mean E2E Latency (ms)",
        ),
        definitions=DEFINITIONS,
        settings={
            "Backend": "backend",
            "Traffic request rate": "request_rate_per_s",
            "Max request concurrency": "max_concurrency",
            "Max reqeuest concurrency": "max_concurrency",
        },
        percentiles=frozenset({"90", "95", "99"}),
        identities=(*TOKEN_RATES, _CONCURRENCY),
        within_run=LATENCIES,
        may_be_abbreviated=True,
        releases={"Peak concurrent requests": ">=0.5.6", "Total input text tokens": ">=0.5.6"},
    ),
)

READERS.register(
    "SGLang bench_serving, JSON lines",
    DocumentReader(
        tool="sglang-bench",
        markers=frozenset({"duration", "completed", "backend", "total_output_tokens_retokenized"}),
        numbers={
            "duration": "duration_s",
            "completed": "requests_completed",
            "total_input_tokens": "input_tokens",
            "total_input_text_tokens": "input_text_tokens",
            "total_input_vision_tokens": "input_vision_tokens",
            "total_output_tokens": "output_tokens",
            "total_output_tokens_retokenized": "output_tokens_retokenized",
            "request_throughput": "requests_per_s",
            "input_throughput": "input_tokens_per_s",
            "output_throughput": "output_tokens_per_s",
            "total_throughput": "total_tokens_per_s",
            "max_output_tokens_per_s": "peak_output_tokens_per_s",
            "max_concurrent_requests": "peak_concurrency",
            "concurrency": "concurrency",
            "accept_length": "acceptance_length",
        },
        families={
            "ttft_ms": "ttft_ms",
            "tpot_ms": "tpot_ms",
            "itl_ms": "itl_ms",
            "e2e_latency_ms": "e2el_ms",
        },
        required=("duration", "completed", "total_input_tokens", "total_output_tokens", "output_throughput"),
        definitions=DEFINITIONS,
        settings={
            "backend": "backend",
            "request_rate": "request_rate_per_s",
            "max_concurrency": "max_concurrency",
            "sharegpt_output_len": "sharegpt_output_len",
            "fixed_output_len": "fixed_output_len",
            "random_input_len": "random_input_len",
            "random_output_len": "random_output_len",
            "random_range_ratio": "random_range_ratio",
        },
        details=JSON_DETAILS | {"server_info", "cache_report", "cached_tokens", "cached_tokens_details"},
        identities=(*TOKEN_RATES, _CONCURRENCY),
        within_run=LATENCIES,
        releases={"max_concurrent_requests": ">=0.5.6", "total_input_text_tokens": ">=0.5.6"},
    ),
)
