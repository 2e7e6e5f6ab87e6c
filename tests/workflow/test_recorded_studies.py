"""The five published studies through the real workflow, from their logs to report, audit and recommended command.

What is expected stands here as arithmetic on the figures of logs and pages, done by hand.
"""

import pandas as pd
import pytest
import yaml

pytestmark = pytest.mark.slow

PUBLISHED = {  # study → recommended command, as its page prints it (model names as the winner's command has them)
    "qwen3-235b-a22b-h100": "vllm serve Qwen/Qwen3-235B-A22B-Instruct-2507-FP8 -tp 4 --max-num-batched-tokens 16384",
    "qwen3-32b-h100": "trtllm-serve Qwen/Qwen3-32B-FP8 --max_seq_len=40960 --enable_chunked_prefill",
    "qwen3-14b-h100": "python3 -m sglang.launch_server --model-path Qwen/Qwen3-14B-FP8",
    "qwen3.5-9b-h100": "vllm serve Qwen/Qwen3.5-9B --reasoning-parser=qwen3 --performance-mode=throughput"
    " --max-model-len=32768 --max-num-seqs=512",
    "qwen3-30b-a3b-910b": "mindie serve Qwen/Qwen3-30B-A3B",
}

BASELINE = "vllm serve Qwen/Qwen3.5-9B --reasoning-parser=qwen3 --max-model-len=32768"
"""Of qwen3.5-9b-h100; its recommended command is ahead by rates over another time only."""

PERCENTAGES = {  # study → published percentages that do not follow from the logs, and what does
    "qwen3-235b-a22b-h100": [],
    "qwen3-32b-h100": [("+10.7", 100 * (4068.16 / 2771.81 - 1), "+46.8")],
    "qwen3-14b-h100": [
        ("+27.7", 100 * (8403.97 / 6595.66 - 1), "+27.4"),
        ("+23.8", 100 * (10426.27 / 8403.97 - 1), "+24.1"),
    ],
    "qwen3.5-9b-h100": [],
    "qwen3-30b-a3b-910b": [],
}

OTHERS = {  # study → other claims of the page that its logs contradict: rule, published, what the logs say
    "qwen3-235b-a22b-h100": [
        ("figure", "6095.37", "8424.86"),
        ("figure", "6325.41", "8102.36"),
        ("order", "quantization/fp8 > engine/vllm", "engine/vllm > quantization/fp8"),
        ("cause", "--async-scheduling", "in no command"),
    ],
    "qwen3-32b-h100": [],
    "qwen3-14b-h100": [("figure", "8424.86", "8403.97")],
    "qwen3.5-9b-h100": [
        ("chosen", "num-seqs-performance-mode/512", "engine/vllm"),  # +1.9 % by tokens / duration; the margin is 2 %
        ("recommended", PUBLISHED["qwen3.5-9b-h100"], BASELINE),
        ("success_rate", "51.5", "51.4"),
    ],
    "qwen3-30b-a3b-910b": [("accelerators", "1", "2")],
}


@pytest.fixture(scope="module")
def finished(recorded):
    return recorded


@pytest.fixture(scope="module", params=PUBLISHED)
def study(request):
    return request.param


@pytest.fixture(scope="module")
def folder(finished, study):
    return finished.folder / "results/recorded" / study


@pytest.fixture(scope="module")
def claims(folder):
    return pd.read_parquet(folder / "claims.parquet")


def published(claims, verdict):
    return claims[(claims["source"] == "publication") & (claims["verdict"] == verdict)]


def test_the_recommended_command_is_the_published_one(folder, study, claims):
    recommended = yaml.safe_load((folder / "recommended.json").read_text())
    if study == "qwen3.5-9b-h100":  # its winner is ahead by rates over another time only
        assert (recommended["command"], recommended["changed"]) == (BASELINE, False)
        return
    command = recommended["command"].replace(" Qwen3-30B-A3B", " Qwen/Qwen3-30B-A3B")
    assert command == PUBLISHED[study]
    assert recommended["launch_command"] is None and recommended["changed"]
    (row,) = claims[claims["rule"] == "recommended"].to_dict("records")
    assert (row["verdict"], row["published"]) == ("confirmed", PUBLISHED[study])


def test_a_percentage_agrees_to_the_published_digit_or_stands_corrected(study, claims):
    changes = claims[claims["rule"] == "change"]
    assert len(changes)
    wrong = changes[changes["verdict"] == "contradicted"]
    expected = [(printed, recomputed) for printed, _, recomputed in PERCENTAGES[study]]
    assert list(zip(wrong["published"], wrong["recomputed"], strict=True)) == expected
    assert wrong["recomputed_value"].tolist() == pytest.approx([value for _, value, _ in PERCENTAGES[study]])
    right = changes[changes["verdict"] == "confirmed"]
    assert (right["published"].astype(float) == right["recomputed"].astype(float)).all()


def test_what_else_the_logs_contradict_is_listed_with_what_they_say(study, claims):
    found = published(claims, "contradicted")
    found = found[found["rule"] != "change"]
    rows = sorted(zip(found["rule"], found["published"], found["recomputed"], strict=True))
    assert rows == sorted(OTHERS[study])
    assert (claims["verdict"] != "unproven").all()


def test_report_shows_the_audit_and_leads_to_the_logs(folder, study, claims):
    html = (folder / "report.html").read_text()
    assert PUBLISHED[study].split(" -")[0].split()[-1].split("/")[-1] in (folder / "report.md").read_text()
    assert "Audit of what was published" in html
    for row in published(claims, "contradicted").to_dict("records"):
        assert row["recomputed"].replace(">", "&gt;") in html
    for printed, _, recomputed in PERCENTAGES[study]:
        assert f"<span>{printed}</span></td>" in html and f"<span>{recomputed}</span></td>" in html
    links = {part.split('"')[0] for part in html.split('href="logs/')[1:]}
    assert links and all((folder / "logs" / link).is_file() for link in links)
    assert {path.name for path in (folder / "logs").glob("*.txt")} == links
    charts = [part.split('"')[0] for part in html.split('href="charts/')[1:]]
    assert charts and all((folder / "charts" / chart).is_file() for chart in charts)


def test_nothing_is_measured_and_nothing_is_done_twice(finished):
    assert "14 recorded logs, nothing to measure" in finished.log
    assert not (finished.folder / "results/runs").exists()
    again = finished.snakemake("--configfile", "config/recorded.yaml")
    assert "Nothing to be done" in again
