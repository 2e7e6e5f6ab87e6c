"""Every rule of the audit: on claims and logs that hold, that are rounded, and that are contradicted.

The logs are the example's, changed by hand; what is expected is arithmetic on the numbers written here.
"""

import shutil
from pathlib import Path

import pytest
import yaml

from servelab.core.yaml_file import read_yaml
from servelab.recorded.audit import AuditEvidence, audit
from servelab.recorded.logs import Logs, studies_beside
from servelab.study.recorded.study import load_recorded

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "config/recorded/example"
FIRST, SECOND = "parallelism/tp8", "parallelism/fp8-tp4"

UNSOUND = "arithmetic right, figures unsound"

GUIDELLM = """\
============ Serving Benchmark Result ============
Successful requests:                     {completed}
Maximum request concurrency:             512
Benchmark duration (s):                  {duration}
Total input tokens:                      {inputs}
Total generated tokens:                  20000
Request throughput (req/s):              {requests_per_s}
Output token throughput (tok/s):         {output_rate}
Peak output token throughput (tok/s):    {peak}
Peak concurrent requests:                100.00
Total Token throughput (tok/s):          {total_rate}
----------------------Latency---------------------
Mean Latency(s):                          {latency}
Median Latency(s):                        {latency}
P99 Latency(s):                           {latency}
---------------Time to First Token----------------
Mean TTFT (ms):                          100.00
Median TTFT (ms):                        100.00
P99 TTFT (ms):                           100.00
-----Time per Output Token (excl. 1st token)------
Mean TPOT (ms):                          {tpot}
Median TPOT (ms):                        {tpot}
P99 TPOT (ms):                           {tpot}
---------------Inter-token Latency----------------
Mean ITL (ms):                           {itl}
Median ITL (ms):                         {itl}
P99 ITL (ms):                            {itl}
==================================================
"""
"""100 requests of 201 output tokens each would be 20,100; 20,000 keeps the arithmetic plain: 200 a request."""

SOUND = {
    "completed": "100",
    "duration": "10.00",
    "inputs": "30000",
    "requests_per_s": "10.00",
    "output_rate": "2000.00",
    "total_rate": "5000.00",
    "peak": "4000.00",
    "latency": "2.09",  # 100 ms + 199 × 10 ms
    "tpot": "10.00",
    "itl": "10.00",
}


class Made:
    """The example in a folder of its own: its study, changed, and its logs."""

    def __init__(self, folder):
        self.folder = shutil.copytree(EXAMPLE, folder / "example")
        self.content = read_yaml(EXAMPLE / "study.yaml") | {"claims": []}
        self.candidates = self.content["stages"][0]["candidates"]

    def log(self, candidate, text):
        (self.folder / "logs" / f"{candidate}.txt").write_text(text)

    def claim(self, **fields):
        self.content["claims"].append({"where": "slide 1", "line": 7, "workload": "sharegpt", **fields})

    def audit(self, rule, chosen=SECOND, recommended="vllm serve x"):
        (self.folder / "study.yaml").write_text(yaml.safe_dump(self.content, sort_keys=False))
        study = load_recorded(self.folder)
        found = audit(AuditEvidence(study, Logs(study, self.folder), {"parallelism": chosen}, recommended)).to_pylist()
        return [row for row in found if row["rule"] == rule]


@pytest.fixture
def made(tmp_path):
    return Made(tmp_path)


def verdicts(rows):
    return [row["verdict"] for row in rows]


@pytest.mark.parametrize(
    ("printed", "metric", "verdict", "recomputed"),
    [
        ("8424.86", "total_tokens_per_s", "confirmed", "8424.86"),
        ("8424.9", "total_tokens_per_s", "rounded", "8424.86"),
        ("8424.8", "total_tokens_per_s", "contradicted", "8424.9"),
        ("147.65", "tpot_ms", "contradicted", "147.56"),
        ("1.00", "e2el_ms", "unproven", None),
    ],
)
def test_figure(made, printed, metric, verdict, recomputed):
    made.claim(kind="figure", candidate=FIRST, metric=metric, printed=printed)
    (row,) = made.audit("figure")
    assert (row["verdict"], row["recomputed"], row["published"]) == (verdict, recomputed, printed)
    assert (row["where"], row["line"], row["candidate"], row["source"]) == ("slide 1", 7, FIRST, "publication")


@pytest.mark.parametrize(
    ("printed", "basis", "verdict", "recomputed"),
    [  # 2 × 7527.80 / 8424.86 = 1.78704; 7527.80 / 8424.86 = 0.89352
        ("+78.7", "node", "confirmed", "+78.7"),
        ("+78.7042", "node", "rounded", "+78.7044"),
        ("+78.8", "node", "contradicted", "+78.7"),
        ("-10.6", "deployment", "confirmed", "-10.6"),
        ("+78.7", "accelerator", "confirmed", "+78.7"),
    ],
)
def test_change(made, printed, basis, verdict, recomputed):
    made.claim(kind="change", candidate=SECOND, against=FIRST, basis=basis, printed=printed)
    (row,) = made.audit("change")
    assert row["verdict"] == verdict
    assert float(row["recomputed"]) == pytest.approx(float(recomputed), abs=1e-9 if verdict != "rounded" else 1e-4)
    assert ("extrapolated: 4 were run" in row["reason"]) == (basis == "node")


def percent(side, against):
    return f"{100 * (side / against - 1):+.1f}"


@pytest.mark.parametrize(
    ("fields", "printed", "cause"),
    [
        ({}, percent(8424.86, 7527.80), f"it is {FIRST} against {SECOND}: the quotient is swapped"),
        ({}, "-11.9", f"it divides by the figure of {SECOND}: the quotient is swapped"),
        ({}, "+10.6", "its sign is wrong"),
        ({}, "+55.5", None),
    ],
)
def test_a_wrong_percentage_has_its_likely_cause(made, fields, printed, cause):
    made.claim(kind="change", candidate=SECOND, against=FIRST, printed=printed, **fields)
    (row,) = made.audit("change")
    assert row["verdict"] == "contradicted"
    assert (row["cause"] is None) if cause is None else (cause in row["cause"]), row["cause"]


@pytest.mark.parametrize(("printed", "verdict"), [("98.4", "confirmed"), ("98", "confirmed"), ("98.5", "contradicted")])
def test_success_rate(made, printed, verdict):
    made.claim(kind="success_rate", candidate=FIRST, printed=printed)
    (row,) = made.audit("success_rate")
    assert (row["verdict"], row["recomputed_value"]) == (verdict, pytest.approx(98.4))


@pytest.mark.parametrize(
    ("metric", "order", "verdict"),
    [
        ("total_tokens_per_s", [FIRST, SECOND], "confirmed"),
        ("total_tokens_per_s", [SECOND, FIRST], "contradicted"),
        ("ttft_ms", [FIRST, SECOND], "confirmed"),  # 8730.69 ms is better than 9924.69 ms
        ("e2el_ms", [FIRST, SECOND], "unproven"),
    ],
)
def test_order(made, metric, order, verdict):
    made.claim(kind="order", candidates=order, metric=metric)
    (row,) = made.audit("order")
    assert row["verdict"] == verdict
    assert verdict == "unproven" or row["recomputed"] == f"{FIRST} > {SECOND}"


CLAIMED = {
    "cause": (
        {"kind": "order", "candidates": [FIRST, SECOND], "because": "-tp", "workload": "sharegpt"},
        "contradicted",
    ),
    "chosen": ({"kind": "chosen", "stage": "parallelism", "candidate": SECOND}, "confirmed"),
    "recommended": ({"kind": "recommended", "command": "vllm serve M --a 1 --b"}, "confirmed"),
    "accelerators": ({"kind": "accelerators", "count": 4}, "contradicted"),
}


@pytest.mark.parametrize("rule", CLAIMED)
def test_other_claims(made, rule):
    claim, verdict = CLAIMED[rule]
    made.content["claims"].append({"where": "slide 4", **claim})
    assert verdicts(made.audit(rule, recommended="vllm serve M --b --a=1")) == [verdict]


@pytest.mark.parametrize(
    ("changed", "rule", "contradicted"),
    [
        ({}, "token_rate", {}),
        # printed digits: 50,000 tokens in 9.995 s to 10.005 s are 4997.50 to 5002.50 a second
        ({"total_rate": "5002.50", "output_rate": "2001.00"}, "token_rate", {}),
        (
            {"total_rate": "5050.00", "output_rate": "2020.00"},
            "token_rate",
            {"output_tokens_per_s": "2000.00", "total_tokens_per_s": "5000.00"},
        ),
        ({"tpot": "6.00", "itl": "6.00"}, "token_latency", {}),  # several tokens in a chunk, weights
        ({"itl": "0.00"}, "token_latency", {"itl_ms": "10.00"}),
        ({"tpot": "0.50"}, "token_latency", {"tpot_ms": "10.00"}),  # TTFT / 200 tokens
        ({"peak": "20001.00"}, "peak_rate", {"peak_output_tokens_per_s": "at most 20000"}),
    ],
)
def test_figures_of_a_log_against_each_other(made, changed, rule, contradicted):
    made.content["workloads"]["sharegpt"]["prompts"] = 984
    made.log("tp8", GUIDELLM.format(**SOUND | changed))
    rows = [row for row in made.audit(rule) if row["candidate"] == FIRST]
    assert rows
    found = {row["metric"]: row["recomputed"] for row in rows if row["verdict"] == "contradicted"}
    assert found == contradicted
    assert all(row["source"] == "logs" and row["where"] == "tp8.txt" and row["line"] for row in rows)


@pytest.mark.parametrize(
    ("claim", "published", "recomputed"),
    [  # SECOND prints 6000 for the same 50,000 tokens in 10 s
        ({"kind": "figure", "candidate": SECOND, "printed": "6000.00"}, "6000.00", "5000.00"),
        ({"kind": "difference", "candidate": SECOND, "against": FIRST, "printed": "1000.00"}, "1000.00", "0.00"),
        ({"kind": "change", "candidate": SECOND, "against": FIRST, "printed": "+20.00"}, "+20.00", "+0.00"),
    ],
)
def test_a_claim_that_rests_on_an_unsound_rate_is_not_confirmed(made, claim, published, recomputed):
    made.log("tp8", GUIDELLM.format(**SOUND))
    made.log("fp8-tp4", GUIDELLM.format(**SOUND | {"total_rate": "6000.00", "output_rate": "2400.00"}))
    made.claim(**claim)
    (row,) = made.audit(claim["kind"])
    assert (row["verdict"], row["published"], row["recomputed"]) == (UNSOUND, published, recomputed)
    assert row["recomputed_value"] == pytest.approx(float(recomputed))


def test_a_candidate_of_another_model(made):
    assert verdicts(made.audit("served_model")) == ["confirmed"] * 3  # one of them crashed
    made.candidates[1]["command"] = "vllm serve Qwen/Qwen3-8B-W8A8 -tp 4"
    row = made.audit("served_model")[0]
    assert (row["verdict"], row["recomputed"]) == ("contradicted", "Qwen/Qwen3-8B-W8A8")


def test_a_command_of_another_engine(made):
    assert verdicts(made.audit("serving_engine")) == ["confirmed"] * 3
    made.content["engines"]["sglang"] = {
        "version": "1",
        "title": "SGLang",
        "program": "python3 -m sglang.launch_server",
    }
    made.candidates[1]["command"] = "python3 -m sglang.launch_server --model-path Qwen/Qwen3-235B-A22B-Instruct-2507"
    row = made.audit("serving_engine")[0]
    assert (row["verdict"], row["published"], row["recomputed"]) == ("contradicted", "vllm", "SGLang")
    made.content["engines"]["vllm"].pop("program")
    assert made.audit("serving_engine") == []


def test_a_line_that_no_reader_knows_is_listed(made):
    assert made.audit("unread_lines") == []
    text = (made.folder / "logs/tp8.txt").read_text()
    first, rest = text.split("\n", 1)
    made.log("fp8-tp4", f"{first}\nHeat of the moment (kJ):                  12.00\n{rest}")
    (row,) = made.audit("unread_lines")
    assert (row["verdict"], row["candidate"], row["line"]) == ("unproven", SECOND, 2)
    assert row["published"].startswith("Heat of the moment")


def test_one_run_printed_for_two_candidates(made):
    assert verdicts(made.audit("printed_twice")) == ["confirmed", "confirmed"]
    made.log("fp8-tp4", (made.folder / "logs/tp8.txt").read_text())
    again, first = made.audit("printed_twice")
    assert first["verdict"] == "confirmed"
    assert (again["verdict"], again["candidate"], again["against"]) == ("contradicted", SECOND, FIRST)


# what of a study cannot be computed

TUNED = "vllm serve Qwen/Qwen3-235B-A22B-Instruct-2507-FP8 -tp 4 --max-num-seqs 512"


def test_a_published_command_that_never_ran_is_listed(made):
    assert made.audit("never_ran") == []
    ran = made.candidates[1]["command"]
    made.candidates[1] |= {"command": TUNED, "commands": {"sharegpt": ran}}
    (row,) = made.audit("never_ran")
    assert (row["verdict"], row["published"], row["recomputed"]) == ("unproven", TUNED, ran)
    assert row["cause"] == "command never ran"
    made.content["claims"].append({"kind": "recommended", "where": "end", "command": TUNED})
    (row,) = made.audit("never_ran")
    assert row["cause"] == "recommended command never ran"
    (row,) = made.audit("recommended", recommended=ran)
    assert (row["verdict"], row["cause"]) == ("contradicted", "recommended command never ran")


def printed(made, candidate, metric):
    study = load_recorded(made.folder)
    (found,) = [
        each.value
        for each in Logs(study, made.folder).rounds(candidate, "sharegpt")[0].figures
        if (each.metric, each.statistic) == (metric, "value")
    ]
    return f"{found:.2f}"


def test_a_figure_of_another_study_is_named(made):
    other = shutil.copytree(made.folder, made.folder.parent / "other")
    text = (other / "study.yaml").read_text().replace("study: example", "study: other", 1)
    (other / "study.yaml").write_text(text)
    figure = printed(made, FIRST, "total_tokens_per_s")
    log = made.folder / "logs/tp8.txt"
    log.write_text((made.folder / "logs/fp8-tp4.txt").read_text())
    made.claim(kind="figure", candidate=FIRST, printed=figure)
    (made.folder / "study.yaml").write_text(yaml.safe_dump(made.content, sort_keys=False))
    study = load_recorded(made.folder)
    chosen = {"parallelism": SECOND, "attention": SECOND}
    beside = studies_beside(made.folder)
    assert [each.study.study for each in beside] == ["other"]
    found = audit(AuditEvidence(study, Logs(study, made.folder), chosen, "x", beside)).to_pylist()
    (row,) = [each for each in found if each["rule"] == "figure"]
    assert row["cause"] == f"other page's figure: it is in the log of {FIRST}, sharegpt, of study other"
