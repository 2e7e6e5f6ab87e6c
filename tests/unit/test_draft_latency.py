"""Drafts of pages about latency: options without a program, a quantised model, rates in headings, times in seconds."""

from __future__ import annotations

import pytest

from servelab.recorded.draft.drafted import draft
from servelab.recorded.draft.writing import write_draft
from servelab.study.recorded.study import RecordedStudy, load_recorded

MODEL, QUANTISED = "acme/Tiny-20B", "acme/Tiny-20B-FP8"


def console(mean_s: float, rate: float, peak: int) -> str:
    """As a client prints it that gives the most requests in flight as if it were a limit."""
    rows = [
        ("Successful requests:", "100"),
        ("Maximum request concurrency:", str(peak)),
        ("Benchmark duration (s):", f"{100 / rate:.2f}"),
        ("Total input tokens:", "25600"),
        ("Total generated tokens:", "12800"),
        ("Request throughput (req/s):", f"{rate:.2f}"),
        ("Output token throughput (tok/s):", f"{128 * rate:.2f}"),
        ("Peak concurrent requests:", f"{peak}.00"),
        ("Total Token throughput (tok/s):", f"{384 * rate:.2f}"),
        ("Mean Latency(s):", f"{mean_s:.2f}"),
        ("Median Latency(s):", f"{mean_s - 0.1:.2f}"),
        ("Mean TTFT (ms):", f"{100 * mean_s:.2f}"),
        ("Median TTFT (ms):", f"{90 * mean_s:.2f}"),
        ("Mean TPOT (ms):", f"{5 * mean_s:.2f}"),
        ("Median TPOT (ms):", f"{5 * mean_s:.2f}"),
    ]
    lines = [f"{label:<40} {value}" for label, value in rows]
    head, latency = lines[:9], lines[9:11]
    return "\n".join(
        [
            "============ Serving Benchmark Result ============",
            *head,
            "----------------------Latency---------------------",
            *latency,
            "---------------Time to First Token----------------",
            *lines[11:13],
            "-----Time per Output Token (excl. 1st token)------",
            *lines[13:],
            "==================================================",
        ]
    )


def block(title: str, text: str) -> str:
    return f'??? info "{title}"\n    ```\n' + "".join(f"    {line}\n" for line in text.splitlines()) + "    ```\n"


def parameters(*options: str, who: str = "") -> str:
    return f"- {who}Backend Parameters:\n  ```bash\n" + "".join(f"  {option}\n" for option in options) + "  ```\n"


PLAIN, FASTER = ("--max-model-len=4096",), ("--max-model-len=4096", "--enable-prefix-caching")
PAGE = f"""# Optimizing Tiny-20B Latency

## Conclusion

???+ tip "Serving Command"
    ```bash
    vllm serve {QUANTISED} --max-model-len=4096 --enable-prefix-caching
    ```

| Benchmark Case | Baseline (vLLM without any optimizations) | Optimized |
|---|---|---|
| **Rate 1** | Mean latency: 2.10s/req | Mean latency: 1.40s/req (1.50x faster) |
| **Rate 8** | Mean latency: 6.30s/req | Mean latency: 3.15s/req (2.00x faster) |

## Experimental Setup

### Model

- {MODEL}

### Engine Version

- vLLM v0.17.1
- SGLang v0.5.9

## Experiment Results

### Choosing the Inference Engine

#### vLLM

- Profile: `ShareGPT 8RPS`
{parameters(*PLAIN)}
{block("Benchmark result", console(6.3, 7.5, 80))}

#### SGLang

- Profile: `ShareGPT 8RPS`
{parameters("--context-length=4096")}
{block("Benchmark result", console(9.45, 7.1, 120))}

- Summary: `vLLM` Mean Latency = 6.30s, `SGLang` Mean Latency = 9.45s. `vLLM` is faster by 3.15s (1.50x faster).

Mean latency per request: vLLM (6.30 s) < SGLang (9.45 s)

### Quantization

- Profile: `ShareGPT 8RPS`
{parameters(*PLAIN)}
{block("Benchmark result", console(4.2, 7.6, 61))}

### Prefix Cache && Quantization

- Profile: `ShareGPT 8RPS`
{parameters(*FASTER)}
{block("Benchmark result", console(3.15, 7.8, 43))}

### Summary of Options

| Case | Group | Optimized | Baseline | Comparison |
|---|---|---|---|---|
| ShareGPT 8RPS | Quantization | 4.20s | 6.30s | (1.50x faster) |
| ShareGPT 8RPS | Choosing the Inference Engine | 9.45s | 6.30s | (1.50x slower) |

### Other Benchmark Cases

#### Rate 1

{parameters(*PLAIN, who="Baseline ")}
{block("Baseline benchmark result", console(2.1, 1.0, 4))}
{parameters(*FASTER, who="Optimized ")}
{block("Optimized benchmark result", console(1.4, 1.0, 3))}
"""


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> RecordedStudy:
    folder = tmp_path_factory.mktemp("pages")
    (folder / "tiny.md").write_text(PAGE)
    write_draft(draft(folder / "tiny.md", "drafted"), folder / "drafted")
    return load_recorded(folder / "drafted")


def test_a_section_on_quantisation_serves_the_quantised_model(study):
    assert study.model.id == MODEL
    commands = [each.command for each in study.candidates.values()]
    assert commands == [
        f"vllm serve {MODEL} --max-model-len=4096",
        f"python3 -m sglang.launch_server --model-path {MODEL} --context-length=4096",
        f"vllm serve {QUANTISED} --max-model-len=4096",
        f"vllm serve {QUANTISED} --max-model-len=4096 --enable-prefix-caching",
    ]


def test_results_at_one_rate_are_of_one_workload_whatever_was_in_flight(study):
    assert sorted((each.request_rate, each.max_concurrency) for each in study.workloads.values()) == [
        (1.0, None),
        (8.0, None),
    ]
    assert [len(each.logs) for each in study.candidates.values()] == [2, 1, 1, 2]


def test_ratios_are_changes_of_what_they_stand_beside(study):
    vllm, sglang, quantised, cached = study.candidates
    changes = [each for each in study.claims if each.kind == "change"]
    assert {(each.metric, each.unit) for each in changes} == {("e2el_ms", "x")}
    assert study.objective.metric == "e2el_ms"
    found = [
        (each.candidate, each.against, study.workloads[each.workload].request_rate, each.printed) for each in changes
    ]
    assert found == [
        (cached, vllm, 1.0, "1.50"),
        (cached, vllm, 8.0, "2.00"),
        (vllm, sglang, 8.0, "1.50"),
        (quantised, vllm, 8.0, "1.50"),
        (vllm, sglang, 8.0, "1.50"),  # the other one is 1.50 times slower
    ]
    assert changes[1].value == pytest.approx(-50) and changes[1].as_printed(-50) == pytest.approx(2)
    assert changes[1].half_unit == pytest.approx(100 * (1 / 1.995 - 1 / 2))


def test_times_in_seconds_are_claims_of_latency(study):
    vllm, sglang, quantised, cached = study.candidates
    figures = [each for each in study.claims if each.kind == "figure"]
    assert {(each.metric, each.unit) for each in figures} == {("e2el_ms", "s")}
    table = {(each.candidate, study.workloads[each.workload].request_rate, each.printed) for each in figures}
    assert table == {
        (vllm, 1.0, "2.10"),
        (cached, 1.0, "1.40"),
        (vllm, 8.0, "6.30"),
        (cached, 8.0, "3.15"),
        (sglang, 8.0, "9.45"),
        (quantised, 8.0, "4.20"),
    }
    (difference,) = (each for each in study.claims if each.kind == "difference")
    assert (difference.candidate, difference.against, difference.printed) == (vllm, sglang, "-3.15")
    assert (difference.value, difference.half_unit) == (-3150, 5)


def test_what_is_less_is_better_where_the_metric_is_a_time(study):
    (order,) = (each for each in study.claims if each.kind == "order")
    assert (list(order.candidates), order.metric) == ([*study.candidates][:2], "e2el_ms")
