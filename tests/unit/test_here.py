"""A whole study in one allocation: the words for Snakemake, the step on the node, the batch script, the time left."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from servelab.cli import here
from servelab.core.errors import ConfigError, Outage
from servelab.measure.inputs import ENDS_AT, STEP
from servelab.results.past_runs import PastTimes, VisitTime
from servelab.workflow.console import Console

ROOT = Path(__file__).parents[2]
STUDY = "vllm-h100-node"
SMI = 'for i in 0 1 2 3; do echo "$i, GPU-$i, NVIDIA H100 80GB HBM3, 570, 81559"; done'


@pytest.fixture
def tool(tmp_path, monkeypatch):
    """Puts a script on PATH; no variable of a real allocation is set."""
    for name in ("SLURM_JOB_ID", "SLURMD_NODENAME", "SLURM_CPUS_ON_NODE", "CUDA_VISIBLE_DEVICES", ENDS_AT):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))

    def play(name, script):
        (tmp_path / name).write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / name).chmod(0o755)

    return play


def test_in_an_allocation_runs_get_its_devices_and_cores(tool, monkeypatch, capsys):
    hardware = here.hardware_of([STUDY], ROOT)
    tool("nvidia-smi", SMI)
    tool("squeue", 'case "$*" in *%N*) echo "gpu[3-4]";; *) echo 2026-11-26T12:00:00;; esac')
    monkeypatch.setenv("SLURMD_NODENAME", "gpu3")
    assert here.here_words(hardware) == (["--nolock", "--cores", "all", "--resources", "accelerators=4"], {})
    monkeypatch.setenv("SLURM_JOB_ID", "17")
    monkeypatch.setenv("SLURM_CPUS_ON_NODE", "24")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1,2")
    words, variables = here.here_words(hardware)
    assert words[1:] == ["--cores", "24", "--resources", "accelerators=4"]
    assert variables[STEP] == "gpu 12" and float(variables[ENDS_AT]) > 0
    assert capsys.readouterr().err.startswith("2 nodes, 4 accelerators: ")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    with pytest.raises(ConfigError, match="Slurm job 17 has no NVIDIA H100"):
        here.here_words(hardware)


def test_a_shell_of_salloc_on_another_machine_starts_a_step_on_the_node(tool, monkeypatch):
    assert here.step_on_node([]) is None
    monkeypatch.setenv("SLURM_JOB_ID", "17")
    tool("squeue", 'echo "gpu[3-4]"')
    command, variables = here.step_on_node([STUDY, "--here"])
    assert command[0] == "srun" and {"--jobid=17", "--overlap", "--nodelist=gpu3"} < {*command}
    assert command[-3:] == ["run", STUDY, "--here"] and "SLURM_JOB_ID" not in variables
    monkeypatch.setenv("SLURMD_NODENAME", "gpu3")
    assert here.step_on_node([STUDY, "--here"]) is None


def test_a_batch_script_asks_for_a_whole_node_with_the_names_of_the_site(tool, tmp_path):
    script = here.batch_script([STUDY], ROOT)
    assert "#SBATCH --nodes=1\n" in script and "#SBATCH --gres=gpu:8\n#SBATCH --exclusive\n" in script
    assert script.endswith(f" run {STUDY} --here")
    site = tmp_path / "snakemake/slurm/ours.yaml"
    site.parent.mkdir(parents=True)
    site.write_text(
        "site: ours\ndevices:\n"
        "  nvidia: {partition: h100, gres: 'gpu:h100', cpus: 12, most_runtime_min: 480, extra: -w n1}\n"
    )
    (site.parent / "servelab.yaml").write_text(f"site: ours\nsite_file: {site}\n")
    script = here.batch_script([STUDY], ROOT)
    for line in ("--partition=h100", "--gres=gpu:h100:8", "--cpus-per-task=96", "--time=480", "-w n1"):
        assert f"#SBATCH {line}\n" in script
    assert "--mem" not in script


def test_studies_of_several_nodes_or_kinds_are_refused():
    with pytest.raises(ConfigError, match="one allocation has one kind of accelerator"):
        here.hardware_of([STUDY, "cpu-smollm2"], ROOT)


def test_no_start_begins_that_would_not_end_and_one_line_says_so(tmp_path, monkeypatch):
    times = PastTimes(tmp_path)
    visit = [SimpleNamespace(hardware=SimpleNamespace(count=4))]
    monkeypatch.setattr(PastTimes, "of_visit", lambda self, visit: VisitTime(4 * 600.0, 0.0, 0.0))
    times.check_time_left([visit], ends_s=2000.0, now_s=1000.0)
    with pytest.raises(Outage, match=r"the allocation ends in 14 min, and this may take 15 min") as error:
        times.check_time_left([visit], ends_s=2000.0, now_s=1150.0)
    monkeypatch.setattr(PastTimes, "of_visit", lambda self, visit: None)
    times.check_time_left([visit], ends_s=2000.0, now_s=1999.0)  # of an unknown kind
    log = tmp_path / "a.log"
    console = Console(lambda: 0.0)
    event = {"jobid": 7, "rule_name": "measure", "wildcards": {}, "resources": {}, "rule_msg": None, "log": [str(log)]}
    console.job_begins(event)
    log.write_text(f"error: {error.value}\n")
    assert [len(console.job_fails(event)) for _ in range(3)] == [1, 0, 0]
