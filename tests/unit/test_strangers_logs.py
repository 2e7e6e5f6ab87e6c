"""Results as strangers have them: in pages, notebooks and collectors of logs, of ranks, and not streamed."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

import pytest
from test_readers import SAMPLES, figures

from servelab.recorded.readers import Block, scan_file

CONSOLE = (SAMPLES / "vllm-0.32.txt").read_text(encoding="utf-8")
CONSOLE = CONSOLE[CONSOLE.index("============ Serving") :]
LINES = CONSOLE.splitlines()
SAVED = json.loads((SAMPLES / "vllm-0.32.json").read_text())


def lines_of(items: Iterable[object]) -> str:
    return "".join(f"{json.dumps(each)}\n" for each in items)


AISBENCH = (SAMPLES / "aisbench-3.1.txt").read_text(encoding="utf-8")


def only(text: str, folder: Path) -> Block:
    log = folder / "log"
    log.write_text(text, encoding="utf-8", newline="")
    (block,) = scan_file(log)
    assert isinstance(block, Block), block
    return block


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
    assert new["tpot_ms"].id == "vllm-bench:tpot_ms" and new["tpot_ms"].releases == ">=0.30.0"
    assert new["requests_per_s"].id == "requests_per_s" and new["e2el_ms"].id == "vllm-bench:e2el_ms"


CODE = "".join(f'<div class="line"><span>{line}</span></div>' for line in LINES)
NOTEBOOK = {"cells": [{"cell_type": "code", "outputs": [{"text": [f"{line}\n" for line in LINES]}]}], "nbformat": 4}
ANSWER = {"data": {"result": [{"stream": {"a": "b"}, "values": [[str(at), line] for at, line in enumerate(LINES)]}]}}
WRAPPED = {
    "a page with lines in elements": f"<!DOCTYPE html>\n<html><head><title>x</title></head><body>{CODE}</body></html>",
    "a page with hard spaces": "<html><body>" + "".join(f"<p>{line.replace(' ', '&nbsp;')}" for line in LINES),
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


RANKED = [
    CONSOLE,
    *((SAMPLES / name).read_text(encoding="utf-8") for name in ("evalscope-1.14.txt", "trtllm-bench.txt")),
]


@pytest.mark.parametrize("text", RANKED)
def test_ranks_of_a_parallel_job_are_told_apart(text: str, tmp_path: Path) -> None:
    log = tmp_path / "log"
    lines = text.splitlines()
    log.write_text("".join(f"{rank}: {line}\n" for line in lines for rank in (0, 1)), encoding="utf-8")
    first, second = scan_file(log)
    assert isinstance(first, Block) and isinstance(second, Block)
    assert figures(first) == figures(second) == figures(only(text, tmp_path))
    assert second.first_line == first.first_line + 1


def test_a_saved_table_in_a_log_of_a_collector_is_complete(tmp_path: Path) -> None:
    table = (SAMPLES / "made/guidellm-0.4.csv").read_text(encoding="utf-8")
    logged = lines_of({"log": f"{line}\n", "stream": "stdout"} for line in table.splitlines())
    assert figures(only(logged, tmp_path)) == figures(only(table, tmp_path))


def test_a_mean_without_a_value_leaves_the_others(tmp_path: Path) -> None:
    block = only(json.dumps({**SAVED, "mean_tpot_ms": None}), tmp_path)
    assert block.value("tpot_ms", "mean") is None and block.value("tpot_ms", "median") == SAVED["median_tpot_ms"]
