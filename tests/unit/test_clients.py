"""What every load client of others must give, on what it really saved: see tests/data/clients."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from made_study import ROOT, demo_study

from servelab.core.errors import ConfigError, ServelabError
from servelab.core.run_spec import ProtocolSpec
from servelab.measure.clients import CLIENTS
from servelab.measure.load import LoadPlan
from servelab.metrics.definitions import METRICS, RunData, summarise
from servelab.metrics.tables import schemas
from servelab.search.project import load_project

DATA = Path(__file__).parents[1] / "data/clients"
OTHERS = [client.name for client in CLIENTS if client.lock]


def plan(requests="text", **changes) -> LoadPlan:
    """The plan whose results were saved."""
    return LoadPlan(
        **{
            "base_url": "http://127.0.0.1:1",
            "endpoint": "completions",
            "model": "m",
            "requests": DATA / f"{requests}.parquet",
            "max_concurrency": 2,
            **changes,
        }
    )


def vllm_bench(folder: Path) -> dict[str, float]:
    saved = json.loads((folder / "result.json").read_text())
    return {
        "ttft_ms": saved["mean_ttft_ms"],
        "tpot_ms": saved["mean_tpot_ms"],
        "itl_ms": saved["mean_itl_ms"],
        "e2el_ms": saved["mean_e2el_ms"],
        "requests_per_s": saved["request_throughput"],
        "output_tokens_per_s": saved["output_throughput"],
        "total_tokens_per_s": saved["total_token_throughput"],
    }


def guidellm(folder: Path) -> dict[str, float]:
    (saved,) = json.loads((folder / "report.json").read_text())["benchmarks"]
    metrics = saved["metrics"]
    return {"ttft_ms": metrics["time_to_first_token_ms"]["successful"]["mean"]}


OWN_FIGURES = {"vllm-bench": vllm_bench, "guidellm": guidellm}


@pytest.mark.parametrize("endpoint", ["chat", "completions"])
@pytest.mark.parametrize("name", OTHERS)
def test_saved_results_become_records(name, endpoint):
    result = CLIENTS.get(name).read(plan(endpoint=endpoint, round=3, settle_requests=1), DATA / name / endpoint)
    assert result.records.schema.equals(schemas.RUN_REQUESTS)
    assert result.stats.origin_monotonic_s is not None
    records = result.records.to_pylist()
    assert [record["error"] for record in records] == [None] * 4
    assert [record["phase"] for record in records] == ["settle", *["measured"] * 3]
    assert {record["round"] for record in records} == {3}
    for index, record in enumerate(records):
        assert (record["request_index"], record["output_tokens"], record["http_status"]) == (index, 8 + index, 200)
        assert record["input_tokens"] > 0
        times = [record[name] for name in ("started_s", "sent_s", "first_token_s", "last_token_s", "end_s")]
        assert times == sorted(times)
        if record["chunk_gaps_ms"] is not None:
            assert len(record["chunk_gaps_ms"]) == record["chunks"] - 1
            streamed_ms = 1000 * (record["last_token_s"] - record["first_token_s"])
            assert sum(record["chunk_gaps_ms"]) == pytest.approx(streamed_ms, abs=0.01)
    assert min(record["sent_s"] for record in records) < 1


@pytest.mark.parametrize("endpoint", ["chat", "completions"])
@pytest.mark.parametrize("name", OTHERS)
def test_its_own_figures_come_from_its_records(name, endpoint):
    records = CLIENTS.get(name).read(plan(endpoint=endpoint), DATA / name / endpoint).records
    ours = {row["metric"]: row["mean"] for row in summarise(RunData(records))}
    figures = OWN_FIGURES[name](DATA / name / endpoint)
    # Rates: what comes after the last token (usage, the end of the answer) is in the client's duration.
    assert figures == {tag: pytest.approx(ours[tag], rel=0.02 if METRICS.get(tag).is_rate else 1e-3) for tag in figures}


@pytest.mark.parametrize("name", OTHERS)
def test_half_failed(name):
    records = CLIENTS.get(name).read(plan("faults"), DATA / name / "half-failed").records.to_pylist()
    assert [record["error"] is None for record in records] == [True, False, True, False]
    assert all(record["error"].startswith("client: ") for record in records if record["error"])
    assert all(record["end_s"] >= record["sent_s"] for record in records if record["sent_s"] is not None)


@pytest.mark.parametrize("name", OTHERS)
def test_not_done_in_time(name, tmp_path):
    client = CLIENTS.get(name)
    assert client.has_ended(0, tmp_path) and not client.has_ended(1, tmp_path)
    assert client.has_ended(1, DATA / name / "half-failed")
    records = client.out_of_time(plan(timeout_s=5)).records.to_pylist()
    assert {(record["error"], record["end_s"]) for record in records} == {
        ("round_timeout: the round took longer than 5 s", 5.0)
    }


@pytest.mark.parametrize("name", OTHERS)
def test_results_of_other_requests_or_cut_short_are_refused(name, tmp_path):
    client = CLIENTS.get(name)
    with pytest.raises(ServelabError, match=f"not the results of {name}"):
        client.read(plan(), tmp_path)
    with pytest.raises(ServelabError, match=f"not the results of {name}"):
        client.read(plan(limit=3), DATA / name / "completions")
    saved = DATA / name / "completions" / client.results
    (tmp_path / client.results).parent.mkdir(exist_ok=True, parents=True)
    (tmp_path / client.results).write_bytes(saved.read_bytes()[: saved.stat().st_size // 2])
    with pytest.raises(ServelabError, match=f"not the results of {name}"):
        client.read(plan(), tmp_path)


REFUSED = [
    ("vllm-bench", {"request_rate": 2, "ramp_up_s": 3}, "ramp_up_s: 3.0"),
    ("vllm-bench", {"arrivals": "replay"}, "arrivals: replay"),
    ("vllm-bench", {"client_processes": 2}, "client_processes: 2"),
    ("guidellm", {"request_rate": 2, "arrivals": "gamma"}, "arrivals: gamma"),
    ("guidellm", {"arrivals": "replay", "max_concurrency": 4}, "max_concurrency"),
    ("guidellm", {"duration_s": 3}, "duration_s: 3.0"),
]


@pytest.mark.parametrize(("name", "protocol", "said"), REFUSED)
def test_refuses_what_it_cannot_do(name, protocol, said):
    with pytest.raises(ConfigError, match=said) as error:
        CLIENTS.get(name).check(ProtocolSpec(**protocol), token_ids=False, turns=False)
    assert name in str(error.value)


def load(folder: Path, **changes):
    """The demo study with some of its keys changed."""
    file = folder / "cpu-smollm2.yaml"
    file.write_text(yaml.safe_dump(demo_study() | changes))
    return load_project(file, ROOT)


def test_a_study_is_refused_before_anything_starts(tmp_path):
    with pytest.raises(ConfigError, match=r"cpu-smollm2\.yaml: client: .*guidellm.*token ids.*workload cpu-short"):
        load(tmp_path, client="guidellm", workloads=["cpu-short"], objective={"on": "cpu-short"})
    with pytest.raises(ConfigError, match=r"duration_s: 5\.0"):
        load(tmp_path, client="guidellm", protocol={"duration_s": 5}, workloads=["cpu-sharegpt"])
