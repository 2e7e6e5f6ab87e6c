"""Results printed as tables: read as their tools saved them, and after damage right or refused."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path

import pytest

from servelab.recorded.readers import Block, ReadError, read_file, scan_file

DATA = Path(__file__).parents[1] / "data"
RUNS = {
    "aiperf": DATA / "clients/aiperf/chat/console.txt",
    "guidellm": DATA / "clients/guidellm/chat/console.txt",
    "evalscope": DATA / "readers/evalscope-1.14.txt",
    "evalscope-0.x": DATA / "readers/evalscope-0.x.txt",
    "aisbench": DATA / "readers/aisbench-3.1.txt",
    "genai-perf": DATA / "readers/genai-perf-0.0.16.txt",
    "lmdeploy": DATA / "readers/lmdeploy.txt",
    "trtllm-bench": DATA / "readers/trtllm-bench.txt",
    "llama-bench": DATA / "readers/llama-bench.txt",
}
TOOL = {name: name.removesuffix("-0.x") for name in RUNS}

Figures = dict[tuple[str, str], float | None]


def figures(block: Block) -> Figures:
    return {(figure.metric, figure.statistic): figure.value for figure in block.figures}


def read(text: str, folder: Path) -> list[Block | ReadError]:
    log = folder / "log"
    log.write_text(text, encoding="utf-8", newline="")
    return list(scan_file(log))


def core(name: str) -> str:
    """The part of the console with tables."""
    lines = RUNS[name].read_text(encoding="utf-8").splitlines(keepends=True)
    keep = [n for n, line in enumerate(lines) if re.search(r"[│┃|=└╘┏╒+]", line)]
    start = {"aiperf": 90, "guidellm": 44}.get(name, max(0, keep[0] - 1))
    end = 100 if name == "guidellm" else keep[-1] + 1
    return "".join(lines[start:end])


@pytest.mark.parametrize("run", ["chat", "completions"])
def test_aiperf_prints_what_it_saved(run: str) -> None:
    (printed,) = read_file(DATA / f"clients/aiperf/{run}/console.txt")
    (saved,) = read_file(DATA / f"clients/aiperf/{run}/profile_export_aiperf.json")
    assert len(printed.figures) > 20
    for key, value in figures(printed).items():
        assert value == pytest.approx(figures(saved)[key], abs=0.005001), key


@pytest.mark.parametrize("run", ["chat", "completions"])
def test_guidellm_prints_what_it_saved(run: str) -> None:
    (printed,) = read_file(DATA / f"clients/guidellm/{run}/console.txt")
    report = DATA / f"clients/guidellm/{run}/report.json"
    (saved,) = read_file(report)
    metrics = json.loads(report.read_text())["benchmarks"][0]["metrics"]
    of_all = {
        "concurrency": "request_concurrency",
        "requests_per_s": "requests_per_second",
        "input_tokens_per_s": "prompt_tokens_per_second",
        "output_tokens_per_s": "output_tokens_per_second",
        "total_tokens_per_s": "tokens_per_second",
    }
    assert len(printed.figures) == 23
    for figure in printed.figures:
        value = figures(saved)[figure.metric, figure.statistic]
        if figure.metric in of_all:
            value = metrics[of_all[figure.metric]]["total"]["mean"]
        assert figure.value == pytest.approx(value, abs=max(figure.half_unit, 0.5) * 1.001), figure


AISBENCH_RUN = DATA / "clients/aisbench/chat"
AISBENCH_SAVED = "out/round/performances/server/workload"


@pytest.mark.parametrize(
    ("printed", "saved"),
    [(RUNS["aisbench"], DATA / "readers/aisbench-3.1"), (AISBENCH_RUN / "console.txt", AISBENCH_RUN / AISBENCH_SAVED)],
    ids=["made", "written by the tool"],
)
def test_aisbench_saves_what_it_prints(printed: Path, saved: Path) -> None:
    """The totals in one file, the latencies in the other."""
    (whole,) = read_file(printed)
    parts = {}
    for ending in ("json", "csv"):
        (block,) = read_file(saved.with_suffix(f"{saved.suffix}.{ending}"))
        assert block.definitions.items() <= whole.definitions.items()
        parts |= figures(block)
    assert parts == figures(whole) and len(parts) >= 23


@pytest.mark.parametrize(
    ("ending", "old", "new", "said"),
    [
        ("json", '"Failed Requests"', '"Failed"', "the line of requests_failed is missing"),
        ("json", "534.1828 ms", "534.1828 s", "not a number in ms"),
        (
            "json",
            '"Success Requests": {\n        "total": 8',
            '"Success Requests": {\n        "total": 7',
            "contradicts",
        ),
        ("json", '"total": 8', '"total": [8]', "one value for each stage"),
        ("csv", "E2EL,total,133.3 ms", "E2EL,total,133.3", "not a number in ms"),
        ("csv", "E2EL,total,133.3 ms,", "E2EL,total,", "a row is cut off"),
        ("csv", "E2EL,total", "E2E,total", "no reader knows"),
        ("csv", "133.3 ms,122.1 ms", "133.3 ms,222.1 ms", "contradicts"),
        ("csv", "TTFT,total", "E2EL,total", "`E2EL` occurs twice"),
    ],
)
def test_a_damaged_saved_result_of_aisbench_is_refused(
    ending: str, old: str, new: str, said: str, tmp_path: Path
) -> None:
    text = (DATA / f"readers/aisbench-3.1.{ending}").read_text(encoding="utf-8")
    assert old in text
    (error,) = read(text.replace(old, new, 1), tmp_path)
    assert isinstance(error, ReadError) and said in str(error)


def test_evalscope_prints_what_it_saved() -> None:
    """The run's `benchmark_summary.json`."""
    (block,) = read_file(RUNS["evalscope"])
    saved = {
        ("duration_s", "value"): 0.5342,
        ("requests_per_s", "value"): 14.9761,
        ("e2el_ms", "mean"): 133.3,
        ("output_tokens_per_s", "value"): 179.7138,
        ("total_tokens_per_s", "value"): 314.4991,
        ("ttft_ms", "mean"): 37.91,
        ("tpot_ms", "mean"): 8.67,
        ("itl_ms", "mean"): 8.08,
        ("e2el_ms", "minimum"): 122.1,
        ("ttft_ms", "minimum"): 23.5297,
    }
    for figure in block.figures:
        key = (figure.metric, figure.statistic)
        if key in saved:
            assert figure.value == pytest.approx(saved.pop(key), abs=figure.half_unit * 1.001)
    assert not saved


def test_each_test_of_llama_bench_is_a_block() -> None:
    blocks = read_file(RUNS["llama-bench"])
    assert [block.settings["test"] for block in blocks] == ["pp512", "tg128", "pp512 @ d512", "tg128 @ d512"]
    assert [block.first_line for block in blocks] == [3, 4, 5, 6]
    assert figures(blocks[1]) == {("generated_tokens_per_s", "mean"): 120.6, ("generated_tokens_per_s", "std"): 0.59}


def dressed(text: str, kind: str) -> str:
    lines = text.splitlines()
    return {
        "crlf": text.replace("\n", "\r\n"),
        "coloured": "".join(f"\x1b[32m{line}\x1b[0m\n" for line in lines),
        "timestamps": "".join(f"2026-01-02T03:04:{n % 60:02}.{n:06}Z INFO {line}\n" for n, line in enumerate(lines)),
        "compose": "".join(f"bench-1  | {line}\n" for line in lines),
        "json-file": "".join(
            json.dumps({"log": f"{line}\n", "stream": "stdout", "time": "2026-01-02T03:04:05Z"}) + "\n"
            for line in lines
        ),
        "indented fence": "??? info\n    ```\n" + "".join(f"    {line}\n" for line in lines) + "    ```\n",
        "other lines around": f"INFO ready\n| a | b |\n|---|---|\n| 1 | 2 |\n\n{text}\nbye\n",
    }[kind]


@pytest.mark.parametrize(
    "kind", ["crlf", "coloured", "timestamps", "compose", "json-file", "indented fence", "other lines around"]
)
@pytest.mark.parametrize("name", RUNS)
def test_same_figures_in_every_kind_of_log(name: str, kind: str, tmp_path: Path) -> None:
    good = [figures(block) for block in read_file(RUNS[name])]
    found = read(dressed(core(name), kind), tmp_path)
    assert [each if isinstance(each, ReadError) else figures(each) for each in found] == good
    assert {each.tool for each in found if isinstance(each, Block)} == {TOOL[name]}


def wrong(found: list[Block | ReadError], good: list[Figures]) -> set[tuple[str, str]]:
    """Figures that no block of the whole log has."""
    values = {(key, value) for each in good for key, value in each.items()}
    blocks = [each for each in found if isinstance(each, Block)]
    return {key for block in blocks for key, value in figures(block).items() if (key, value) not in values}


@pytest.mark.parametrize("name", RUNS)
def test_cut_anywhere(name: str, tmp_path: Path) -> None:
    text, good = core(name), [figures(block) for block in read_file(RUNS[name])]
    for place in range(1, len(text), max(1, len(text) // 150)):
        assert not wrong(read(text[:place], tmp_path), good), place


@pytest.mark.parametrize("name", RUNS)
def test_lines_dropped_doubled_moved_or_between(name: str, tmp_path: Path) -> None:
    good = [figures(block) for block in read_file(RUNS[name])]
    lines = core(name).splitlines(keepends=True)
    for index, line in enumerate(lines):
        for damaged in (
            [*lines[:index], *lines[index + 1 :]],
            [*lines[:index], line, *lines[index:]],
            [*lines[:index], *lines[index + 1 : index + 2], line, *lines[index + 2 :]],
            [*lines[:index], "INFO 127.0.0.1 - 200 OK 12.34\n", *lines[index:]],
            [*lines[:index], line[: len(line) // 2] + "\n", *lines[index + 1 :]],
            [*lines[:index], line.replace(".", ","), *lines[index + 1 :]],
        ):
            assert not wrong(read("".join(damaged), tmp_path), good), (index, line)


@pytest.mark.parametrize("name", RUNS)
def test_another_locale(name: str, tmp_path: Path) -> None:
    good = [figures(block) for block in read_file(RUNS[name])]
    text = re.sub(r"(\d)\.(\d)", r"\1;\2", core(name)).replace(",", ".").replace(";", ",")
    assert not wrong(read(text, tmp_path), good)


@pytest.mark.parametrize("name", RUNS)
@pytest.mark.parametrize("seed", range(40))
def test_random_damage(name: str, seed: int, tmp_path: Path) -> None:
    """Digits apart, nothing that happens to a line gives another figure."""
    good = [figures(block) for block in read_file(RUNS[name])]
    lines = core(name).splitlines(keepends=True)
    chance = random.Random(f"{name} {seed}")
    index = chance.randrange(len(lines))
    line = lines[index]
    place = chance.randrange(len(line))
    other = chance.choice([" ", "x", "-", "%", ":", "\n", "\r", "=", "(", "|", "│", "\x1b[0m", "N/A"])
    cut = chance.choice([0, 1, 1, 3])
    if any(each.isdigit() or each in ".," for each in line[place - 1 : place + cut + 1]):
        cut = 0
        place = len(line.rstrip())
    damaged = line[:place] + other + line[place + cut :]
    found = read("".join([*lines[:index], damaged, *lines[index + 1 :]]), tmp_path)
    assert not wrong(found, good), damaged
