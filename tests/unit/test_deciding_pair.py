"""The deciding pair: who is measured again, what that shows, and that it then decides."""

import json
from random import Random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from made_study import stage_rows

from servelab import schemas
from servelab.clients import LoadStats
from servelab.decide import decide_stage
from servelab.deciding_pair import PairEvidence, choose_pair, pair_id, read_pair
from servelab.errors import ServelabError
from servelab.plan import baseline, plan_stage
from servelab.statistics import Interval


@pytest.fixture
def stage(study_content, make_project):
    """A stage whose candidates are named `a`, `b`, `c`, and its tables."""
    study_content["objective"]["interleaved_cycles"] = 2
    for label, candidate in zip("abc", study_content["stages"][0]["candidates"], strict=True):
        candidate["label"] = label
    project = make_project(study_content)

    def made(candidates):
        return project.study, plan_stage(project, "sequences", baseline(project)), *stage_rows(candidates)

    return made


def chosen(stage, candidates):
    study, plan, table, rounds = stage({"baseline": candidates.pop("base"), **candidates})
    return choose_pair(study, plan, decide_stage(study, plan, table, rounds))


def test_the_leader_is_measured_again_even_while_it_is_within_noise(stage):
    pair = chosen(stage, {"base": [100, 120, 80], "a": [100, 130, 110], "b": [104, 105, 103], "c": [90, 91, 89]})
    assert pair.candidate == "a"
    assert pair.pair_id == pair_id(pair.pair)
    assert pair.pair.cycles == 2
    assert pair.pair.a.options == {}
    assert pair.pair.b.options == {"max_num_seqs": 8}


@pytest.mark.parametrize(
    "candidates",
    [
        {"base": [100, 101, 99], "a": [101, 102, 100], "b": [90, 91, 89], "c": "out_of_memory"},
        {"base": "crashed", "a": [101, 102, 100], "b": [90, 91, 89], "c": [1, 2, 3]},
    ],
)
def test_nothing_is_measured_again_where_nobody_leads_or_nothing_stands_to_compare_with(stage, candidates):
    pair = chosen(stage, candidates)
    assert (pair.pair, pair.pair_id, pair.candidate) == (None, None, None)


def decided(stage, change, failed=None):
    study, plan, table, rounds = stage({"baseline": [100, 101, 99], "a": [120, 121, 119], "b": [115, 116, 114]})
    evidence = PairEvidence("a", "f" * 20, change, 4, failed)
    decision = decide_stage(study, plan, table, rounds, evidence)
    return decision, {entry.candidate: entry for entry in decision.candidates}


def test_a_gain_that_stands_wins_with_the_pairs_figures(stage):
    decision, verdicts = decided(stage, Interval(17.0, 16.0, 18.0))
    assert decision.winner.candidate == "a"
    assert (verdicts["a"].change_percent, verdicts["a"].pair_id) == (17.0, "f" * 20)
    assert "measured again" in verdicts["a"].why
    assert verdicts["b"].verdict == "not repeated"


@pytest.mark.parametrize(
    ("change", "failed", "verdict"),
    [
        (Interval(4.0, -1.0, 9.0), None, "within noise"),
        (Interval(-5.0, -6.0, -4.0), None, "worse"),
        (None, "the candidate failed: crashed", "failed"),
    ],
)
def test_a_gain_that_does_not_stand_leaves_the_incumbent(stage, change, failed, verdict):
    decision, verdicts = decided(stage, change, failed)
    assert not decision.changed
    assert verdicts["a"].verdict == verdict
    assert verdicts["b"].verdict == "not repeated"


def write_side(folder, rates, **status):
    """A side's files: 40 requests a round, one after another, so that every check has what it looks at."""
    folder.mkdir(parents=True)
    rows, draw = [], Random(1)
    for number, rate in enumerate(rates):
        each = 40 / rate
        for index in range(40):
            start = index * each
            gaps = [each / 12 * (1 + draw.random() / 10) for _ in range(9)]
            first = start + each / 12
            rows.append(
                {
                    "round": number,
                    "request_index": index,
                    "phase": "measured",
                    "scheduled_s": 0.0,
                    "started_s": start,
                    "sent_s": start,
                    "first_token_s": first,
                    "last_token_s": first + sum(gaps),
                    "end_s": start + each,
                    "input_tokens_asked": 30,
                    "input_tokens": 30,
                    "output_tokens_asked": 10,
                    "output_tokens": 10,
                    "chunks": 10,
                    "chunk_gaps_ms": [1000 * gap for gap in gaps],
                    "unread_ms": 0.1,
                    "finish_reason": "length",
                    "http_status": 200,
                }
            )
    pq.write_table(pa.Table.from_pylist(rows, schema=schemas.RUN_REQUESTS), folder / "requests.parquet")
    pq.write_table(schemas.TELEMETRY.empty_table(), folder / "telemetry.parquet")
    stats = [LoadStats(wall_s=40.0, cpu_s=1.0, origin_monotonic_s=0.0).model_dump() for _ in rates]
    content = {"outcome": "ok", "reason": None, "message": None, "client_rounds": stats, "server_starts": 1, **status}
    (folder / "status.json").write_text(json.dumps(content))


@pytest.fixture
def planned(stage):
    return chosen(stage, {"base": [100, 101, 99], "a": [120, 121, 119], "b": [90, 91, 89]})


def read(planned, stage, folder):
    study, *_ = stage({"baseline": [1.0]})
    return read_pair(planned, folder, study)


def test_the_change_is_that_of_neighbouring_rounds(planned, stage, tmp_path):
    write_side(tmp_path / "a", [40, 50, 60, 45])
    write_side(tmp_path / "b", [44, 55, 66, 49.5])
    evidence = read(planned, stage, tmp_path)
    assert evidence.failed is None
    assert evidence.change == pytest.approx((10, 10, 10))
    assert evidence.rounds == 4


def test_a_side_that_failed_shows_no_change(planned, stage, tmp_path):
    write_side(tmp_path / "a", [40, 50])
    write_side(tmp_path / "b", [], outcome="failed", reason="crashed", message="segmentation fault")
    evidence = read(planned, stage, tmp_path)
    assert evidence.change is None
    assert evidence.failed == "the candidate failed, crashed: segmentation fault"


def test_a_broken_pair_is_named(planned, stage, tmp_path):
    write_side(tmp_path / "a", [40, 50])
    with pytest.raises(ServelabError, match="not a complete run"):
        read(planned, stage, tmp_path)
