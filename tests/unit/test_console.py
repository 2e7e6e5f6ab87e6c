"""What a run of the workflow prints: a line for each job that ends, three for one that fails, and no specification."""

import os
import re
import subprocess
from pathlib import Path

import pytest
import yaml

from servelab.workflow.console import Console, MeasuringRule

ROOT = Path(__file__).parents[2]
SPECIFICATION = '{"spec": {"engine": "' + "x" * 2000 + '"}}'
SNAKEFILE = f"""
rule all:
    input: "a.done", "b.done", "c.done"
rule good:
    output: "{{name}}.done"
    wildcard_constraints: name="a|c"
    log: "good-{{name}}.log"
    resources: accelerators=1
    shell: "echo all well with {{wildcards.name}} > {{log}}; touch {{output}}"
rule bad:
    input: "Snakefile"
    output: "b.done"
    log: "bad.log"
    params: job='{SPECIFICATION}'
    shell: "(echo error: no device is free; echo a last word) > {{log}}; : {{params.job:q}}; exit 3"
"""


def workflow(folder: Path, *arguments: str) -> tuple[int, str]:
    (folder / "Snakefile").write_text(SNAKEFILE)
    (folder / "profile").mkdir(exist_ok=True)
    profile = yaml.safe_load((ROOT / "profiles/default/config.yaml").read_text())
    (folder / "profile/config.yaml").write_text(yaml.safe_dump(profile))
    ended = subprocess.run(
        ["snakemake", "--workflow-profile", "profile", "--cores", "1", *arguments],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(ROOT / "scripts")},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    return ended.returncode, ended.stdout


def test_each_job_has_its_line_and_a_failure_three(tmp_path):
    code, said = workflow(tmp_path)
    assert code == 1, said
    lines = re.sub(r"^\d\d:\d\d:\d\d ", "", said, flags=re.MULTILINE).splitlines()
    for name in "ac":
        assert f"begins: good {name}" in lines
        assert (
            sum(bool(re.fullmatch(rf"\d of 4: good {name}, [\d.]+ s: all well with {name}", line)) for line in lines)
            == 1
        )
    place = lines.index("FAILED: bad")
    assert lines[place + 1 : place + 3] == ["    error: no device is free", "    open bad.log"]
    assert "4 jobs are planned; a stage that is decided may add some" in lines
    assert "xxxx" not in said and "a last word" not in said
    assert len(lines) <= 14, said


def test_a_dry_run_is_one_line_and_verbose_has_all_of_snakemakes_words(tmp_path):
    code, said = workflow(tmp_path, "--dry-run")
    assert (code, said.splitlines()[1:]) == (
        0,
        ["4 jobs would run now, others as stages are decided; `--verbose` lists them"],
    )
    code, said = workflow(tmp_path, "--dry-run", "--verbose")
    assert Console(is_dry_run=True).plan({"stats": {"total": 0}})[0].startswith("no job: `--until` knows only")
    assert code == 0 and "Job stats:" in said and "reason: Missing output files: a.done" in said


EVENT = {"jobid": 7, "rule_name": "measure", "wildcards": {"run_id": "0ab"}, "resources": {}, "rule_msg": None}


@pytest.mark.parametrize(
    ("content", "shown"),
    [
        (b"one\ntwo\n\n", "two"),
        (b"x" * 300, "x" * 119 + "…"),
        (b"\xff\xfe\n", "��"),
        (b"", "it left no message"),
    ],
)
def test_the_last_line_of_a_log_is_shown_whatever_is_in_it(tmp_path, content, shown):
    log = tmp_path / "a.log"
    console = Console(lambda: 0.0)
    console.job_begins(EVENT | {"log": [str(log)]})
    log.write_bytes(content)
    _, why, where = console.job_fails(EVENT | {"log": [str(log)]})
    assert (why, where) == (f"    {shown}", f"    open {log}")


REFUSED = "SLURM sbatch failed. The error message was 'sbatch: error: Invalid partition'.\n    sbatch call: x"
ENDED = "SLURM-job '5' failed, SLURM status is: '{}'. Detailed failure reason unavailable"


@pytest.mark.parametrize(
    ("message", "in_slurms_log", "shown"),
    [
        (None, "", "it left no message"),
        (REFUSED, "", "Slurm refused the job: Invalid partition"),
        (ENDED.format("NODE_FAIL"), "", "Slurm ended the job: NODE_FAIL"),
        (
            ENDED.format("TIMEOUT"),
            "slurmstepd-n1: error: *** JOB 5 ON n1 DUE TO TIME LIMIT ***",
            "Slurm: JOB 5 ON n1 DUE",
        ),
    ],
)
def test_slurms_own_words_are_shown_and_no_line_of_an_earlier_attempt(tmp_path, message, in_slurms_log, shown):
    earlier, slurms = tmp_path / "measure.log", tmp_path / "5.log"
    earlier.write_text("error: of the first attempt")
    console = Console(lambda: 0.0)
    console.job_begins(EVENT | {"log": [str(earlier)]})
    slurms.write_text(in_slurms_log)
    lines = console.job_fails(EVENT | {"log": [str(earlier), str(slurms)], "rule_msg": message})
    assert len(lines) == 3 and lines[1].startswith(f"    {shown}"), lines


def test_a_job_has_the_title_of_what_it_measures_and_begins_when_slurm_has_it(monkeypatch):
    rule = MeasuringRule("measure", lambda run: f"tiny, engine: old, {run}", lambda: False)
    monkeypatch.setattr("servelab.workflow.console.measuring", [rule])
    console = Console(lambda: 0.0)
    assert console.job_begins(EVENT | {"log": [], "resources": {"accelerators": 1}}) == []
    (line,) = console.said("Job 7 has been submitted with SLURM jobid 12 (log: x).")
    assert line.endswith("queued as Slurm job 12: measure tiny, engine: old, 0ab")
    console.job_begins(EVENT | {"log": [], "resources": {"accelerators": 1, "slurm_extra": "--exclude=n1,n2 --nice"}})
    (line,) = console.said("Job 7 has been submitted with SLURM jobid 13 (log: x).")
    assert line.endswith("queued as Slurm job 13: measure tiny, engine: old, 0ab, not on n1,n2")
