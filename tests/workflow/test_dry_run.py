"""The forecast of a dry run, for each row of the table "What reruns" of docs/studies.md.

`test_reruns.py` counts what is really measured for each row.
"""

import base64
import json
import os
import re
import shutil
from pathlib import Path

import pytest
import yaml
from test_reruns import THIRD
from workspace import ROOT, WORKLOADS

from servelab.measure.clients import CLIENTS

pytestmark = pytest.mark.slow


def add_a_candidate(study):
    study["stages"][1]["candidates"].append({"options": {"max_num_seqs": 3}})


def change_an_argument(study):
    study["stages"][1]["candidates"][0]["arguments"] = {"--batch-size": 256}


def raise_a_version(study):
    study["engines"]["old"] |= {"version": THIRD, "lock": f"envs/llama.cpp-{THIRD}.lock.txt"}


def add_a_workload(study):
    study["workloads"].append("tiny-new")


def raise_incumbent_starts(study):
    study["search"]["incumbent_starts"] = 3


def raise_pairs(study):
    """Nothing is proved, so no pair is added."""
    study["proof"] = {"pairs": 4}


def reorder(study):
    study["stages"][1]["candidates"].reverse()


def label(study):
    study["title"] = "Another"
    study["stages"][0]["candidates"][0]["label"] = "the old release"
    study["stages"][1]["candidates"][0]["label"] = "two at once"
    study["stages"][1]["candidates"][1]["label"] = "no such flag"
    study["stages"][1]["title"] = "Another heading"


def change_the_margin(study):
    study["objective"]["margin_percent"] = 900


def name_a_price(study):
    study["hardware"]["price_per_accelerator_hour"] = 2.0


def add_a_constraint(study):
    study["objective"]["constraints"] = {"ttft_ms": {"mean": 1e6}}


def search_a_grid(study):
    study["search"] = {"strategy": "grid"}


def add_answers(study):
    study["answers"] = {"num_questions": 8}


def touched_dataset(workspace):
    workspace.touch_results()


def lost_records(workspace):
    shutil.rmtree(workspace.folder / ".snakemake")


def edited_code(*names):
    def edit(workspace):
        for name in names:
            file = workspace.folder / "scripts/servelab" / name
            file.write_text(file.read_text() + "\n# a change\n")

    return edit


def raised_client_version(workspace):
    version = CLIENTS.get("servelab").version
    file = "scripts/servelab/measure/clients/servelab.py"
    workspace.edit(file, f'version = "{version}"', 'version = "another"')


def lost_run(workspace):
    shutil.rmtree(workspace.folder / "results/runs" / min(workspace.runs()))


def changed_run(workspace):
    """The records of a run by those of another."""
    first, second = sorted(workspace.runs())[:2]
    runs = workspace.folder / "results/runs"
    shutil.copyfile(runs / second / "requests.parquet", runs / first / "requests.parquet")


def killed_job(workspace):
    """What a job that was killed with its server leaves: Snakemake's mark, and an attempt beside the run's place."""
    runs, run_id = workspace.folder / "results/runs", min(workspace.runs())
    (runs / run_id).rename(runs / f".{run_id}.{os.uname().nodename}.999999999.1.part")
    output = base64.b64encode(f"results/runs/{run_id}/manifest.json".encode()).decode()
    mark = workspace.folder / ".snakemake/incomplete" / output
    mark.parent.mkdir(exist_ok=True)
    mark.touch()


def replaced_dataset(workspace):
    """Another file under the same name, in a catalogue with its old time."""
    file = workspace.folder / "config/datasets.yaml"
    before = file.stat()
    sha256 = yaml.safe_load(file.read_text())["sharegpt-v3-head"]["sha256"]
    workspace.edit("config/datasets.yaml", sha256, "f" * 64)
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))


def removed_seal(workspace):
    file = workspace.folder / "results/runs" / min(workspace.runs()) / "status.json"
    status = json.loads(file.read_text())
    del status["seal"]
    file.write_text(json.dumps(status))


def renamed_flag(workspace):
    """One configuration of the study sets this flag."""
    workspace.edit("scripts/servelab/engines/adapters/llama_cpp.py", '"--parallel"', '"-np"')


def nothing(workspace):
    pass


def of_study(edit):
    def change(workspace):
        study = workspace.study()
        edit(study)
        workspace.write_study(study)

    return change


constrained = of_study(add_a_constraint)
"""What that changes is known only when the tables are made again: the forecast has a bound, and nothing certain."""

ROWS = {
    "add a candidate": [(of_study(add_a_candidate), 1)],
    "change an argument of a candidate": [(of_study(change_an_argument), 1)],
    "raise an engine's version, or change its lock": [(of_study(raise_a_version), 1)],
    "add a workload": [(of_study(add_a_workload), 1)],
    "add `answers`, or change its `questions`, `dataset`, `num_questions`, `max_concurrency` or `endpoint`": [
        (of_study(add_answers), None)
    ],
    "raise `proof.pairs` or `search.incumbent_starts`": [
        (of_study(raise_incumbent_starts), 1),
        (of_study(raise_pairs), 0),
    ],
    "reorder or comment the study, change labels, titles or the margin": [
        (of_study(reorder), 0),
        (of_study(label), 0),
        (of_study(change_the_margin), 0),
    ],
    "edit a chart, the parser, the report": [
        (edited_code("report/charts/tried.py", "results/parse.py", "report/render.py"), 0)
    ],
    "change the search strategy, budget, constraint or price": [
        (of_study(search_a_grid), None),
        (constrained, 0),
        (of_study(name_a_price), 0),
    ],
    "edit the load client": [(edited_code("measure/load/sender.py"), 0), (raised_client_version, 3)],
    "touch the dataset; a fresh checkout; a lost `.snakemake`; `--forceall`": [
        (touched_dataset, 0),
        (lost_records, 0),
        (nothing, 0),
    ],
    "delete a run's folder in `results/runs`": [(lost_run, 1)],
    "change, swap, delete or add a file in a run's folder": [(changed_run, 1), (removed_seal, 1)],
}
"""Row of the table → edits, each with the number of jobs that are certain; None if only their agreement matters."""
CASES = [
    pytest.param(row, edit, jobs, id=f"{row[:40]}-{number}")
    for row, edits in ROWS.items()
    for number, (edit, jobs) in enumerate(edits)
] + [
    pytest.param("", renamed_flag, 1, id="another command by an adapter"),
    pytest.param("", killed_job, 1, id="a job that was killed"),
    pytest.param("", replaced_dataset, 1, id="another dataset under the same name"),
]


ELSEWHERE = (  # this study has no curve and asks nothing: other tests count their jobs
    "add a point to a curve",  # test_measured_curves.py, tests/unit/test_curves.py
    "remove a point, or let another point decide",
    "change `answers.of`",  # tests/unit/test_asked_candidates.py
    "change what answers may lose (`allowed_loss_points`, `least_agreement_percent`), or remove `answers`",
)


def test_each_row_of_the_table_is_tried():
    page = (ROOT / "docs/studies.md").read_text().split("## What reruns")[1]
    table = page.split("\n\n")[1].splitlines()[2:]
    rows = [re.match(r"\| (.*?) \|", line)[1] for line in table]
    assert [row for row in rows if row not in ELSEWHERE] == list(ROWS)
    assert set(ELSEWHERE) <= set(rows)


@pytest.mark.parametrize(("row", "edit", "jobs"), CASES)
def test_a_dry_run_forecasts_what_an_edit_measures(row, edit, jobs, workspace):
    new = {"tiny-new": {**WORKLOADS["tiny"], "parameters": {**WORKLOADS["tiny"]["parameters"], "input_tokens": 24}}}
    file = Path(workspace.folder / "config/workloads.yaml")
    file.write_text(file.read_text() + yaml.safe_dump(new))
    edit(workspace)
    said = workspace.snakemake("--dry-run", *(["--forceall"] if edit is nothing else []))
    if jobs is not None:
        assert forecast_jobs(said) == jobs
    assert ("nothing left to measure" not in said) == (bool(forecast_jobs(said)) or edit is constrained)


def test_an_edit_is_seen_though_its_file_is_older_than_the_results(workspace):
    """As one that was copied with its old time, or edited after the clock was set back."""
    of_study(change_the_margin)(workspace)
    edited_code("results/parse.py")(workspace)
    for file in ("config/studies/tiny.yaml", "scripts/servelab/results/parse.py"):
        os.utime(workspace.folder / file, (0, 0))
    said = workspace.snakemake("--dry-run")
    assert re.search(r"^decide_stage +3$", said, re.MULTILINE)
    assert re.search(r"^parse_stage +[1-9]", said, re.MULTILINE)
    assert not re.search(r"^measure +[1-9]", said, re.MULTILINE) and "nothing left to measure" in said


def forecast_jobs(said: str) -> int:
    """Measuring jobs that the forecast calls certain."""
    found = re.search(r"certain by now: \d+ runs? in (\d+) jobs? \(`measure`\)", said)
    return int(found[1]) if found else 0
