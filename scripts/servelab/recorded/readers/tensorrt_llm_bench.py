"""TensorRT-LLM's `benchmark_serving.py`: console block and saved JSON.

Source: `tensorrt_llm/serve/scripts/benchmark_serving.py`, `benchmark` and `calculate_metrics`.
"""

from __future__ import annotations

from servelab.recorded.readers import READERS
from servelab.recorded.readers.consistency import REQUESTS, TOKEN_RATES, Identity, value_of
from servelab.recorded.readers.console import ConsoleReader, Number, count
from servelab.recorded.readers.documents import DocumentReader
from servelab.recorded.readers.vllm_bench import JSON_DETAILS, JSON_SETTINGS, LATENCIES

DEFINITIONS = {
    "input_tokens": "the client's count of the prompts",
    "user_tokens_per_s": "mean over requests of output tokens / E2EL",
}

_PER_JOULE = Identity(
    value_of("output_tokens_per_j"),
    (value_of("output_tokens"), value_of("energy_j")),
    lambda tokens, energy: tokens / energy,
    "output_tokens / energy_j",
)

READERS.register(
    "TensorRT-LLM benchmark_serving, console",
    ConsoleReader(
        tool="tensorrt-llm-bench",
        markers=frozenset({"Successful requests", "User throughput (tok/s)"}),
        numbers={
            "Total requests": count("requests"),
            "Successful requests": count("requests_completed"),
            "Failed requests": count("requests_failed"),
            "Total failed requests": count("requests_failed"),
            "Benchmark duration (s)": Number("duration_s"),
            "Total input tokens": count("input_tokens"),
            "Total generated tokens": count("output_tokens"),
            "Request throughput (req/s)": Number("requests_per_s"),
            "Request goodput (req/s)": Number("goodput_per_s"),
            "Output token throughput (tok/s)": Number("output_tokens_per_s"),
            "Total Token throughput (tok/s)": Number("total_tokens_per_s"),
            "User throughput (tok/s)": Number("user_tokens_per_s"),
            "Total Energy (J)": Number("energy_j", decimals=4),
            "Output Tokens per Second per Watt (tps/W)": Number("output_tokens_per_j", decimals=4),
            "Total GPU Power (W)": Number("mean_power_w", decimals=4),
        },
        families={
            "Request AR": Number("acceptance_rate", decimals=4),
            "Avg Decoded Tokens per Iter": Number("decoded_tokens_per_iteration"),
            "TTFT (ms)": Number("ttft_ms"),
            "TPOT (ms)": Number("tpot_ms"),
            "ITL (ms)": Number("itl_ms"),
            "E2EL (ms)": Number("e2el_ms"),
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
        definitions=DEFINITIONS,
        partial=frozenset({"Request AR"}),
        identities=(REQUESTS, *TOKEN_RATES, _PER_JOULE),
        within_run=LATENCIES,
    ),
)

READERS.register(
    "TensorRT-LLM benchmark_serving, JSON",
    DocumentReader(
        tool="tensorrt-llm-bench",
        markers=frozenset({"duration", "completed", "request_throughput", "user_throughput"}),
        numbers={
            "duration": "duration_s",
            "completed": "requests_completed",
            "total_input_tokens": "input_tokens",
            "total_output_tokens": "output_tokens",
            "request_throughput": "requests_per_s",
            "request_goodput:": "goodput_per_s",
            "output_throughput": "output_tokens_per_s",
            "total_token_throughput": "total_tokens_per_s",
            "user_throughput": "user_tokens_per_s",
        },
        families={
            **{metric: metric for metric in LATENCIES},
            "avg_decoded_tokens_per_iter": "decoded_tokens_per_iteration",
        },
        required=("duration", "completed", "total_input_tokens", "total_output_tokens", "request_throughput"),
        definitions=DEFINITIONS,
        settings=JSON_SETTINGS,
        details=JSON_DETAILS | {"e2els", "avg_decoded_tokens_per_iter", "energy"},
        identities=TOKEN_RATES,
        within_run=LATENCIES,
    ),
)
