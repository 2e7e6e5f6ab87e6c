"""Drafts of recorded studies: pages and folders whose truth is known, and damaged ones."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

import made_pages as made
import pytest

from servelab.core.errors import ConfigError
from servelab.recorded.draft.drafted import draft
from servelab.recorded.draft.workloads import Workload, name_workloads
from servelab.recorded.draft.writing import write_draft
from servelab.recorded.readers import read_file
from servelab.study.recorded.commands import read_command
from servelab.study.recorded.study import RecordedStudy, load_recorded

ROOT = Path(__file__).parents[2]


def drafted(folder: Path, source: Path, name: str = "drafted") -> RecordedStudy:
    write_draft(draft(source, name), folder / name)
    return load_recorded(folder / name)


def claims_of(study: RecordedStudy, kind: str) -> list[tuple[object, ...]]:
    keys = ("candidate", "against", "workload", "metric", "printed")
    return [
        tuple(getattr(claim, key) for key in keys if hasattr(claim, key))
        for claim in study.claims
        if claim.kind == kind
    ]


def test_a_page_becomes_a_study(tmp_path: Path) -> None:
    (tmp_path / "tiny.md").write_text(made.markdown())
    study = drafted(tmp_path, tmp_path / "tiny.md")
    commands = {name: each.command for name, each in study.candidates.items()}
    assert list(commands.values()) == [made.VLLM, made.SGL, made.FP8_KV, made.OOM]
    vllm, sglang, cache, crash = commands
    assert vllm.partition("/")[0] == sglang.partition("/")[0] != cache.partition("/")[0]
    assert study.baseline == vllm
    assert study.candidates[crash].outcome == "crash"
    assert "out of memory" in str(study.candidates[crash].message)
    assert study.model.id == made.MODEL
    assert (study.hardware.accelerator, study.hardware.per_node) == ("NVIDIA A100", 2)
    assert {each.accelerators for each in study.candidates.values()} == {2}
    assert {name: each.version for name, each in study.engines.items()} == {"vllm": "0.12.1", "sglang": "0.5.6"}
    lengths = {(each.input_tokens, each.output_tokens, each.prompts) for each in study.workloads.values()}
    assert lengths == {(1024, 256, 200), (8000, 500, 40)}
    assert [len(each.logs) for each in study.candidates.values()] == [2, 1, 2, 0]


def test_figures_and_percentages_become_claims_and_no_others(tmp_path: Path) -> None:
    (tmp_path / "tiny.md").write_text(made.markdown())
    study = drafted(tmp_path, tmp_path / "tiny.md")
    vllm, sglang, cache, _ = study.candidates
    on = study.objective.on
    total, tpot = "total_tokens_per_s", "tpot_ms"
    assert sorted(claims_of(study, "figure")) == sorted(
        [
            (sglang, on, total, made.SGLANG.total),
            (vllm, on, total, made.BASE.total),
            (vllm, on, tpot, "21.50"),
            (sglang, on, total, made.SGLANG.total),
            (sglang, on, tpot, "19.25"),
            (cache, on, total, made.KV.total),
            (cache, on, tpot, "17.75"),
        ]
    )
    assert sorted(claims_of(study, "change")) == sorted(
        [
            (sglang, vllm, on, total, "15.4"),
            (cache, vllm, on, total, "39.5"),
            (sglang, vllm, on, total, "+15.4"),
            (cache, vllm, on, total, "+39.5"),
        ]
    )
    assert "0.4%" in (tmp_path / "drafted/unplaced.md").read_text()


def test_options_in_a_table_are_no_figures(tmp_path: Path) -> None:
    rows = f"| A | `{made.VLLM} --max-num-seqs 512` | {made.BASE.total} |\n| B | `{made.FP8_KV}` | {made.KV.total} |"
    table = f"## Total throughput\n\n| Name | Command | tok/s |\n|---|---|---|\n{rows}\n"
    (tmp_path / "tiny.md").write_text(made.markdown().split("## All figures")[0] + table)
    study = drafted(tmp_path, tmp_path / "tiny.md")
    assert {claim[-1] for claim in claims_of(study, "figure")} == {made.SGLANG.total, made.BASE.total, made.KV.total}


def test_a_saved_page_keeps_its_lines_and_a_wrong_figure_for_the_audit(tmp_path: Path) -> None:
    (tmp_path / "post.html").write_text(made.page())
    study = drafted(tmp_path, tmp_path / "post.html")
    assert [each.command.split()[-2:] for each in study.candidates.values()] == [
        ["--model-path", "acme/DeepSeek-Lite-16B"],
        ["--attention-backend", "fa3"],
    ]
    default, tuned = study.candidates
    assert study.baseline == default
    lines = made.page().split("\n")
    for claim in study.claims:
        printed = getattr(claim, "printed", None)
        assert claim.line and (printed is None or printed in lines[claim.line - 1]), claim
    on = study.objective.on
    wrong = (tuned, on, "total_tokens_per_s", "9999.99")
    assert wrong in claims_of(study, "figure")
    assert (tuned, default, on, "total_tokens_per_s", "+39.5") in claims_of(study, "change")
    text = (tmp_path / "drafted/study.yaml").read_text()
    assert "# guessed" in next(line for line in text.split("\n") if "9999.99" in line)
    assert "31%" in (tmp_path / "drafted/unplaced.md").read_text()


def test_a_folder_of_logs_becomes_a_study(tmp_path: Path) -> None:
    logs = tmp_path / "sweep"
    for name, run, command in (("base", made.BASE, made.VLLM), ("kv", made.KV, made.FP8_KV)):
        (logs / name).mkdir(parents=True)
        (logs / name / "serve.sh").write_text(f"#!/bin/bash\n{command}\n")
        (logs / name / "bench.log").write_text(f"INFO starting\n{run.console()}\n")
    study = drafted(tmp_path, logs)
    assert [each.command for each in study.candidates.values()] == [made.VLLM, made.FP8_KV]


def test_each_row_of_a_table_of_results_becomes_a_log(tmp_path: Path) -> None:
    table = (ROOT / "tests/data/readers/llama-bench.txt").read_text()
    (tmp_path / "rows.md").write_text(f"# Tiny-1B\n\n```\n{table}\n```\n")
    study = drafted(tmp_path, tmp_path / "rows.md")
    kept = len(list(study.log_files())) + len(list((tmp_path / "drafted").glob("unplaced/*")))
    assert kept == len(read_file(ROOT / "tests/data/readers/llama-bench.txt")) > 1


def test_the_command_writes_it_and_says_what_it_found(tmp_path: Path) -> None:
    (tmp_path / "tiny.md").write_text(made.markdown())
    command = [sys.executable, str(ROOT / "scripts/draft_study.py"), str(tmp_path / "tiny.md"), "--into"]
    done = subprocess.run([*command, str(tmp_path / "mine")], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert "4 candidates, 5 logs" in done.stdout
    assert load_recorded(tmp_path / "mine").study == "mine"
    again = subprocess.run([*command, str(tmp_path / "mine")], capture_output=True, text=True, timeout=300)
    assert again.returncode == 2
    assert "there is a study already" in again.stderr
    assert "Traceback" not in again.stderr


def _damaged() -> list[tuple[str, bytes]]:
    text = made.markdown()
    whole = text.encode()
    shuffled = random.Random(3)
    unclosed = [at for at in range(len(text)) if text.startswith("```", at)]
    cases = [(f"cut-{share}", whole[: len(whole) * share // 100]) for share in (30, 45, 60, 75, 90)]
    cases += [(f"fence-{number}", (text[:at] + text[at + 3 :]).encode()) for number, at in enumerate(unclosed[:8])]
    cases += [
        ("utf-16", text.encode("utf-16")),
        ("latin", text.replace("Which", "Qu\xe9").encode("latin-1")),
        ("nulls", whole.replace(b"Cache", b"Ca\x00\x01che")),
        ("crlf", whole.replace(b"\n", b"\r\n")),
        ("noise", bytes(each if shuffled.random() > 0.01 else shuffled.randrange(256) for each in whole)),
        ("html", made.page().encode()[:-900]),
        ("pipes", whole + b"| a | b |\n|---|---|\n" + b"|" * 100_000),
        ("commands", whole + b"\n```\n" + b"vllm serve a/b-1B --a 1\n" * 20_000),
        ("line", whole + b"\n" + b"a " * 2_000_000 + b"\n| b |\n"),
        ("quotes", whole + b"\n```\n$ vllm serve 'x --a\n```\n"),
    ]
    return cases


@pytest.mark.parametrize(("name", "content"), _damaged())
def test_a_damaged_page_is_drafted_or_refused_in_one_line(tmp_path: Path, name: str, content: bytes) -> None:
    source = tmp_path / ("page.html" if name == "html" else "page.md")
    source.write_bytes(content)
    try:
        study = drafted(tmp_path, source)
    except ConfigError as error:
        assert "\n" not in str(error)
        assert b"====\n" not in content or "no result" in str(error)
        return
    logs = [path.read_text(errors="replace") for path in (tmp_path / "drafted").glob("*/*.txt")]
    kept = sum(text.count("Serving Benchmark Result") for text in logs)
    unread = (tmp_path / "drafted/unplaced.md").read_text().count("cannot be read")
    assert kept + unread >= content.decode("utf-8", "replace").count("= Serving Benchmark Result =")
    assert study.candidates


def test_of_a_large_page_as_much_is_read_as_time_allows(tmp_path: Path) -> None:
    text = made.markdown() + "\nThe 3 servers use 12.5% of | a table > of 4 tok/s. `x`\n" * 10_100
    (tmp_path / "large.md").write_text(text + "| 1 | 2 |\n|---|---|\n" + "| 3.14159 | 2.71828 |\n" * 5_000)
    study = drafted(tmp_path, tmp_path / "large.md")
    assert len(study.candidates) == 4
    left = (tmp_path / "drafted/unplaced.md").read_text()
    assert "lines of text from here on" in left
    assert "a table of 5000 numbers" in left


def test_workloads_that_look_alike_have_names_of_their_own() -> None:
    alike = [Workload() for _ in range(3)]
    for each in alike:
        each.dataset, each.prompts = "ShareGPT", 10
    taken = Workload()
    taken.dataset, taken.prompts = "ShareGPT 2", 10
    name_workloads([alike[0], taken, *alike[1:]])
    assert [each.name for each in (alike[0], taken, *alike[1:])] == [
        "sharegpt",
        "sharegpt-2",
        "sharegpt-3",
        "sharegpt-4",
    ]


def test_a_page_without_results_is_refused(tmp_path: Path) -> None:
    (tmp_path / "empty.md").write_text("# Nothing\n\n```\nvllm serve a/b-1B\n```\n")
    with pytest.raises(ConfigError, match="no result of a load client"):
        draft(tmp_path / "empty.md", "empty")
    with pytest.raises(ConfigError, match="no such file"):
        draft(tmp_path / "none.md", "none")


def _with_a_tuned_server(name: str) -> str:
    """The page with its long load sent to a server of another command, under the name of the one with an FP8 cache."""
    text = made.markdown().split("## Memory share")[0]
    text = text.replace("Storing the cache in FP8:", f"{name}:")
    tuned = f"{made.FP8_KV} --max-num-seqs 64"
    more = f"## Long prompts\n\n{name}:\n\n```bash\n{tuned}\n```\n\n```text\n{made.LONG_KV.console()}\n```\n"
    return text + more


def test_a_command_tried_under_two_questions_is_a_candidate_of_both(tmp_path: Path) -> None:
    block = f"```text\n{made.BASE.console()}\n```"
    other = f"```text\n{made.KV.console()}\n```"
    page = f"""# Tiny

## Sequences

```bash
vllm serve acme/tiny --max-num-seqs 64
```

{block}

## Sequences and blocks

### Blocks of 16

```bash
vllm serve acme/tiny --max-num-seqs 64
```

{block}

### Blocks of 32

```bash
vllm serve acme/tiny --max-num-seqs 64 --block-size 32
```

{other}
"""
    (tmp_path / "tiny.md").write_text(page)
    study = drafted(tmp_path, tmp_path / "tiny.md")
    assert [(stage.name, len(stage.candidates)) for stage in study.stages] == [
        ("sequences", 1),
        ("sequences-and-blocks", 2),
    ]


def test_figures_in_brackets_are_of_those_that_have_them(tmp_path: Path) -> None:
    fast, slow = made.KV.total, made.BASE.total
    (tmp_path / "tiny.md").write_text(
        f"# Tiny\n\n## Plain\n\n```bash\n{made.VLLM}\n```\n\n```text\n{made.BASE.console()}\n```\n\n"
        f"## Cache\n\n```bash\n{made.FP8_KV}\n```\n\n```text\n{made.KV.console()}\n```\n\n"
        f"`Cache` is faster than `Plain` ({fast} vs {slow} tok/s).\n\n"
        f"| | Plain | Cache |\n|---|---|---|\n| Speedup | | {float(fast) / float(slow):.2f}x |\n"
    )
    study = drafted(tmp_path, tmp_path / "tiny.md")
    plain, cache = study.candidates
    assert [(each[0], each[-1]) for each in claims_of(study, "figure")] == [(cache, fast), (plain, slow)]
    assert [each[:2] for each in claims_of(study, "change")] == [(cache, plain)]


def test_json_without_quotes_is_one_value() -> None:
    text = 'vllm serve acme/tiny --speculative-config={"method":"mtp","num_speculative_tokens":1} --max-num-seqs 4'
    quoted = (
        """vllm serve acme/tiny --speculative-config '{"method":"mtp","num_speculative_tokens":1}' --max-num-seqs=4"""
    )
    assert read_command(text) == read_command(quoted)


def test_a_candidate_has_the_command_of_each_workload(tmp_path: Path) -> None:
    (tmp_path / "tiny.md").write_text(_with_a_tuned_server("Tuned server"))
    study = drafted(tmp_path, tmp_path / "tiny.md")
    *_, tuned = study.candidates.values()
    (long,) = set(tuned.logs) - {study.objective.on}
    assert (tuned.command, tuned.command_on(study.objective.on)) == (made.FP8_KV, made.FP8_KV)
    assert tuned.commands == {long: f"{made.FP8_KV} --max-num-seqs 64"}
    text = (tmp_path / "drafted/study.yaml").read_text()
    assert "commands: # guessed: results under the same name, with another command" in text


def test_a_command_that_only_ran_on_another_workload_is_a_candidate(tmp_path: Path) -> None:
    page = _with_a_tuned_server("Tuned server").split("## Long prompts")
    (tmp_path / "tiny.md").write_text(page[0] + "## Long prompts" + page[1].replace("Tuned server", "With few at once"))
    study = drafted(tmp_path, tmp_path / "tiny.md")
    *others, few = study.candidates.values()
    assert len(others) == 3 and few.command == f"{made.FP8_KV} --max-num-seqs 64"
    assert few.outcome_on(study.objective.on) == "not run" and len(few.logs) == 1


def test_a_result_that_contradicts_itself_is_kept_beside_the_draft(tmp_path: Path) -> None:
    text = made.markdown().replace(made.KV.total, "9999.99", 1)
    (tmp_path / "tiny.md").write_text(text)
    study = drafted(tmp_path, tmp_path / "tiny.md")
    assert len(list(study.log_files())) == 4
    (left,) = (tmp_path / "drafted/unplaced").iterdir()
    assert "9999.99" in left.read_text() and "Mean ITL" in left.read_text()
    assert "a result that cannot be read" in (tmp_path / "drafted/unplaced.md").read_text()


def test_results_without_a_command_are_marked(tmp_path: Path) -> None:
    (tmp_path / "bare.md").write_text(
        f"# Tiny-20B\n\n## One\n\n{made.BASE.console()}\n\n## Two\n\n{made.KV.console()}\n"
    )
    study = drafted(tmp_path, tmp_path / "bare.md")
    assert [each.command for each in study.candidates.values()] == ["unknown", "unknown"]
    marked = [line for line in (tmp_path / "drafted/study.yaml").read_text().split("\n") if "command:" in line]
    assert all("# guessed: no serving command found" in line for line in marked)
