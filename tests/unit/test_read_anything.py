"""The reader pointed at anything: JSON within text, Docker's logs, folders, archives, pages; nothing ends the run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from servelab_command import run_servelab

from servelab.recorded.anything import read_anything
from servelab.recorded.readers import Block, ReadError, read_file, scan_file

ROOT = Path(__file__).parents[2]
SAMPLES = ROOT / "tests/data/readers"
SAVED = json.loads((SAMPLES / "vllm-0.32.json").read_text())
CONSOLE = (SAMPLES / "sglang-0.5.txt").read_text()


def scanned(text: str, folder: Path) -> tuple[list[Block | ReadError], list[str]]:
    log, notes = folder / "log", []
    log.write_text(text, encoding="utf-8")
    return list(scan_file(log, notes)), notes


@pytest.mark.parametrize(
    "text",
    [
        f"# Page\n\n```json\n{json.dumps(SAVED, indent=2)}\n```\nend\n",
        f"INFO saved: {json.dumps(SAVED)}\nmore\n",
        f"2026-01-02 03:04:05 INFO {json.dumps(SAVED)}\n",
        "ready\n" + "".join(f"bench-1 | {line}\n" for line in json.dumps(SAVED, indent=1).splitlines()),
        "function() {\n  return 1\n}\n" + json.dumps(SAVED, indent=2) + "\n",
    ],
)
def test_json_within_text(text: str, tmp_path: Path) -> None:
    ((block,), _) = scanned(text, tmp_path)
    assert isinstance(block, Block)
    assert block.metrics() == read_file(SAMPLES / "vllm-0.32.json")[0].metrics()


BLOCK = CONSOLE.replace("```\n", "")
PAGE = f"""# A page
## H100
### Baseline
```bash
$ vllm serve m \\
    --max-num-seqs 8
```
??? info "Benchmark result"
```text title="a.log"
{BLOCK}```
### Tuned
Of the second run:
```
$ python -m sglang.bench_serving --backend sglang
{BLOCK.replace("483.53", "483.54")}```
"""


def test_each_result_has_the_headings_and_the_command_above_it(tmp_path: Path) -> None:
    (tmp_path / "page.md").write_text(PAGE)
    (found,) = read_anything(tmp_path / "page.md")
    (_, first), (_, second) = found.blocks
    assert first.headings == ("A page", "H100", "Baseline")
    assert first.command == "vllm serve m --max-num-seqs 8"
    assert second.headings == ("A page", "H100", "Tuned")
    assert second.command == "python -m sglang.bench_serving --backend sglang"


def files(folder: Path) -> dict[str, bytes]:
    made = {"a/page.md": PAGE.encode(), "cut.log": CONSOLE[:900].encode(), "notes.txt": b"nothing\n", "x.png": b"\x89"}
    for name, content in made.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    return made


def test_the_command_line_reads_a_folder(tmp_path: Path) -> None:
    files(tmp_path)
    done = run_servelab("read", tmp_path)
    printed = [json.loads(line) for line in done.stdout.splitlines()]
    assert [each["place"]["headings"][-1] for each in printed] == ["Baseline", "Tuned"]
    assert printed[0]["formulas"]["tpot_ms"].keys() == {"id", "releases", "text"}
    assert done.returncode == 1
    assert sorted(line.split(":")[0] for line in done.stderr.splitlines())[:2] == ["error", "error"]
    assert sum(line.startswith("note: ") for line in done.stderr.splitlines()) == 2


def test_a_credential_that_a_client_saved_is_not_printed(tmp_path: Path) -> None:
    key = "Kq7" * 9
    saved = json.loads((SAMPLES / "vllm-0.32.json").read_text())
    saved |= {"extra_headers": {"Authorization": f"Bearer {key}"}, "argv": f"--api-key {key}"}
    (tmp_path / "a.json").write_text(json.dumps(saved))
    done = run_servelab("read", tmp_path / "a.json")
    assert key not in done.stdout and json.loads(done.stdout)["settings"]["argv"] == "--api-key redacted-secret"
