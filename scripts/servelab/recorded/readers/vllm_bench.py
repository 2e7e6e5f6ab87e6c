"""`vllm bench serve` and `benchmark_serving.py`, releases 0.6 to 0.33, and those of TensorRT-LLM and SGLang.

Source: `vllm/benchmarks/serve.py`, `tensorrt_llm/serve/scripts/benchmark_serving.py`, and of SGLang 0.4 and 0.5
`python/sglang/bench_serving.py` (later `benchmark/serving.py`); in each `benchmark` and `calculate_metrics`.
"""

from __future__ import annotations

from collections.abc import Iterable

from servelab.recorded.readers.consistency import REQUESTS, TOKEN_RATES
from servelab.recorded.readers.results import LATENCIES, READERS, FigureForm, Reader, document_runs

_COMMON = (
    ("Successful requests", "completed", "requests_completed", 0),
    ("Benchmark duration (s)", "duration", "duration_s", 2),
    ("Total input tokens", "total_input_tokens", "input_tokens", 0),
    ("Total generated tokens", "total_output_tokens", "output_tokens", 0),
    ("Request throughput (req/s)", "request_throughput", "requests_per_s", 2),
    ("Request goodput (req/s)", "request_goodput:", "goodput_per_s", 2),
    ("Output token throughput (tok/s)", "output_throughput", "output_tokens_per_s", 2),
    ("Total Token throughput (tok/s)", "total_token_throughput", "total_tokens_per_s", 2),
)
"""Label of the console, key of the JSON, metric, digits after the point in the console."""
_VLLM = (
    *_COMMON,
    ("Failed requests", "failed", "requests_failed", 0),
    ("", "request_goodput", "goodput_per_s", 2),
    ("", "total_input_sequences", "input_sequences", 0),
    ("Input token throughput (tok/s)", "", "input_tokens_per_s", 2),
    ("Input throughput (inputs/s)", "input_sequence_throughput", "inputs_per_s", 2),
    ("Peak output token throughput (tok/s)", "max_output_tokens_per_s", "peak_output_tokens_per_s", 2),
    ("Peak concurrent requests", "max_concurrent_requests", "peak_concurrency", 2),
    ("RTFx (Inverse Real-Time Factor)", "rtfx", "rtfx", 2),
    ("Total token throughput (tok/s)", "", "total_tokens_per_s", 2),
    ("Probe requests completed", "probe_completed", "probe_requests_completed", 0),
    ("Probe requests failed", "probe_failed", "probe_requests_failed", 0),
    ("Committed throughput (tok/s)", "diffusion_committed_throughput", "committed_tokens_per_s", 2),
    ("Denoising steps per canvas", "diffusion_steps_per_canvas", "denoising_steps_per_canvas", 2),
    ("Committed per denoising step", "diffusion_committed_per_step", "committed_tokens_per_step", 2),
    ("Committed tokens", "diffusion_committed_tokens", "committed_tokens", 0),
    ("Denoising steps", "diffusion_denoising_steps", "denoising_steps", 0),
    ("Canvas positions evaluated", "diffusion_canvas_positions", "canvas_positions", 0),
    ("Acceptance rate (%)", "spec_decode_acceptance_rate", "acceptance_rate_percent", 2),
    ("Acceptance length", "spec_decode_acceptance_length", "acceptance_length", 2),
    ("Drafts", "spec_decode_num_drafts", "drafts", 0),
    ("Draft tokens", "spec_decode_draft_tokens", "draft_tokens", 0),
    ("Accepted tokens", "spec_decode_accepted_tokens", "accepted_tokens", 0),
    *((f"Position {i}", "", f"acceptance_at_{i}_percent", 2) for i in range(32)),
)
"""The key with a colon is 0.8.5's, and TensorRT-LLM's."""
_TENSORRT_LLM = (
    *_COMMON,
    ("Total requests", "", "requests", 0),
    ("Failed requests", "", "requests_failed", 0),
    ("Total failed requests", "", "requests_failed", 0),
    ("User throughput (tok/s)", "user_throughput", "user_tokens_per_s", 2),
    ("Total Energy (J)", "", "energy_j", 4),
    ("Output Tokens per Second per Watt (tps/W)", "", "output_tokens_per_j", 4),
    ("Total GPU Power (W)", "", "mean_power_w", 4),
)
CONSOLE_FAMILIES = {
    "TTFT (ms)": FigureForm("ttft_ms"),
    "TPOT (ms)": FigureForm("tpot_ms"),
    "ITL (ms)": FigureForm("itl_ms"),
    "E2EL (ms)": FigureForm("e2el_ms"),
}
JSON_FAMILIES = {metric: FigureForm(metric) for metric in LATENCIES}
JSON_DETAILS = frozenset({"input_lens", "output_lens", "ttfts", "itls", "latencies", "start_times", "queue_times"})
JSON_DETAILS |= frozenset({"generated_texts", "errors"})
_JSON_SETTINGS = {
    "num_prompts": "requests_asked",
    "request_rate": "request_rate_per_s",
    "max_concurrency": "max_concurrency",
    "burstiness": "burstiness",
    "model_id": "model",
    "tokenizer_id": "tokenizer",
    "ramp_up_start_rps": "ramp_up_start_per_s",
    "ramp_up_end_rps": "ramp_up_end_per_s",
}
_DEFINITIONS = {
    "ttft_ms": "before 0.33 an event with only a role counts as the first",
    "e2el_ms": "of a chat before 0.30 it ends with the usage event",
    "input_tokens": "before 0.20.2 the client's count of the prompt, without the chat template",
    "total_tokens_per_s": "before 0.20.2 with the client's count of input tokens",
    "peak_output_tokens_per_s": "most events, not tokens, in a second",
    "peak_concurrency": "most successful requests that touch one second, which can be more than were in flight at once",
}
"""Where releases differ from docs/reference/metrics.md; a block names no release."""
_REQUIRED = ("requests_completed", "duration_s", "input_tokens", "requests_per_s")
_TENSORRT_LLM_DEFINITIONS = {
    "input_tokens": "the client's count of the prompts",
    "user_tokens_per_s": "mean over requests of output tokens / E2EL",
}

Names = Iterable[tuple[str, str, str, int]]


def by_label(names: Names) -> dict[str, FigureForm]:
    """The figures of a console block."""
    return {label: FigureForm(metric, decimals) for label, _, metric, decimals in names if label}


def by_key(names: Names) -> dict[str, FigureForm]:
    """The figures of a saved result."""
    return {key: FigureForm(metric) for _, key, metric, _ in names if key}


READERS.register(
    "vllm bench serve, console",
    Reader(
        tool="vllm-bench",
        form="console",
        markers=frozenset({"Successful requests"}),
        figures=by_label(_VLLM),
        families={
            **CONSOLE_FAMILIES,
            "Client Queue Time (ms)": FigureForm("client_queue_ms"),
            "E2EL incl. Client Queue (ms)": FigureForm("e2el_with_queue_ms"),
            "probe E2EL (ms)": FigureForm("probe_e2el_ms"),
        },
        partial=frozenset({"probe E2EL (ms)"}),
        settings={
            "Maximum request concurrency": "max_concurrency",
            "Request rate configured (RPS)": "request_rate_per_s",
        },
        ignored=frozenset({"Per-position acceptance (%)"}),
        required=_REQUIRED,
        rules=TOKEN_RATES,
        within_run=LATENCIES,
        definitions=_DEFINITIONS,
        releases={
            "Input token throughput (tok/s)": "<0.7.0",
            "Total Token throughput (tok/s)": "<0.13.0",
            "Total token throughput (tok/s)": ">=0.13.0",
            "Maximum request concurrency": ">=0.10.1",
            "Request rate configured (RPS)": ">=0.10.1",
            "Peak output token throughput (tok/s)": ">=0.11.0",
            "Peak concurrent requests": ">=0.11.0",
            "Failed requests": ">=0.11.1",
            "Acceptance rate (%)": ">=0.14.0",
            "RTFx (Inverse Real-Time Factor)": ">=0.17.0",
            "Committed tokens": ">=0.24.0",
            "Probe requests completed": ">=0.27.1",
            "Mean Client Queue Time (ms)": ">=0.30.0",
        },
    ),
)

READERS.register(
    "vllm bench serve, JSON",
    Reader(
        tool="vllm-bench",
        form="json",
        markers=frozenset({"duration", "completed", "request_throughput"}),
        figures={
            **by_key(_VLLM),
            "probe_median_e2el_ms": FigureForm("probe_e2el_ms", statistic="median"),
            "probe_p99_e2el_ms": FigureForm("probe_e2el_ms", statistic="p99"),
            "probe_max_e2el_ms": FigureForm("probe_e2el_ms", statistic="maximum"),
        },
        families={
            **JSON_FAMILIES,
            "client_queue_time_ms": FigureForm("client_queue_ms"),
            "e2el_including_client_queue_ms": FigureForm("e2el_with_queue_ms"),
        },
        settings=_JSON_SETTINGS,
        ignored=JSON_DETAILS | {"run_number", "rps_change_events", "spec_decode_per_position_acceptance_rates"},
        required=_REQUIRED,
        rules=TOKEN_RATES,
        within_run=LATENCIES,
        definitions=_DEFINITIONS,
        releases={
            "max_output_tokens_per_s": ">=0.11.0",
            "failed": ">=0.11.1",
            "spec_decode_acceptance_rate": ">=0.14.0",
            "start_times": ">=0.15.1",
            "rtfx": ">=0.17.0",
            "diffusion_committed_tokens": ">=0.24.0",
            "probe_completed": ">=0.27.1",
            "queue_times": ">=0.30.0",
        },
        runs=document_runs,
    ),
)

READERS.register(
    "TensorRT-LLM benchmark_serving, console",
    Reader(
        tool="tensorrt-llm-bench",
        form="console",
        markers=frozenset({"Successful requests", "User throughput (tok/s)"}),
        figures=by_label(_TENSORRT_LLM),
        families={
            **CONSOLE_FAMILIES,
            "Request AR": FigureForm("acceptance_rate", 4),
            "Avg Decoded Tokens per Iter": FigureForm("decoded_tokens_per_iteration"),
        },
        partial=frozenset({"Request AR"}),
        required=(*_REQUIRED, "output_tokens", "output_tokens_per_s", "total_tokens_per_s"),
        rules=(REQUESTS, *TOKEN_RATES),
        within_run=LATENCIES,
        definitions=_TENSORRT_LLM_DEFINITIONS,
    ),
)

READERS.register(
    "TensorRT-LLM benchmark_serving, JSON",
    Reader(
        tool="tensorrt-llm-bench",
        form="json",
        markers=frozenset({"duration", "completed", "request_throughput", "user_throughput"}),
        figures=by_key(_TENSORRT_LLM),
        families={**JSON_FAMILIES, "avg_decoded_tokens_per_iter": FigureForm("decoded_tokens_per_iteration")},
        settings=_JSON_SETTINGS,
        ignored=JSON_DETAILS | {"e2els", "avg_decoded_tokens_per_iter", "energy"},
        required=(*_REQUIRED, "output_tokens"),
        rules=TOKEN_RATES,
        within_run=LATENCIES,
        definitions=_TENSORRT_LLM_DEFINITIONS,
        runs=document_runs,
    ),
)

_SGLANG = (
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
_SGLANG_SETTINGS = (
    "sharegpt_output_len",
    "fixed_output_len",
    "random_input_len",
    "random_output_len",
    "random_range_ratio",
)
_LATENCY = FigureForm("e2el_ms")
_SGLANG_DEFINITIONS = {
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
        figures=by_label(_SGLANG),
        families={**CONSOLE_FAMILIES, "E2E Latency (ms)": _LATENCY},
        percentiles=frozenset({"p90", "p95", "p99"}),
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
        rules=TOKEN_RATES,
        within_run=LATENCIES,
        definitions=_SGLANG_DEFINITIONS,
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
        figures=by_key(_SGLANG),
        families={**JSON_FAMILIES, "e2e_latency_ms": _LATENCY},
        settings={
            **{name: name for name in ("backend", "max_concurrency", *_SGLANG_SETTINGS)},
            "request_rate": "request_rate_per_s",
        },
        ignored=JSON_DETAILS | {"server_info", "cache_report", "cached_tokens", "cached_tokens_details"},
        required=("duration_s", "requests_completed", "input_tokens", "output_tokens", "output_tokens_per_s"),
        rules=TOKEN_RATES,
        within_run=LATENCIES,
        definitions=_SGLANG_DEFINITIONS,
        releases={"max_concurrent_requests": ">=0.5.6", "total_input_text_tokens": ">=0.5.6"},
        runs=document_runs,
    ),
)
