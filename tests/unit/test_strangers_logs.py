"""Results as strangers have them: of releases that name or compute a figure otherwise, of sweeps, in pages, notebooks.

Figures are made up; each form is that of the tool's release. Expected is arithmetic on the numbers written here.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Sequence
from pathlib import Path

import pytest

from servelab.recorded.readers import Block, scan_file

SAMPLES = Path(__file__).parents[1] / "data/readers"
CONSOLE = (SAMPLES / "vllm-0.32.txt").read_text(encoding="utf-8")
CONSOLE = CONSOLE[CONSOLE.index("============ Serving") :]
LINES = CONSOLE.splitlines()
SAVED = json.loads((SAMPLES / "vllm-0.32.json").read_text())


def lines_of(items: Iterable[object]) -> str:
    return "".join(f"{json.dumps(each)}\n" for each in items)


def comma_separated(rows: Iterable[Sequence[object]]) -> str:
    text = io.StringIO()
    csv.writer(text).writerows(rows)
    return text.getvalue()


def in_box(rows: dict[str, str]) -> str:
    """A table of two columns as evalscope prints it since 1.7."""
    body = [f"│ {name:<27} │ {value:>14} │" for name, value in {"Metric": "Value", **rows}.items()]
    rule = f"{'─' * 29}{{}}{'─' * 16}"
    top, middle, bottom = (f"{a}{rule.format(b)}{c}" for a, b, c in ("┌┬┐", "├┼┤", "└┴┘"))
    return "\n".join([top, body[0], middle, *body[1:], bottom]) + "\n"


def in_grid(rows: dict[str, str]) -> str:
    """The same up to 1.6."""
    rule = f"+{'-' * 37}+{'-' * 12}+"
    body = [f"| {name:<35} | {value:<10} |" for name, value in {"Key": "Value", **rows}.items()]
    return "\n".join([rule, body[0], rule.replace("-", "="), *(f"{row}\n{rule}" for row in body[1:])]) + "\n"


EVALSCOPE = {
    "Test Duration (s)": "4.00",
    "Concurrency": "2",
    "Request Rate (req/s)": "-1.00",
    "Total / Success / Failed": "20 / 20 / 0",
    "Req Throughput (req/s)": "5.00",
    "Avg Latency (s)": "0.40",
    "TTFT (ms)": "40.00",
    "TPOT (ms)": "12.00",
    "Avg Output Tokens": "31.00",
    "Output Throughput (tok/s)": "155.00",
}
OLD = {
    "Time taken for tests (s)": "10.0",
    "Number of concurrency": "8",
    "Total requests": "100",
    "Succeed requests": "100",
    "Failed requests": "0",
    "Throughput(average tokens/s)": "1600.0",
    "Average QPS": "10.0",
    "Average latency (s)": "0.8",
    "Average time to first token (s)": "0.1",
    "Average time per output token (s)": "0.00062",
    "Average output tokens per request": "160.0",
}
NEWER = {name: value for name, value in OLD.items() if name not in ("Throughput(average tokens/s)", "Average QPS")}
NEWER |= {"Output token throughput (tok/s)": "1600.0", "Request throughput (req/s)": "10.0"}


def genai(*rows: str, below: str = "") -> str:
    head = "┃ Statistic                 ┃ avg ┃ min ┃ max ┃ p99 ┃ p90 ┃ p75 ┃"
    rules = [f"{a}{'━' * 27}{b}{c}" for a, b, c in (("┏", "┳━━━━━" * 6, "┓"), ("┡", "╇━━━━━" * 6, "┩"))]
    return "\n".join([rules[0], head, rules[1], *rows, f"└{'─' * 27}{'┴─────' * 6}┘", below]) + "\n"


LLAMA = {"build_commit": "8cf427ff", "n_prompt": 512, "n_gen": 0, "n_depth": 0, "avg_ts": 7100.5, "stddev_ts": 14.25}
TRIAL = {
    "backend": "sglang",
    "duration": 2.0,
    "completed": 4,
    "total_input_tokens": 40,
    "total_output_tokens": 60,
    "total_output_tokens_retokenized": 59,
    "request_throughput": 2.0,
    "output_throughput": 30.0,
    "mean_ttft_ms": 100.0,
}
LMDEPLOY = """\
concurrency: 128
elapsed_time: 10.000s

{first}

number of prompt tokens: 1000
number of completion tokens: 2000
token throughput (completion token): 200.000 token/s
token throughput (prompt + completion token): 300.000 token/s
RPS (request per second): 5.000 req/s
RPM (request per minute): 300.000 req/min
"""
IMAGES = f"""\
{"=" * 17} Serving Benchmark Result {"=" * 17}
Backend:                                 sglang-image
Task:                                    text-to-image
Model:                                   somebody/paints
Dataset:                                 vbench
--------------------------------------------------
Benchmark duration (s):                  16.00
Request rate:                            inf
Max request concurrency:                 not set
Successful requests:                     4/4
--------------------------------------------------
Request throughput (req/s):              0.25
Latency Mean (s):                        7.5004
Latency Median (s):                      7.2500
Latency P99 (s):                         15.9000
--------------------------------------------------
Peak Memory Max (MB):                    16384.50

{"=" * 60}
"""
MOMENTS = {"mean": 0.5, "min": 0.25, "median": 0.45, "p99": 0.9, "p99.9": 0.95, "max": 1.0}
INFERENCE_PERF = {
    "load_summary": {"count": 60, "requested_rate": 1.0},
    "successes": {
        "count": 58,
        "latency": {"request_latency": MOMENTS, "time_to_first_token": {**MOMENTS, "mean": 0.3}},
        "throughput": {"output_tokens_per_sec": 60.0, "requests_per_sec": 1.0},
        "output_len": {"mean": 60.0},
    },
    "failures": {"count": 2, "request_latency": None},
}
GUIDELLM = [("Run Info", "Run Index", "", 0), ("Timings", "Duration", "Sec", 30.0)]
GUIDELLM += [("Request Counts", name, "", 60) for name in ("Successful", "Total")]
for group, unit, mean in (
    ("Request Latency", "Sec", 0.4),
    ("Time to First Token", "ms", 31.5),
    ("Server Throughput", "Requests/Sec", 2.0),
    ("Token Throughput", "Output Tokens/Sec", 128.0),
):
    GUIDELLM += [(group, f"Successful {unit}", each, mean) for each in ("Mean", "Median", "Std Dev")]
    percentiles = str([mean / 2, *[mean] * 9, mean * 2])
    GUIDELLM += [(group, f"Successful {unit}", "Percentiles", percentiles)]
OLD_GUIDELLM = {"Type": "x", "Run Id": "r", "Name": "constant@2.00", "Duration": 30.0, "Successful Requests": 60}
OLD_GUIDELLM |= {"Successful Requests per second mean": 2.0, "Successful Request latency mean": 0.4}
OLD_GUIDELLM |= {
    "Successful Request latency [min, 0.1, 1, 5, 10, 25, 75, 90, 95, 99, max]": str([0.2, *[0.4] * 9, 0.8])
}
SWEPT = {**SAVED, "run_number": 1, "max_num_seqs": 32, "compilation_config": {"mode": 3}}
FLAT = {name: "" if value is None else value for name, value in SWEPT.items() if not isinstance(value, list | dict)}
AIPERF = json.loads((SAMPLES / "aiperf-0.13.json").read_text())
AISBENCH = (SAMPLES / "aisbench-3.1.txt").read_text(encoding="utf-8")
TWO_COLUMNS = "| Metric | Value |\n|---|---|\n| Time to First Token (ms) | 18.26 |\n| Request Latency (ms) | 487.30 |\n"

TABLES = {
    "evalscope without a limit": (in_box(EVALSCOPE), ">=1.7.0,<1.10.0", {"ttft_ms mean": 40.0, "tpot_ms mean": 12.0}),
    "evalscope with a rate": (in_box({**EVALSCOPE, "Request Rate (req/s)": "4.00"}), None, {"e2el_ms mean": 400.0}),
    "evalscope up to 0.11": (in_grid(OLD), "<0.12.0", {"run_time_per_output_token_ms value": 0.62}),
    "evalscope 0.12": (
        in_grid({**OLD, "Average time per output token (s)": "0.005"}),
        ">=0.12.0,<0.14.0",
        {"normalized_e2el_ms mean": 5.0},
    ),
    "evalscope 0.15": (in_grid({**NEWER, "Average package latency (s)": "0.004"}), ">=0.14.0,<0.17.0", {}),
    "evalscope 1.0": (
        in_grid({**NEWER, "Average time per output token (s)": "0.0044", "Average inter-token latency (s)": "0.0043"}),
        ">=0.17.0,<1.7.0",
        {"tpot_ms mean": 4.4},
    ),
    "GenAI-Perf in lower case": (
        genai(
            "│ Request latency (ms)      │ 203.70 │ 180.33 │ 228.30 │ 225.45 │ 216.48 │ 211.72 │",
            "│ Request throughput (per sec) │ 4.87 │ N/A │ N/A │ N/A │ N/A │ N/A │",
        ),
        None,
        {"e2el_ms p75": 211.72, "requests_per_s value": 4.87},
    ),
    "GenAI-Perf with a line below": (
        genai(
            "│ Request latency (ns) │ 13,680,000 │ 11,070,000 │ 21,500,000 │ 18,810,000 │ 14,290,000 │ 13,970,000 │",
            below="Request throughput (per sec): 23.63",
        ),
        None,
        {"e2el_ms mean": 13.68, "requests_per_s value": 23.63},
    ),
    "AIPerf without its release": (
        json.dumps({name: value for name, value in AIPERF.items() if name != "aiperf_version"}),
        None,
        {"requests_completed value": 6.0},
    ),
    "AIPerf in two columns": (TWO_COLUMNS, None, {"ttft_ms value": 18.26, "e2el_ms value": 487.3}),
    "llama-bench JSON": (json.dumps([LLAMA]), None, {"prompt_tokens_per_s mean": 7100.5}),
    "llama-bench JSON lines": (
        lines_of([{**LLAMA, "n_prompt": 0, "n_gen": 8}]),
        None,
        {"generated_tokens_per_s std": 14.25},
    ),
    "llama-bench CSV": (
        f"$ llama-bench -o csv\n{comma_separated([LLAMA, list(LLAMA.values())])}```\nend, of it\n",
        None,
        {"prompt_tokens_per_s std": 14.25},
    ),
    "inference-perf": (
        json.dumps(INFERENCE_PERF),
        None,
        {"ttft_ms mean": 300.0, "e2el_ms p99.9": 950.0, "requests_failed value": 2.0},
    ),
    "guidellm CSV": (
        comma_separated(zip(*GUIDELLM, strict=True)),
        ">=0.4.0",
        {"e2el_ms minimum": 200.0, "ttft_ms p99": 31.5, "output_tokens_per_s value": 128.0},
    ),
    "guidellm CSV up to 0.3": (
        comma_separated([list(OLD_GUIDELLM), list(OLD_GUIDELLM.values())]),
        "<0.4.0",
        {"requests_per_s value": 2.0, "e2el_ms maximum": 800.0},
    ),
    "SGLang auto_benchmark": (
        lines_of(
            [{"stage": "a", "candidate_id": 1, "requested_qps": 2.0, "server_flags": {"tp_size": 2}, "metrics": TRIAL}]
        ),
        None,
        {"output_tokens_per_s value": 30.0},
    ),
    "a sweep's summary": (json.dumps([SWEPT], indent=4), ">=0.30.0", {"requests_failed value": 1.0}),
    "a sweep's CSV": (comma_separated([["", *FLAT], [0, *FLAT.values()]]), ">=0.17.0", {"requests_failed value": 1.0}),
    "images": (
        IMAGES,
        None,
        {"requests_per_s value": 0.25, "e2el_ms mean": 7500.4, "peak_memory_mb maximum": 16384.5},
    ),
    "LMDeploy up to 0.6": (
        LMDEPLOY.format(first="first_token latency(min, max, ave): 0.041s, 2.153s, 0.437s"),
        "<0.7.0",
        {"ttft_ms maximum": 2153.0, "input_tokens value": 1000.0},
    ),
    "LMDeploy's throughput": (
        LMDEPLOY.format(first="per-token latency(s) percentile(50, 75, 95, 99): [0.001, 0.094, 0.169, 0.227]"),
        "<0.7.0",
        {"itl_ms p99": 227.0, "total_tokens_per_s value": 300.0},
    ),
}


def only(text: str, folder: Path) -> Block:
    log = folder / "log"
    log.write_text(text, encoding="utf-8", newline="")
    (block,) = scan_file(log)
    assert isinstance(block, Block), block
    return block


def figures(block: Block) -> dict[str, float | None]:
    return {f"{figure.metric} {figure.statistic}": figure.value for figure in block.figures}


@pytest.mark.parametrize("name", TABLES)
def test_tables_of_other_releases_and_tools(name: str, tmp_path: Path) -> None:
    text, version, some = TABLES[name]
    block = only(text, tmp_path)
    assert version in (block.tool_version, None)
    assert {key: figures(block)[key] for key in some} == pytest.approx(some)
    assert block.formulas.keys() == {figure.metric for figure in block.figures if figure.value is not None}


STATISTICS = ("mean", "median", "std", "p50", "p90", "p95", "p99")


def test_ttft_of_answers_that_were_not_streamed_is_none(tmp_path: Path) -> None:
    whole = {f"{name}_{each}_ms": 40.0 for name in STATISTICS for each in ("ttft", "e2el")}
    block = only(json.dumps({**SAVED, **whole, "mean_tpot_ms": 0.0}), tmp_path)
    assert block.value("ttft_ms", "mean") is block.value("tpot_ms", "mean") is None
    assert block.value("e2el_ms", "mean") == 40.0 and "ttft_ms" not in block.formulas
    one = only(
        json.dumps(
            {
                **SAVED,
                **whole,
                "total_output_tokens": 5,
                "output_throughput": 0.9666781711421114,
                "total_token_throughput": 41.56716135911078,
            }
        ),
        tmp_path,
    )
    assert one.value("ttft_ms", "mean") == 40.0


def test_each_figure_names_its_formula(tmp_path: Path) -> None:
    old, new = (only(CONSOLE if name else json.dumps(SAVED), tmp_path).formulas for name in (True, False))
    assert old["ttft_ms"].id is None and "vllm-bench:ttft_ms in releases <0.33.0" in old["ttft_ms"].text
    assert new["tpot_ms"].id == "tpot_ms" and new["tpot_ms"].releases == ">=0.30.0"
    assert new["e2el_ms"].id == "e2el_ms" and new["peak_concurrency"].id == "vllm-bench:peak_concurrency"


CODE = "".join(f'<div class="line"><span>{line}</span></div>' for line in LINES)
NOTEBOOK = {"cells": [{"cell_type": "code", "outputs": [{"text": [f"{line}\n" for line in LINES]}]}], "nbformat": 4}
ANSWER = {"data": {"result": [{"stream": {"a": "b"}, "values": [[str(at), line] for at, line in enumerate(LINES)]}]}}
WRAPPED = {
    "a page with lines in elements": f"<!DOCTYPE html>\n<html><head><title>x</title></head><body>{CODE}</body></html>",
    "a page with code": f"<html><body>\n<h1>x</h1><pre><code>{CONSOLE}</code></pre></body></html>\n",
    "a table of code lines": f"<html><table>{''.join(f'<tr><td></td><td>{line}</td></tr>' for line in LINES)}</table>",
    "a notebook": json.dumps(NOTEBOOK, indent=1),
    "a notebook in one line": json.dumps({"cells": [{"outputs": [{"text": CONSOLE}]}]}),
    "lines of Loki": lines_of({"labels": {"a": "b"}, "line": line, "timestamp": "x"} for line in LINES),
    "an answer of Loki": json.dumps(ANSWER),
    "a download of Grafana": json.dumps([{"line": line, "timestamp": "1", "fields": {"a": "b"}} for line in LINES]),
    "a number in brackets first": f"[42027] 1.35 GiB\n{CONSOLE}",
    "notes behind figures": "\n".join(f"{line}   ← the key" if "P99" in line else line for line in LINES) + "\n",
}


@pytest.mark.parametrize("name", WRAPPED)
def test_what_is_wrapped_is_read_as_without(name: str, tmp_path: Path) -> None:
    plain = only(CONSOLE, tmp_path)
    assert figures(only(WRAPPED[name], tmp_path)) == figures(plain)


def test_a_time_that_rounds_to_zero_may_have_a_sign_and_none_is_negative(tmp_path: Path) -> None:
    times = [line if "TPOT (ms)" not in line else f"{line[:41]}{{}}" for line in LINES]
    assert only("\n".join(times).format(*["-0.00"] * 9), tmp_path).value("tpot_ms", "mean") == 0
    (tmp_path / "log").write_text("\n".join(times).format(*["-0.01"] * 9), encoding="utf-8")
    (found, *_) = scan_file(tmp_path / "log")
    assert "cannot be negative: -0.01" in str(found)


def test_latencies_of_no_request_are_none(tmp_path: Path) -> None:
    none = {name: 0.0 for name in SAVED if name.endswith("_ms") or "throughput" in name}
    counts = {"completed": 0, "failed": 8, "total_input_tokens": 0, "total_output_tokens": 0}
    block = only(json.dumps({**SAVED, **none, **counts}), tmp_path)
    assert block.value("ttft_ms", "mean") is block.value("itl_ms", "p99") is None
    assert block.warnings == ("no request succeeded, so no latency was measured",)


def test_a_table_may_have_more_spaces(tmp_path: Path) -> None:
    assert figures(only(AISBENCH.replace(" ms ", "  ms"), tmp_path)) == figures(only(AISBENCH, tmp_path))


def test_a_header_of_another_width_ends_with_a_rule_as_wide(tmp_path: Path) -> None:
    wide = CONSOLE.replace("=" * 12 + " Serving", "=" * 17 + " Serving").replace(
        "Result " + "=" * 12, "Result " + "=" * 17
    )
    assert figures(only(wide.replace("=" * 50, "=" * 60), tmp_path)) == figures(only(CONSOLE, tmp_path))
    (tmp_path / "log").write_text(wide, encoding="utf-8")
    (found,) = scan_file(tmp_path / "log")
    assert "its last line of `=` is missing" in str(found)


@pytest.mark.parametrize("text", [CONSOLE, (SAMPLES / "evalscope-1.14.txt").read_text(encoding="utf-8")])
def test_ranks_of_a_parallel_job_are_told_apart(text: str, tmp_path: Path) -> None:
    log = tmp_path / "log"
    lines = text.splitlines()
    log.write_text("".join(f"{rank}: {line}\n" for line in lines for rank in (0, 1)), encoding="utf-8")
    first, second = scan_file(log)
    assert isinstance(first, Block) and isinstance(second, Block)
    assert figures(first) == figures(second) == figures(only(text, tmp_path))
    assert second.first_line == first.first_line + 1


def test_a_saved_table_in_a_log_of_a_collector_is_complete(tmp_path: Path) -> None:
    table = comma_separated(zip(*GUIDELLM, strict=True))
    logged = lines_of({"log": f"{line}\n", "stream": "stdout"} for line in table.splitlines())
    assert figures(only(logged, tmp_path)) == figures(only(table, tmp_path))


def test_a_mean_without_a_value_leaves_the_others(tmp_path: Path) -> None:
    block = only(json.dumps({**SAVED, "mean_tpot_ms": None}), tmp_path)
    assert block.value("tpot_ms", "mean") is None and block.value("tpot_ms", "median") == SAVED["median_tpot_ms"]
