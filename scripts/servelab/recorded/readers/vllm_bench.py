"""`vllm bench serve`, and `benchmark_serving.py`, releases 0.6 to 0.33: console block and saved JSON.

Source: `vllm/benchmarks/serve.py`, `benchmark` and `calculate_metrics`.
"""

from __future__ import annotations

from servelab.recorded.readers import READERS
from servelab.recorded.readers.consistency import TOKEN_RATES, Identity, ValueRange, value_of
from servelab.recorded.readers.console import ConsoleReader, Number, count
from servelab.recorded.readers.documents import DocumentReader

LATENCIES = ("ttft_ms", "tpot_ms", "itl_ms", "e2el_ms")

DEFINITIONS = {
    "ttft_ms": "before 0.33 an event with only a role counts as the first",
    "e2el_ms": "of a chat before 0.30 it ends with the usage event",
    "input_tokens": "before 0.20.2 the client's count of the prompt, without the chat template",
    "total_tokens_per_s": "before 0.20.2 with the client's count of input tokens",
    "peak_output_tokens_per_s": "most events, not tokens, in a second",
    "peak_concurrency": "most successful requests that touch one second, which can be more than were in flight at once",
}
"""Where releases differ from docs/reference/metrics.md; a block names no release."""

_ONE = ValueRange(1.0, 1.0)
_HUNDRED = ValueRange(100.0, 100.0)

SPECULATION = (
    Identity(
        value_of("acceptance_rate_percent"),
        (value_of("accepted_tokens"), value_of("draft_tokens")),
        lambda accepted, drafted: _HUNDRED * accepted / drafted,
        "100 × accepted_tokens / draft_tokens",
    ),
    Identity(
        value_of("acceptance_length"),
        (value_of("accepted_tokens"), value_of("drafts")),
        lambda accepted, drafts: _ONE + accepted / drafts,
        "1 + accepted_tokens / drafts",
    ),
)

CONSOLE = ConsoleReader(
    tool="vllm-bench",
    markers=frozenset({"Successful requests"}),
    numbers={
        "Successful requests": count("requests_completed"),
        "Failed requests": count("requests_failed"),
        "Benchmark duration (s)": Number("duration_s"),
        "Total input tokens": count("input_tokens"),
        "Total generated tokens": count("output_tokens"),
        "Request throughput (req/s)": Number("requests_per_s"),
        "Request goodput (req/s)": Number("goodput_per_s"),
        "Input token throughput (tok/s)": Number("input_tokens_per_s"),
        "Input throughput (inputs/s)": Number("inputs_per_s"),
        "Output token throughput (tok/s)": Number("output_tokens_per_s"),
        "Peak output token throughput (tok/s)": Number("peak_output_tokens_per_s"),
        "Peak concurrent requests": Number("peak_concurrency"),
        "RTFx (Inverse Real-Time Factor)": Number("rtfx"),
        "Total Token throughput (tok/s)": Number("total_tokens_per_s"),
        "Total token throughput (tok/s)": Number("total_tokens_per_s"),
        "Probe requests completed": count("probe_requests_completed"),
        "Probe requests failed": count("probe_requests_failed"),
        "Committed throughput (tok/s)": Number("committed_tokens_per_s"),
        "Denoising steps per canvas": Number("denoising_steps_per_canvas"),
        "Committed per denoising step": Number("committed_tokens_per_step"),
        "Committed tokens": count("committed_tokens"),
        "Denoising steps": count("denoising_steps"),
        "Canvas positions evaluated": count("canvas_positions"),
        "Acceptance rate (%)": Number("acceptance_rate_percent"),
        "Acceptance length": Number("acceptance_length"),
        "Drafts": count("drafts"),
        "Draft tokens": count("draft_tokens"),
        "Accepted tokens": count("accepted_tokens"),
        **{f"Position {i}": Number(f"acceptance_at_{i}_percent") for i in range(32)},
    },
    families={
        "TTFT (ms)": Number("ttft_ms"),
        "TPOT (ms)": Number("tpot_ms"),
        "ITL (ms)": Number("itl_ms"),
        "E2EL (ms)": Number("e2el_ms"),
        "Client Queue Time (ms)": Number("client_queue_ms"),
        "E2EL incl. Client Queue (ms)": Number("e2el_with_queue_ms"),
        "probe E2EL (ms)": Number("probe_e2el_ms"),
    },
    required=("Successful requests", "Benchmark duration (s)", "Total input tokens", "Request throughput (req/s)"),
    definitions=DEFINITIONS,
    settings={
        "Maximum request concurrency": "max_concurrency",
        "Request rate configured (RPS)": "request_rate_per_s",
    },
    headings=frozenset({"Per-position acceptance (%)"}),
    identities=(*TOKEN_RATES, *SPECULATION),
    within_run=LATENCIES,
    partial=frozenset({"probe E2EL (ms)"}),
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
)

READERS.register("vllm bench serve, console", CONSOLE)

_JSON_NUMBERS = {
    "duration": "duration_s",
    "completed": "requests_completed",
    "failed": "requests_failed",
    "total_input_tokens": "input_tokens",
    "total_output_tokens": "output_tokens",
    "total_input_sequences": "input_sequences",
    "request_throughput": "requests_per_s",
    "request_goodput": "goodput_per_s",
    "request_goodput:": "goodput_per_s",
    "input_sequence_throughput": "inputs_per_s",
    "output_throughput": "output_tokens_per_s",
    "total_token_throughput": "total_tokens_per_s",
    "max_output_tokens_per_s": "peak_output_tokens_per_s",
    "max_concurrent_requests": "peak_concurrency",
    "rtfx": "rtfx",
    "probe_completed": "probe_requests_completed",
    "probe_failed": "probe_requests_failed",
    "spec_decode_acceptance_rate": "acceptance_rate_percent",
    "spec_decode_acceptance_length": "acceptance_length",
    "spec_decode_num_drafts": "drafts",
    "spec_decode_draft_tokens": "draft_tokens",
    "spec_decode_accepted_tokens": "accepted_tokens",
    "diffusion_committed_throughput": "committed_tokens_per_s",
    "diffusion_steps_per_canvas": "denoising_steps_per_canvas",
    "diffusion_committed_per_step": "committed_tokens_per_step",
    "diffusion_committed_tokens": "committed_tokens",
    "diffusion_denoising_steps": "denoising_steps",
    "diffusion_canvas_positions": "canvas_positions",
}
"""The key with a colon is 0.8.5's."""

JSON_SETTINGS = {
    "num_prompts": "requests_asked",
    "request_rate": "request_rate_per_s",
    "max_concurrency": "max_concurrency",
    "burstiness": "burstiness",
    "model_id": "model",
    "tokenizer_id": "tokenizer",
    "ramp_up_start_rps": "ramp_up_start_per_s",
    "ramp_up_end_rps": "ramp_up_end_per_s",
}

JSON_DETAILS = frozenset(
    {
        "input_lens",
        "output_lens",
        "ttfts",
        "itls",
        "latencies",
        "start_times",
        "queue_times",
        "generated_texts",
        "errors",
    }
)

JSON = DocumentReader(
    tool="vllm-bench",
    markers=frozenset({"duration", "completed", "request_throughput"}),
    numbers=_JSON_NUMBERS,
    families={
        **{metric: metric for metric in LATENCIES},
        "client_queue_time_ms": "client_queue_ms",
        "e2el_including_client_queue_ms": "e2el_with_queue_ms",
    },
    required=("duration", "completed", "total_input_tokens", "request_throughput"),
    definitions=DEFINITIONS,
    settings=JSON_SETTINGS,
    figures={
        "probe_median_e2el_ms": ("probe_e2el_ms", "median"),
        "probe_p99_e2el_ms": ("probe_e2el_ms", "p99"),
        "probe_max_e2el_ms": ("probe_e2el_ms", "maximum"),
    },
    details=JSON_DETAILS | {"run_number", "rps_change_events", "spec_decode_per_position_acceptance_rates"},
    identities=(*TOKEN_RATES, *SPECULATION),
    within_run=LATENCIES,
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
)

READERS.register("vllm bench serve, JSON", JSON)
