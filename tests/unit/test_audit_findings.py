"""What of a study cannot be computed is found and listed: broken and missing logs, commands that never ran, copies."""

import shutil

import pytest
import yaml
from test_audit import FIRST, SECOND, Made

from servelab.recorded.audit import AuditEvidence, audit
from servelab.recorded.logs import Logs, studies_beside
from servelab.study.recorded.study import load_recorded

TUNED = "vllm serve Qwen/Qwen3-235B-A22B-Instruct-2507-FP8 -tp 4 --max-num-seqs 512"


@pytest.fixture
def made(tmp_path):
    return Made(tmp_path)


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
