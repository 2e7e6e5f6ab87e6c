"""What load clients printed and saved is read as it stands: every reader on real results, in every kind of log."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import yaml

from servelab.recorded.readers import Block, ReadError, read_file, scan_file

ROOT = Path(__file__).parents[2]
SAMPLES = ROOT / "tests/data/readers"

EXPECTED = yaml.safe_load((SAMPLES / "expected.yaml").read_text(encoding="utf-8"))


def figures(block: Block) -> dict[str, float | None]:
    return {f"{figure.metric} {figure.statistic}": figure.value for figure in block.figures}


def console(name: str) -> str:
    return (SAMPLES / name).read_text(encoding="utf-8")


LLAMA_BENCH = SAMPLES / "llama-bench.txt"
PRINTED = {
    **{name: SAMPLES / name for name in EXPECTED if name.endswith(".txt") and "/" not in name},
    "llama-bench.txt": LLAMA_BENCH,
    "aiperf": SAMPLES / "aiperf.txt",
    "guidellm": ROOT / "tests/data/clients/guidellm/chat/console.txt",
}
"""What tools print, which tests wrap and damage."""


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_every_reader_on_every_form_of_result(name: str) -> None:
    tool, version, some = EXPECTED[name]
    (block,) = read_file(SAMPLES / name)
    assert (block.tool, block.tool_version) == (tool, version)
    assert {key: figures(block)[key] for key in some} == pytest.approx(some)
    assert block.formulas.keys() == {figure.metric for figure in block.figures if figure.value is not None}
    assert len(figures(block)) == len(block.figures)
    assert set(block.definitions) <= {figure.metric for figure in block.figures}


def core(name: str) -> str:
    """The part of the console with the result."""
    lines = PRINTED[name].read_text(encoding="utf-8").splitlines(keepends=True)
    keep = [n for n, line in enumerate(lines) if re.search(r"[│┃|=└╘┏╒+]", line)]
    start = {"aiperf": 90, "guidellm": 44}.get(name, max(0, keep[0] - 1))
    return "".join(lines[start : 100 if name == "guidellm" else keep[-1] + 1]).replace("```\n", "")


def dressed(name: str, kind: str) -> bytes:
    """A result in a log of some kind."""
    text = core(name)
    lines = text.splitlines()
    bar = "  0%|          | 0/6 [00:00<?, ?it/s]\r100%|██████████| 6/6 [00:05<00:00,  1.2it/s]"
    made = {
        "crlf": text.replace("\n", "\r\n"),
        "indented fence": "??? info\n    ```\n" + "".join(f"    {line}\n" for line in lines) + "    ```\n",
        "quoted": "".join(f"> {line}\n" for line in lines),
        "coloured": "".join(f"\x1b[32m{line}\x1b[0m\n" for line in lines),
        "with progress bars": "".join(f"{bar}\r{line}\n" for line in lines),
        "compose": "".join(f"bench-1  | {line}\n" for line in lines),
        "timestamps": "".join(f"2026-01-02T03:04:{n % 60:02}.{n:06}Z INFO {line}\n" for n, line in enumerate(lines)),
        "json-file": "".join(
            json.dumps({"log": f"{line}\n", "stream": "stdout", "time": "2026-01-02T03:04:05Z"}) + "\n"
            for line in lines
        ),
        "utf-16": text,
        "other lines around": f"INFO ready\n| a | b |\n|---|---|\n| 1 | 2 |\n\n==== 3 passed ====\n{text}\nbye\n",
    }[kind]
    return made.encode("utf-16" if kind == "utf-16" else "utf-8")


KINDS = ["crlf", "indented fence", "quoted", "coloured", "with progress bars", "compose", "timestamps", "json-file"]
KINDS += ["utf-16", "other lines around"]


@pytest.mark.parametrize("name", PRINTED)
def test_same_figures_in_every_kind_of_log(name: str, tmp_path: Path) -> None:
    good = [figures(block) for block in read_file(PRINTED[name])]
    log = tmp_path / "log"
    for kind in KINDS:
        log.write_bytes(dressed(name, kind))
        assert [each if isinstance(each, ReadError) else figures(each) for each in scan_file(log)] == good, kind


def test_blocks_of_several_tools_in_one_file(tmp_path: Path) -> None:
    log = tmp_path / "all.log"
    names = [name for name in EXPECTED if name in PRINTED and name != "trtllm-bench.txt"]
    log.write_text("\n".join(console(name) for name in names), encoding="utf-8")
    blocks = read_file(log)
    assert [block.tool for block in blocks] == [EXPECTED[name][0] for name in names]
    for block in blocks:
        assert all(block.first_line <= figure.line <= block.last_line for figure in block.figures)


def test_unknown_lines_are_kept_and_reported(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text(
        console("sglang-0.5.txt").replace("Concurrency:", "Zeal (zeal/s): 3.00\nConcurrency:"), encoding="utf-8"
    )
    (block,) = read_file(log)
    assert [text for _, text in block.unknown] == ["Zeal (zeal/s): 3.00"]
    assert any("Zeal" in warning for warning in block.warnings)
    assert figures(block) == figures(read_file(SAMPLES / "sglang-0.5.txt")[0])


@pytest.mark.parametrize(
    ("old", "new", "line", "says"),
    [
        ("65536     \n# Total gen", "65636     \n# Total gen", 12, "total_tokens_per_s is 868.8, but"),
        ("10999.46  ", "150999.46 ", 16, "longer than the run's 150.87 s"),
        (
            "70.14     \n# Median TPOT",
            "-70.14    \n# Median TPOT",
            18,
            "`Mean TPOT .ms.` cannot be negative: -70.14",
        ),
        ("# Mean ITL (ms):                           70.14", "# Mean ITL (ms):", 22, "is ``, not a number"),
        ("# Median ITL (ms):                         68.15     \n", "", 5, "line of median of itl_ms is missing"),
        ("# P99 TTFT (ms):", "# Mean TTFT (ms):", 16, "`Mean TTFT .ms.` occurs twice, first in line 14"),
        ("=" * 50 + "\n", "=" * 20 + "\n", 5, "cut off: its last line of `=`"),
        ("= Serving", "= Serv\n# ing", 26, "header is missing"),
        ("Serving Benchmark Result ============", "Serving Benchmark Result =====", 5, "header is cut off"),
    ],
)
def test_broken_blocks_name_file_and_line(old: str, new: str, line: int, says: str, tmp_path: Path) -> None:
    text = console("vllm-0.8.txt")
    assert text.count(old) == 1
    log = tmp_path / "log"
    log.write_text(text.replace(old, new), encoding="utf-8")
    with pytest.raises(ReadError, match=rf"^{log}:{line}: .*{says}"):
        read_file(log)
