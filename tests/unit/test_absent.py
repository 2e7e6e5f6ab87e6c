"""What is missing from an archive is listed by its name, or is what a build leaves out for the reason that is given."""

import json
import re
import shutil
from fnmatch import fnmatch
from pathlib import Path

import pytest

from servelab.archive.contents import MOST_REQUESTS_BYTES, absent, left_out_again, requests_of, why_left_out
from servelab.archive.coverage import sort_members
from servelab.archive.job_logs import logs_of
from servelab.archive.layout import Manifest, Member
from servelab.assets.datasets import load_datasets
from servelab.core.identity import content_id
from servelab.report.docs.output_files import FILES as OUTPUT_FILES

ROOT = Path(__file__).parents[2]
DATASETS = load_datasets(ROOT / "config/datasets.yaml")
NAME, DATASET = next(iter(DATASETS.items()))
RUNS = ["0" * 20, "1" * 20]
SOURCE, TOKENIZER = {"kind": "path", "path": "/m", "revision": "1"}, {"kind": "path", "path": "/t", "revision": "1"}
SPEC = {
    "engine": {"name": "vllm", "environment_sha256": "a" * 64},
    "client": {"name": "servelab", "environment_sha256": None},
    "model": {"source": SOURCE, "conversion": "gguf-quantize 1: q4_0", "quantization": "q4_0", "format": "gguf"},
    "workload": {"tokenizer": TOKENIZER, "parameters": {"dataset_sha256": DATASET.sha256}},
}
LOGS = {
    f"results/logs/measure/{RUNS[1]}.log": f"run {RUNS[0]}: random\nrun {RUNS[1]}: random\n",
    "results/logs/plan_stage/tiny-one.log": "",
    "results/logs/parse_stage/tiny-one.log": "1 of 1 runs parsed\n",
    "results/logs/decide_stage/studies/tiny-one.log": "baseline goes on\n",
}
DESCRIBED = [
    f"provenance/datasets/{NAME}-{DATASET.sha256[:12]}.json",
    "provenance/environments/vllm-aaaaaaaaaaaa.json",
    f"provenance/models/{content_id(SOURCE)}.json",
    f"provenance/models/{content_id(SOURCE)}-q4_0.json",
    f"provenance/models/{content_id(TOKENIZER)}.json",
]
FILES = {
    "workflow/config/datasets.yaml": (ROOT / "config/datasets.yaml").read_text(),
    "results/studies/tiny/stages/one/plan.json": "{}",
    "results/studies/tiny/stages/one/decision.json": "{}",
    **{f"results/runs/{run}/spec.json": json.dumps(SPEC) for run in RUNS},
    **dict.fromkeys(DESCRIBED, "{}"),
    **LOGS,
}


@pytest.fixture
def folder(tmp_path):
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def manifest(folder, omitted=None):
    members = {
        path.relative_to(folder).as_posix(): Member(sha256="0" * 64, size_bytes=1, media_type="text/plain")
        for path in folder.rglob("*")
        if path.is_file()
    }
    return Manifest(
        study="tiny",
        title="Tiny",
        date="2026-11-24",
        searches=["studies/tiny"],
        commit=None,
        dirty=None,
        omitted=omitted or {},
        members=members,
    )


def test_a_whole_archive_lacks_nothing(folder):
    assert absent(folder, manifest(folder)) == {}


@pytest.mark.parametrize("name", [*LOGS, *DESCRIBED])
def test_each_log_and_each_description_is_missed(name, folder):
    (folder / name).unlink()
    found = absent(folder, manifest(folder))
    # a job's log is of all runs that it measured
    assert set(found) == ({f"results/logs/measure/{run}.log" for run in RUNS} if "/measure/" in name else {name})
    coverage = sort_members([], reproduced=set(), matched=set(), signed=set(), known={}, absent=found)
    assert set(found) == coverage.unproved.keys() and not coverage.is_whole


def test_a_log_that_no_longer_names_its_run_is_none(folder):
    (folder / f"results/logs/measure/{RUNS[1]}.log").write_text(f"run {RUNS[1]}: random\n")
    assert set(absent(folder, manifest(folder))) == {f"results/logs/measure/{RUNS[0]}.log"}


def test_a_recorded_study_has_other_jobs(folder):
    shutil.rmtree(folder / "results")
    stage = folder / "results/recorded/tiny/stages/one"
    stage.mkdir(parents=True)
    for name in ("plan.json", "decision.json"):
        (stage / name).write_text("{}")
    said = manifest(folder).model_copy(update={"searches": ["recorded/tiny"]})
    logs = {"results/logs/parse_recorded/tiny-one.log", "results/logs/decide_stage/recorded/tiny-one.log"}
    assert set(absent(folder, said)) == logs


def test_the_log_of_each_rule_that_makes_files_of_a_study_is_known():
    """As the rules name it. The others make what an archive does not have, or need not have been run for it."""
    elsewhere = {"archive_study", "name_archive", "publish_archive", "compare_studies", "preflight", "render_index"}
    elsewhere |= {"build_environment", "check_environment", "download_dataset", "download_model"}
    elsewhere |= {"convert_model", "quantize_model"}
    text = "".join(file.read_text() for file in sorted((ROOT / "rules").glob("*.smk")))
    rules = {re.sub(r"\{\w+\}", "*", log) for log in re.findall(r'"(results/logs/[^"]+)"', text)}
    rules = {log for log in rules if log.split("/")[2].removesuffix(".log") not in elsewhere}
    made = ["results/workloads/w/workload.json", f"results/runs/{RUNS[0]}/spec.json"]
    for search in ("studies/tiny", "recorded/tiny"):
        files = [each.name.partition("<study>/")[2] for each in OUTPUT_FILES if each.name.startswith("studies/")]
        files += ["claims.parquet"] if search.startswith("recorded") else []
        made += [f"results/{search}/{re.sub('<[^>]+>', 'x', name).replace('{html,md}', 'html')}" for name in files]
    logs = list(logs_of(made))
    assert all(any(fnmatch(log, rule) for rule in rules) for log in logs), logs
    assert all(any(fnmatch(log, rule) for log in logs) for rule in rules), rules


def test_what_is_left_out_is_listed(folder):
    name = requests_of("w")
    assert set(absent(folder, manifest(folder, {name: "it has 300,000,000 bytes; its sha256 is x"}))) == {name}


@pytest.fixture
def workload(tmp_path):
    (tmp_path / "workload.json").write_text(json.dumps({"requests_sha256": "d" * 64}))
    (tmp_path / "requests.parquet").write_bytes(b"x")
    return tmp_path


def test_why_requests_are_left_out(workload):
    described, requests = workload / "workload.json", workload / "requests.parquet"
    closed, free = (DATASET.model_copy(update={"license": each}) for each in ("proprietary", "MIT"))
    assert why_left_out(free, requests, described) is None
    ends = f"; its sha256 is {'d' * 64}"
    assert why_left_out(closed, requests, described) == f"its prompts are from {DATASET.title}, under proprietary{ends}"
    assert why_left_out(closed, None, described) == why_left_out(closed, requests, described)
    assert why_left_out(free, None, described) == f"it was not there{ends}"
    with requests.open("wb") as file:
        file.truncate(MOST_REQUESTS_BYTES + 1)
    assert why_left_out(None, requests, described) == f"it has {MOST_REQUESTS_BYTES + 1:,} bytes{ends}"


def test_only_the_size_of_what_is_gone_is_believed():
    name, ends = requests_of("w"), f"; its sha256 is {'d' * 64}"
    found = {name: f"it was not there{ends}"}
    large = {name: f"it has 300,000,000 bytes{ends}"}
    assert left_out_again(large, found) == large
    for other in (
        {},
        {name: f"it has 300,000 bytes{ends}"},
        {name: f"it has 300,000,000 bytes; its sha256 is {'e' * 64}"},
        {name: "too large"},
        {"results/logs/measure/x.log": "too large"},
    ):
        assert left_out_again(other, found) == found
    assert left_out_again(large, {}) == {}
    licence = {name: f"its prompts are from X, under proprietary{ends}"}
    assert left_out_again(large, licence) == licence
