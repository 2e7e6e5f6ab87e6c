"""The physical limit: its arithmetic by hand, its direction, recorded runs below it, planted ones found."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import made_run
import numpy as np
import pyarrow as pa
import pytest
from made_run import records

from servelab.assets.model_work import ModelWork, work_of_config
from servelab.engines.roofline import Formats, Served, least_time
from servelab.machine.rates import DeviceRates, published_rates
from servelab.measure.run_files import PlaceFacts
from servelab.metrics.definitions import RunData
from servelab.metrics.tables import schemas
from servelab.recorded.audit import Run
from servelab.recorded.log_tables import device_of_recorded, limit_of_recorded
from servelab.recorded.logs import Logs
from servelab.recorded.readers import Block
from servelab.results.checks.server import judge
from servelab.results.physical_limit import limit_of_run, serving
from servelab.study.recorded.study import load_recorded

STUDIES = ("qwen3-235b-a22b-h100", "qwen3-32b-h100", "qwen3-14b-h100", "qwen3.5-9b-h100", "qwen3-30b-a3b-910b")
RATES = DeviceRates(
    name="device", memory_bytes_per_s=1e12, operations_per_s={16: 1e14, 8: 2e14}, cache_bytes=0, source="made"
)
EXAMPLE, MOE = (
    load_recorded(Path("config/recorded") / name).model.config_of("base") or {}
    for name in ("qwen3-14b-h100", "qwen3-30b-a3b-910b")
)


def served(requests: int, prompt: float, output: float, at_once: float, cached: float = 0) -> Served:
    one = np.ones(requests)
    return Served(prompt * one, cached * one, output * one, at_once)


def work(config: dict[str, Any]) -> ModelWork:
    found = work_of_config(config)
    assert found is not None
    return found


def test_a_dense_model_by_hand() -> None:
    """Qwen3-14B in 16 bits, 10 requests of 1,000 prompt and 11 output tokens, all at once.

    A layer: q and o 2 × 5120 × 40 × 128 = 52,428,800; k and v 2 × 5120 × 8 × 128 = 10,485,760; MLP 3 × 5120 × 17408 =
    267,386,880: 330,301,440. 40 layers: 13,212,057,600. Output layer: 5120 × 151936 = 777,912,320.
    Operations: 2 × 13,212,057,600 × 10 × (1,000 + 10) tokens = 2.66883563520e14; output layer 2 × 777,912,320 × 110 =
    1.71140710400e11; attention 4 × 40 × 128 = 20,480 for each of 10 × 1,010 × 1,011 / 2 = 5,105,550 pairs in each of
    40 layers = 4.18246656000e12. Together 2.712371707904e14: at 1e14 per second 2.712371707904 s.
    Bytes: 11 passes × 2 × (13,212,057,600 + 777,912,320) = 3.07779338240e11. KV: 10 requests × 10 tokens read 1,001 to
    1,010 tokens, 10 × 10,055 = 100,550, × 40 layers × 2 × 8 × 128 values × 2 bytes = 1.64741120000e10. Together
    3.24253450240e11: at 1e12 per second 0.324253450240 s.
    """
    least = least_time(work(EXAMPLE), served(10, 1000, 11, 10), RATES, 1, Formats(), fewest_experts=True)
    assert least.compute_s == pytest.approx(2.712371707904, rel=1e-12)
    assert least.memory_s == pytest.approx(0.324253450240, rel=1e-12)
    assert (least.by, least.seconds) == ("arithmetic", least.compute_s)


def test_a_model_with_experts_by_hand() -> None:
    """Qwen3-30B-A3B in 16 bits, 4 requests of 1 output token each and no prompt that was computed, all at once.

    A layer without experts: q and o 2 × 2048 × 32 × 128 = 16,777,216; k and v 2 × 2048 × 4 × 128 = 2,097,152; router
    2048 × 128 = 262,144: 19,136,512; × 48 = 918,552,576. One expert in each layer: 48 × 3 × 2048 × 768 = 226,492,416.
    Output layer: 2048 × 151936 = 311,164,928. Active: 918,552,576 + 8 × 226,492,416 = 2,730,491,904.
    One pass reads, with 8 experts, 2 × (918,552,576 + 311,164,928 + 8 × 226,492,416) = 6,083,313,664 bytes. With 4
    tokens that draw evenly, 128 × (1 − (1 − 8/128)⁴) = 128 × (1 − 0.772476196) = 29.12304688 experts: 2 ×
    (1,229,717,504 + 29.12304688 × 226,492,416) = 15,651,733,504 bytes.
    """
    one = work(MOE)
    assert one.active_parameters == 2_730_491_904
    fewest, drawn = (
        least_time(one, served(4, 0, 1, 4), RATES, 1, Formats(), fewest_experts=each) for each in (True, False)
    )
    assert fewest.memory_s == pytest.approx(6_083_313_664e-12, rel=1e-12)
    assert drawn.memory_s == pytest.approx(15_651_733_504e-12, rel=1e-9)
    many = least_time(one, served(1000, 0, 1, 1000), RATES, 1, Formats(), fewest_experts=False)
    everything = 2 * (one.body_parameters + one.head_parameters + 128 * one.expert_parameters)
    assert many.memory_s == pytest.approx(everything * 1e-12)


def test_rates_by_name() -> None:
    sxm, plain = published_rates("NVIDIA H100 80GB HBM3"), published_rates("NVIDIA H100")
    assert sxm is not None and plain is not None
    assert sxm.name == "NVIDIA H100 SXM" and plain.memory_bytes_per_s > sxm.memory_bytes_per_s
    for name, expected in (
        ("NVIDIA A100-SXM4-40GB", "NVIDIA A100 40GB"),
        ("NVIDIA A100 80GB PCIe", "NVIDIA A100 80GB PCIe"),
        ("NVIDIA A100-SXM4-80GB", "NVIDIA A100 80GB SXM"),
        ("NVIDIA H200 NVL", "NVIDIA H200 NVL"),
        ("Ascend 910B3", "Ascend 910B3"),
    ):
        found = published_rates(name)
        assert found is not None and found.name == expected
    assert published_rates("Ascend 910B1") is None and published_rates("a made GPU") is None
    assert RATES.fastest(4) == RATES.fastest(8) == 2e14 and RATES.fastest(16) == RATES.fastest(32) == 1e14


def test_what_a_command_says_of_the_limit() -> None:
    base = work(EXAMPLE)
    how = serving("vllm", base, {}, {"--max-num-seqs": "64", "-dp": "2", "--kv-cache-dtype": "fp8"}, 2)
    assert (how.most_sequences, how.formats.kv_bytes, how.formats.tokens_per_pass) == (128, 1.0, 1.0)
    drafted = serving("vllm", base, {}, {"--speculative-config": '{"method":"mtp","num_speculative_tokens":4}'}, 1)
    assert drafted.formats.tokens_per_pass == 5
    assert serving("vllm", base, {"speculative_decoding": "ngram"}, {}, 1).formats.tokens_per_pass == float("inf")
    assert serving("vllm", base, {}, {"--quantization": "fp8"}, 1).formats.weight_bits == 8
    assert serving("vllm", base, {}, {"--enable-prefix-caching": None}, 1).caches_prefixes is True
    assert serving("made", base, {}, {"--kv-type": "odd"}, 1).formats.kv_bytes is None


@pytest.mark.parametrize("name", STUDIES)
def test_recorded_runs_are_below_and_planted_ones_above(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = Path("config/recorded") / name
    study = load_recorded(folder)
    logs = Logs(study, folder)
    runs = [Run(study, logs, name, workload) for name, each in study.candidates.items() for workload in each.logs]
    found = 0
    original = Block.value
    for run in runs:
        limit = limit_of_recorded(run)
        assert judge(limit).level == "ok", (run.reference, run.workload, limit)
        assert limit.share is not None and 0 < limit.share < 0.7
        for metric, factor in (("duration_s", 0.05), ("total_tokens_per_s", 20.0), ("output_tokens_per_s", 20.0)):

            def planted(block: Block, tag: str, *rest: Any, metric: str = metric, factor: float = factor) -> Any:
                value = original(block, tag, *rest)
                return value * factor if tag == metric and value is not None else value

            with monkeypatch.context() as patch:
                patch.setattr(Block, "value", planted)
                level = judge(limit_of_recorded(run)).level
            highest = limit.highest_share or 0
            if 20 * (limit.certain_share or 0) > 1.05:
                assert level == "invalid", (run.reference, run.workload, metric)
                found += 1
            elif 20 * highest > 1.05:
                assert level == "suspect", (run.reference, run.workload, metric)
    assert found


def test_which_published_pages_ran_on_a_slow_device() -> None:
    """Both pages decode at half of what an H100 SXM reads; the others have no step that bandwidth alone sets."""
    found: dict[str, set[str]] = {}
    for name in STUDIES:
        folder = Path("config/recorded") / name
        study = load_recorded(folder)
        logs = Logs(study, folder)
        for reference, each in study.candidates.items():
            for workload in each.logs:
                run = Run(study, logs, reference, workload)
                saw = device_of_recorded(run, limit_of_recorded(run))
                assert saw.level in ("suspect", "not applicable"), saw
                if saw.level == "suspect":
                    found.setdefault(name, set()).add(f"{reference} {workload}")
                    share = int(re.findall(r"(\d+) % of NVIDIA H100 SXM", saw.text)[0])
                    assert 43 <= share <= 51
    assert found.keys() == {"qwen3-32b-h100", "qwen3-14b-h100"}
    assert "engine/vllm very-long-32000x100" in found["qwen3-32b-h100"] and len(found["qwen3-32b-h100"]) == 5


def live(pace: float = 1.0, accelerator: str = "CPU", **status: Any) -> Any:
    """The limit of a made run that is so many times as fast."""
    spec = made_run.spec()
    rows = records(spec.protocol)
    for row in rows:
        for moment in ("scheduled_s", "started_s", "sent_s", "first_token_s", "last_token_s", "end_s"):
            row[moment] /= pace
    data = RunData(pa.Table.from_pylist(rows, schema=schemas.RUN_REQUESTS))
    place = PlaceFacts(accelerator=accelerator)
    return limit_of_run(spec, made_run.status(place=place, **status), data)


def test_live_runs() -> None:
    small = work(EXAMPLE | {"num_hidden_layers": 4, "hidden_size": 640, "intermediate_size": 1024, "vocab_size": 1000})
    h100 = "NVIDIA H100 80GB HBM3"
    sound = live(accelerator=h100, work=small)
    assert judge(sound).level == "ok" and 0 < sound.share < 1
    faster = live(pace=1.2 / sound.certain_share, accelerator=h100, work=small)
    assert judge(faster).level == "invalid"
    assert faster.total_tokens_per_s == pytest.approx(sound.total_tokens_per_s)
    for unknown in (live(), live(work=small)):
        assert judge(unknown).level == "not applicable" and unknown.columns["share_of_limit"] is None
    assert "`CPU`" in live(work=small).note
