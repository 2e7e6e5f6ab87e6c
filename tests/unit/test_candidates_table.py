"""The table of candidates: every candidate with what became of it, and accelerator time that is counted once."""

import pyarrow.compute as pc
import pytest

from servelab.search.candidates_table import CandidatesStage, candidates_table
from servelab.search.planning import plan_confirm
from servelab.search.simulate import Measured, run_search, tables

STAGES = [
    {
        "name": "sequences",
        "candidates": [
            {"label": "good", "options": {"max_num_seqs": 8}},
            {"label": "crashes", "options": {"max_num_seqs": 16}},
            {"label": "refused", "options": {"expert_parallel": True}},
            {"label": "slower", "options": {"max_num_seqs": 32}},
        ],
    },
    {
        "name": "attention",
        "candidates": [
            {"label": "off", "arguments": {"--flash-attn": "off"}},
            {"label": "the same", "options": {"max_num_seqs": 8}},
        ],
    },
    {"name": "elsewhere", "when": {"engine": "vllm"}, "candidates": [{"label": "on vLLM", "arguments": {"-x": 1}}]},
]
RATES = {None: 100.0, 8: 150.0, 32: 80.0}
HELD, LOAD = 30.0, 12.0
PAIRS = 3
RUNS = 13


def measure(configuration, load, start):
    rate = RATES.get(configuration.options.get("max_num_seqs"))
    if rate is None:
        return Measured(accelerator_s=HELD, failed="crashed")
    return Measured(rounds=[rate, rate + 1, rate - 1], accelerator_s=HELD)


def completed(table):
    """A simulated stage's table with what only parsing adds."""
    return table.assign(load_accelerator_s=LOAD * table["run_ids"].map(len))


@pytest.fixture
def audited(study_content, make_project):
    """The audit of a search as it ended, by its stages."""

    def run(change=lambda stages: None):
        study_content["engines"]["vllm"] = {"version": "0.32.0"}  # has an option that the incumbent's engine lacks
        study_content["stages"] = STAGES
        study_content["workloads"] = ["cpu-sharegpt"]
        project = make_project(study_content)
        past = run_search(project, measure)
        stages = [CandidatesStage(stage.plan, completed(stage.table), stage.decision) for stage in past]
        proof = plan_confirm(project, past[-1].winner, PAIRS)
        runs = {run.run_id: measure(each.configuration, None, "") for each in proof.candidates for run in each.runs}
        stages.append(CandidatesStage(proof, completed(tables(project.study, proof, runs)), None))
        change(stages)
        return candidates_table(project.study, stages), stages

    return run


def rows(table, stage):
    return {row["candidate"]: row for row in table.to_pylist() if row["stage"] == stage}


def test_every_candidate_is_there_with_what_became_of_it(audited):
    table, _ = audited()
    found = rows(table, "sequences")
    assert {name: row["outcome"] for name, row in found.items()} == {
        "baseline": "tried",
        "good": "tried",
        "crashes": "failed",
        "refused": "refused",
        "slower": "tried",
    }
    assert {name: row["verdict"] for name, row in found.items()} == {
        "baseline": "incumbent",
        "good": "winner",
        "crashes": "failed",
        "refused": "refused",
        "slower": "worse",
    }
    assert found["crashes"]["reason"].startswith("crashed")
    assert "expert_parallel" in found["refused"]["reason"]
    same = rows(table, "attention")["the same"]
    assert same["outcome"] == "not run" and same["verdict"] is None
    assert same["reason"].startswith("the same configuration")
    assert found["refused"]["run_ids"] == [] and found["refused"]["accelerator_s"] is None


def test_time_is_counted_once(audited):
    table, stages = audited()
    runs = {run_id for stage in stages for run_id in stage.plan.run_ids()}
    # baseline and good as incumbents on two starts, crashes, slower and off, whoever else asks for them; and the proof
    assert len(runs) == RUNS == 2 + 2 + 3 + 2 * PAIRS
    assert pc.sum(table["new_accelerator_s"]).as_py() == HELD * len(runs)
    assert pc.sum(table["new_load_accelerator_s"]).as_py() == LOAD * len(runs)
    again = rows(table, "attention")["good"]
    assert again["accelerator_s"] == 2 * HELD and again["new_accelerator_s"] == HELD  # its second start
    assert again["shared_with"] == ["sequences", "elsewhere", "recheck"]
    proof = rows(table, "confirm")["winner"]
    assert proof["accelerator_s"] == proof["new_accelerator_s"] == PAIRS * HELD and len(proof["run_ids"]) == PAIRS


@pytest.mark.parametrize("validity", ["suspect", "invalid"])
def test_what_the_checks_found_is_told(audited, validity):
    def doubt(stages):
        table = stages[-1].table
        table.loc[table["position"] == 1, ["validity", "validity_note"]] = [validity, "odd rounds"]

    table, _ = audited(change=doubt)
    row = rows(table, "confirm")["winner"]
    assert row["outcome"] == validity and row["reason"] == "odd rounds" and row["verdict"] is None
