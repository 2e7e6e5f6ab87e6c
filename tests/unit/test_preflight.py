"""Preflight: every check with a study that it is content with and one that it is not, its table, its command line."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from made_preflight import made_study, make_model
from servelab_command import run_servelab

from servelab.core.identity import workload_id
from servelab.engines.adapters import ENGINES
from servelab.engines.runtimes import RUNTIMES
from servelab.search.preflight import CHECKS, WIDTH, preflight, troubles
from servelab.search.preflight.place import known_candidates
from servelab.search.project import load_project

ROOT = Path(__file__).parents[2]
Content = dict[str, Any]
Change = Callable[[Content, Path], None]
SLOS = {"ttft_ms": 500}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder for files and results, on a machine without accelerators."""
    (tmp_path / "empty").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    return tmp_path


@pytest.fixture
def content(folder):
    return made_study(folder)


@pytest.fixture
def load(folder, content):
    """The study as it stands, as a project."""

    def project():
        file = folder / "made-32b.yaml"
        file.write_text(yaml.safe_dump(content, sort_keys=False))
        return load_project(file, ROOT)

    return project


@pytest.fixture
def built(folder, load):
    """The engine's environment, built before a test changes anything."""
    project = load()
    environment = folder / "results/envs" / f"vllm-{project.environment_sha256('vllm')[:12]}"
    RUNTIMES.get("host").build(ENGINES.get("vllm"), project.lock("vllm"), environment)
    return environment


@pytest.fixture
def check(folder, load):
    """Rows of the study's preflight as it stands."""
    return lambda *, ask=True: preflight(load(), folder / "results", ask=ask)


def baseline_options(**options: Any) -> Change:
    return lambda content, folder: content["baseline"]["options"].update(options)


def candidate(**candidate: Any) -> Change:
    def change(content: Content, folder: Path) -> None:
        content["stages"][0]["candidates"] = [candidate]

    return change


def shape(**config: Any) -> Change:
    """Another model."""

    def change(content: Content, folder: Path) -> None:
        content["model"]["source"]["path"] = str(make_model(folder / "other", config))

    return change


def model_path(path: str) -> Change:
    return lambda content, folder: content["model"]["source"].update(path=path)


def without(name: str) -> Change:
    return lambda content, folder: (folder / "model" / name).unlink()


def hardware(**hardware: Any) -> Change:
    return lambda content, folder: content["hardware"].update(hardware)


def workload(name: str) -> Change:
    def change(content: Content, folder: Path) -> None:
        content["workloads"].append(name)

    return change


def objective(protocol: Content | None = None, **objective: Any) -> Change:
    """Another objective, and another protocol if it is given."""

    def change(content: Content, folder: Path) -> None:
        content["objective"].update(objective)
        content["protocol"].update(protocol or {})

    return change


def protocol(**protocol: Any) -> Change:
    return lambda content, folder: content["protocol"].update(protocol)


def yarn(flag: str, value: Any) -> Change:
    """A longer context than the model's own, by an override of its configuration."""
    return candidate(arguments={flag: value}, options={"context_length": 131072})


def pinned_adapter(content: Content, folder: Path) -> None:
    content["model"]["second_models"] = {"me/sql-lora": "0" * 40}
    candidate(arguments={"enable-lora": None, "lora-modules": "sql=me/sql-lora"})(content, folder)


def own_draft(content: Content, folder: Path) -> None:
    """A draft in a folder, as large as the model, that keeps two layers more."""
    draft = {"model": str(make_model(folder / "draft", {"num_hidden_layers": 2})), "method": "eagle3"}
    candidate(arguments={"speculative-config": json.dumps(draft)})(content, folder)


LONG = ("ok", "context length 131,072 (set)")


def fp8_blocks(content: Content, folder: Path) -> None:
    """Experts of Qwen3-235B on eight accelerators: 1536 / 8 = 192."""
    quantised = {"quant_method": "fp8", "weight_block_size": [128, 128]}
    shape(moe_intermediate_size=1536, quantization_config=quantised)(content, folder)
    content["stages"][0]["candidates"] = [{"options": {"tensor_parallel_size": 8}, "accelerators": 8}]


def awq_on_fp8(content: Content, folder: Path) -> None:
    shape(quantization_config={"quant_method": "fp8"})(content, folder)
    candidate(arguments={"quantization": "awq"})(content, folder)


def fp8_cache_on_ampere(content: Content, folder: Path) -> None:
    hardware(accelerator="NVIDIA A100 80GB")(content, folder)
    content["stages"][0]["candidates"] = [
        {"options": {"kv_cache_dtype": "fp8"}, "environment_variables": {"VLLM_ATTENTION_BACKEND": "FLASH_ATTN"}}
    ]


def nothing(content: Content, folder: Path) -> None:
    """As it is."""


# check: what is changed, and the worst verdict with a part of what was seen
CASES: dict[str, list[tuple[Change, str, str]]] = {
    "accelerators": [
        (nothing, "ok", "tensor 2 × pipeline 1 × data 1 of 2; 64 attention heads, 8 KV heads"),
        (baseline_options(tensor_parallel_size=4), "error", "needs 4 accelerators, it has 2"),
        (candidate(accelerators=4), "warning", "uses 2 of 4 accelerators"),
        (shape(num_attention_heads=25), "error", "25 attention heads are not divisible by tensor parallel size 2"),
        (candidate(arguments={"tensor-parallel-size": 4}, options={"tensor_parallel_size": None}), "error", "needs 4"),
    ],
    "context": [
        (nothing, "ok", "context length 8,192 (set), requests of at most 4,200 tokens (long-4000x200)"),
        (baseline_options(context_length=65536), "error", "65,536 is above the model's 40,960 positions"),
        (baseline_options(context_length=4199), "error", "context length 4,199 (set), requests of at most 4,200"),
        (candidate(options={"context_length": 2099}), "error", "requests of at most 2,100 tokens (medium-2000x100)"),
        (shape(max_position_embeddings=None), "ok", "context length 8,192"),
        (yarn("hf-overrides", '{"rope_parameters": {"rope_type": "yarn", "factor": 4}}'), *LONG),
        (yarn("hf-overrides.max_position_embeddings", 131072), *LONG),
        (candidate(arguments={"max-model-len": 2000}, options={"context_length": None}), "error", "length 2,000 (set)"),
    ],
    "effective": [
        (own_draft, "ok", "/draft"),
        (nothing, "ok", "max_num_seqs 1024 → 16"),
        (candidate(options={"enforce_eager": False}), "warning", "vllm serves it as the baseline"),
        (candidate(balancer="nginx", options={"max_num_seqs": 128}), "ok", "1024 → 128, balancer round_robin → nginx"),
    ],
    "environment": [
        (nothing, "ok", "built from vllm.host.yaml (host); it reports version 0.11.0"),
        (lambda content, folder: (folder / "python").write_text("#!/bin/sh\necho 0.12.0\n"), "error", "here is 0.12.0"),
        (lambda content, folder: (folder / "python").unlink(), "error", "is gone"),
    ],
    "load": [
        (nothing, "ok", "neither latencies nor SLOs"),
        (
            objective(metric="ttft_ms"),
            "warning",
            "sent when one ends, so a slow server gets less load: ttft_ms depends",
        ),
        (objective(constraints={"slo_attainment": {"mean": 0.9}}, slos=SLOS), "warning", "slo_attainment depends"),
        (
            objective(constraints={"ttft_ms": {"p99": 2000}}, protocol={"max_concurrency": None}),
            "warning",
            "all requests are sent at once: ttft_ms then measures the queue",
        ),
        (objective(metric="ttft_ms", protocol={"request_rate": 2}), "ok", "requests arrive at a rate of their own"),
    ],
    "memory": [
        (nothing, "ok", "about 1.1 GiB to work, KV 16.4 GiB for 64 sequences of 2,100 tokens on 79.2 GiB × 0.9"),
        (baseline_options(memory_share=0.35), "warning", "weights 30.5 GiB, about 1.1 GiB to work on 79.2 GiB × 0.35"),
        (
            candidate(options={"max_num_seqs": 512, "memory_share": 0.5}),
            "warning",
            "for 64 sequences of 2,100 tokens on 79.2 GiB × 0.5 (from its name): about 31 of 64 fit at once",
        ),
        (baseline_options(context_length=40960, memory_share=0.42), "warning", "KV 5.0 GiB for 1 sequence of 40,960"),
        (hardware(accelerator="NVIDIA L40S"), "ok", "about 33 of 64 fit at once"),
        (hardware(accelerator="A board"), "unknown", "how much memory `A board` has is not known"),
        (shape(num_hidden_layers=None), "unknown", "size and shape of the model are not known"),
        (candidate(arguments={"quantization": "fp8"}), "ok", "weights 15.3 GiB"),
        (candidate(arguments={"cpu-offload-gb": 20}), "ok", "weights 10.5 GiB"),
        (own_draft, "ok", "weights 61.0 GiB with the draft's, about 1.1 GiB to work, KV 16.9 GiB for 64 sequences"),
    ],
    "model": [
        (nothing, "ok", "is there, 61.0 GiB of weights"),
        (model_path("/no/such/folder"), "error", "/no/such/folder: No such file"),
        (without("tokenizer.json"), "error", "without `tokenizer.json`"),
        (pinned_adapter, "unknown", "me/sql-lora at 000000000000: no answer from"),
    ],
    "options": [
        (candidate(options={"tensor_parallel_size": 2}), "warning", "is the baseline itself"),
        (nothing, "ok", "flags, all known to vllm 0.11.0"),
        (candidate(arguments={"no-such-flag": None}), "error", "has no --no-such-flag"),
        (candidate(arguments={"enable-reasoning": None}), "error", "has no --enable-reasoning"),
        (
            candidate(accelerators=4, options={"tensor_parallel_size": None}),
            "warning",
            "refused: engine vllm would use 1 of 4",
        ),
    ],
    "settings": [
        (nothing, "ok", "vllm starts with these numbers"),
        (
            candidate(options={"chunked_prefill": False, "max_num_batched_tokens": 4096}),
            "error",
            "4,096 is below the context of 8,192 tokens",
        ),
        (candidate(options={"chunked_prefill": False, "max_num_batched_tokens": 8192}), "ok", "starts"),
        (candidate(options={"max_num_seqs": 512, "max_num_batched_tokens": 256}), "error", "max_num_seqs 512 is above"),
        (
            candidate(arguments={"speculative-config": '{"method": "eagle3", "model": "AngelSlim/Qwen3-32B_eagle3"}'}),
            "error",
            "names AngelSlim/Qwen3-32B_eagle3 of the hub, which is not fetched",
        ),
        (candidate(arguments={"speculative-config": '{"method": "ngram", "model": "/models/draft"}'}), "ok", "starts"),
        (
            candidate(arguments={"enable-lora": None, "lora-modules": "sql=me/sql-lora"}),
            "error",
            "names me/sql-lora of",
        ),
        (pinned_adapter, "ok", "starts"),
        (awq_on_fp8, "error", "quantization `awq` of weights that are stored as `fp8`"),
        (fp8_cache_on_ampere, "error", "needs compute capability 9.0, NVIDIA A100 80GB has 8.0"),
        (fp8_blocks, "error", "moe_intermediate_size 1536 / tensor_parallel_size 8 = 192, in blocks of 128"),
    ],
}


def test_every_check_has_its_cases():
    assert list(CASES) == CHECKS.names()
    for name, cases in CASES.items():
        verdicts = {verdict for _, verdict, _ in cases}
        assert "ok" in verdicts and verdicts & {"error", "warning"}, name


@pytest.mark.parametrize(
    ("name", "change", "verdict", "text"),
    [pytest.param(name, *case, id=f"{name}-{case[2][:40]}") for name, cases in CASES.items() for case in cases],
)
def test_check(check, built, content, folder, name, change, verdict, text):
    change(content, folder)
    rows = [row for row in check() if row.check == name]
    worst = min(rows, key=lambda row: ("error", "warning", "unknown", "ok").index(row.verdict))
    assert worst.verdict == verdict, worst
    assert text in " | ".join(row.saw for row in rows if row.verdict == verdict)
    assert verdict == "ok" or worst.action
    assert "enable-reasoning" not in text or "--reasoning-parser" in worst.action


POOL = "KV Cache is allocated. dtype: torch.bfloat16, #tokens: 9, "
"""As SGLang 0.5.23 prints it for each rank, and for a draft."""


@pytest.mark.parametrize(
    ("engine", "lines", "work"),
    [
        ("vllm", "Available KV cache memory: 1.71 GiB\n", "39.1"),
        ("tensorrt-llm", "[MemUsageChange] Allocated 1.71 GiB for max tokens in paged KV cache (7004).\n", "39.1"),
        ("sglang", f"{POOL}K size: 0.80 GB, V size: 0.81 GB\n{POOL}K size: 0.01 GB, V size: 0.01 GB", "33.4"),
        ("sglang", f"SWA {POOL}KV size: 0.90 GB\nSWAKVPool mem usage: 1.61 GB, swa size: 9", "33.4"),
    ],
)
def test_past_starts_correct_the_estimates_of_the_next(check, built, content, load, folder, engine, lines, work):
    host = {"version": "1.2.0rc1", "runtime": "host", "lock": "envs/tensorrt-llm-1.2.0rc1.host.yaml"}
    content["engines"] |= {"sglang": {"version": "0.5.23", "lock": "envs/sglang-0.5.23.lock.txt"}, "tensorrt-llm": host}
    content["baseline"]["engine"] = engine
    (run := folder / "results/runs" / ("0" * 20)).mkdir(parents=True)
    (run / "spec.json").write_text(known_candidates(load(), folder)[0].planned.runs[0].spec.model_dump_json())
    (run / "status.json").write_text("{}")
    (run / "server.log").write_text(lines)
    saw = [row.saw for row in check() if row.check == "memory"]
    assert [f"as past starts measured {work} G" in each and "about 6 of " in each for each in saw] == [True, True]


def test_a_check_has_a_row_for_each_candidate_it_knows(check, content):
    content["stages"].append({"name": "eager", "candidates": [{"options": {"enforce_eager": True}}]})
    rows = check()
    names = ["baseline", "sequences: max_num_seqs=16", "eager: enforce_eager=true"]
    for name in ("accelerators", "context", "memory", "options"):
        assert [row.of for row in rows if row.check == name] == names
    assert [row.of for row in rows if row.check == "environment"] == ["vllm 0.11.0"]
    assert [row.of for row in rows if row.check == "model"] == ["model made-32b"]
    assert [row.of for row in rows if row.check == "load"] == ["objective on medium-2000x100"]


def test_stage_for_another_engine_is_put_on_the_candidate_it_applies_to(load, content, folder):
    content["engines"]["sglang"] = {"version": "0.5.9", "lock": "envs/sglang-0.5.9.lock.txt"}
    content["stages"] += [
        {"name": "engine", "candidates": [{"engine": "sglang"}]},
        {"name": "attention", "when": {"engine": "sglang"}, "candidates": [{"options": {"attention_backend": "fa3"}}]},
        {"name": "never", "when": {"accelerators": 7}, "candidates": [{"options": {"enforce_eager": True}}]},
    ]
    known = known_candidates(load(), folder / "results")
    configurations = {entry.name: entry.configuration for entry in known}
    assert configurations["attention: attention_backend=fa3"].engine == "sglang"
    assert not any(name.startswith("never") for name in configurations)


@pytest.mark.parametrize("study", sorted((ROOT / "config/studies").glob("*.yaml")), ids=lambda path: path.stem)
def test_flags_of_every_study_are_known_in_a_fresh_clone(study, tmp_path):
    rows = [row for row in preflight(load_project(study, ROOT), tmp_path, ask=False) if row.check == "options"]
    assert rows
    assert {row.verdict for row in rows} == {"ok"}, rows


def test_nothing_is_asked_at_the_start_of_a_run(check, content, folder, monkeypatch):
    baseline_options(tensor_parallel_size=4)(content, folder)
    (folder / "python").write_text("#!/bin/sh\ntouch asked\n")
    monkeypatch.chdir(folder)
    rows = check(ask=False)
    assert not (folder / "asked").exists()
    (line,) = [line for line in troubles(rows) if "accelerators" in line]
    assert line.startswith("made-32b: preflight: error in accelerators of all 2: tensor 4")


def test_requests_that_are_prepared_are_counted_exactly(check, load, folder):
    file = folder / "results/workloads" / workload_id(load().workload_spec("long-4000x200")) / "requests.parquet"
    file.parent.mkdir(parents=True)
    table = {"phase": ["measured", "warmup"], "input_tokens": [9000, 10], "output_tokens": [100, 10]}
    pq.write_table(pa.table(table), file)
    row = next(row for row in check() if row.check == "context")
    assert (row.verdict, row.saw) == (
        "error",
        "context length 8,192 (set), longest request 9,100 tokens (long-4000x200)",
    )


def test_chat_requests_need_room_for_the_template(check, content):
    content["workloads"] = ["medium-2000x100", "sharegpt"]
    content["stages"][0]["candidates"] = [{"options": {"context_length": 2111}}, {"options": {"context_length": 2112}}]
    rows = [row for row in check() if row.check == "context"]
    assert [row.verdict for row in rows] == ["ok", "warning", "ok"]
    assert "chat template" in rows[1].saw


def run_command(folder: Path):
    (folder / "config/studies").mkdir(parents=True, exist_ok=True)
    (folder / "config/config.yaml").write_text("studies: [made-32b]\n")
    shutil.copy(folder / "made-32b.yaml", folder / "config/studies")
    return run_servelab("check", cwd=folder)


def test_command_prints_the_whole_table_and_fails_for_an_error_alone(built, load, content, folder):
    done = run_command(folder)
    assert done.returncode == 0, done.stderr
    written = json.loads((folder / "results/studies/made-32b/preflight.json").read_text())
    assert {row["check"] for row in written} == set(CHECKS.names())
    assert set(written[0]) == {"study", "of", "check", "verdict", "saw", "action"}
    candidate(arguments={"no-such-flag": None})(content, folder)
    load()
    done = run_command(folder)
    assert done.returncode == 1
    assert done.stderr == "error: preflight: 1 error, see the tables above\n"
    for name in CHECKS.names():
        assert f"\n{name} " in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= WIDTH
