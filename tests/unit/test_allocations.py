"""A run takes what a batch system gave its job, and nothing beside it."""

from __future__ import annotations

import pytest
from device_tools import DATA, gpu_key, write_npu_smi, write_nvidia_smi, write_scontrol

from servelab.core.errors import Outage
from servelab.machine.allocations import current
from servelab.machine.allocations.slurm import gres_indices, hostnames
from servelab.machine.devices import DEVICES

JOB = """\
JobId=17 JobName=measure
   UserId=someone(1000) GroupId=someone(1000) MCS_label=N/A
   JobState=RUNNING Reason=None Dependency=(null)
   NodeList=npu[1-2] BatchHost=npu1
   JOB_GRES={total}
{nodes}
   MinCPUsNode=4 MinMemoryNode=0 MinTmpDiskNode=0
   TresPerNode=gres:npu:ascend910b:2
"""
"""What stands around the lines that count, as Slurm 22.05 prints it."""


def told(*nodes: str, job: str = JOB) -> str:
    """What `scontrol show job -d 17` prints for a job with these lines, one for each group of equal nodes."""
    return job.format(total="npu:ascend910b:2", nodes="\n".join(f"     {line}" for line in nodes))


@pytest.fixture(autouse=True)
def machine(tmp_path, monkeypatch):
    """Eight GPUs and eight NPUs, nothing restricted, and locks of its own."""
    write_nvidia_smi(tmp_path)
    write_npu_smi(tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setenv("SERVELAB_LOCKS", str(tmp_path))
    for variable in ("CUDA_VISIBLE_DEVICES", "ASCEND_RT_VISIBLE_DEVICES", "SLURM_JOB_ID", "SLURMD_NODENAME"):
        monkeypatch.delenv(variable, raising=False)


@pytest.fixture
def slurm(monkeypatch):
    """A process of job 17 on node npu1."""
    monkeypatch.setenv("SLURM_JOB_ID", "17")
    monkeypatch.setenv("SLURMD_NODENAME", "npu1")


def given(kind_name: str) -> list[str]:
    kind = DEVICES.get(kind_name)
    return [device.index for device in current().given(kind, kind.find())]


@pytest.mark.parametrize(
    ("kind", "variable", "value", "indices"),
    [
        ("nvidia", "CUDA_VISIBLE_DEVICES", "1", ["1"]),
        ("nvidia", "CUDA_VISIBLE_DEVICES", gpu_key(6)[:12], ["6"]),
        ("nvidia", "CUDA_VISIBLE_DEVICES", f"{gpu_key(5)},{gpu_key(2)}", ["5", "2"]),
        ("nvidia", "CUDA_VISIBLE_DEVICES", "3, 1,3", ["3", "1"]),
        ("nvidia", "CUDA_VISIBLE_DEVICES", "", []),
        ("nvidia", "CUDA_VISIBLE_DEVICES", "-1", []),
        ("nvidia", "CUDA_VISIBLE_DEVICES", "NoDevFiles", []),
        ("ascend", "ASCEND_RT_VISIBLE_DEVICES", "1,0", ["1", "0"]),
    ],
)
def test_what_the_variable_names_is_all_there_is(kind, variable, value, indices, monkeypatch):
    monkeypatch.setenv(variable, value)
    assert given(kind) == indices


@pytest.mark.parametrize(("value", "wrong"), [("8", "`8`; devices here are: 0, 1"), ("GPU-0", "`GPU-0`; several")])
def test_a_variable_that_names_no_device_is_an_outage(value, wrong, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", value)
    with pytest.raises(Outage, match=wrong):
        given("nvidia")


@pytest.mark.parametrize(
    ("line", "indices"),
    [
        ("Nodes=npu1 CPU_IDs=0-7 Mem=16000 GRES=npu:ascend910b:2(IDX:0-1)", "01"),
        ("Nodes=npu1 CPU_IDs=0-7 Mem=16000 GRES=npu:ascend910b:5(IDX:0-2,4,7)", "01247"),
        ("Nodes=npu1 CPU_IDs=0 Mem=0 GRES=npu:1(IDX:6)", "6"),
        ("Nodes=npu[1-2] CPU_IDs=0-7 Mem=0 GRES=npu:2(IDX:3,5)", "35"),
        ("Nodes=npu1 CPU_IDs=0-7 Mem=0 GRES=gpu:h100:2(IDX:4-5),npu:ascend910b:2(IDX:0,3)", "03"),
        ("Nodes=npu1 CPU_IDs=0-7 Mem=0 GRES=npu:ascend910b:1(IDX:1),npu:ascend910c:1(IDX:6)", "16"),
        ("Nodes=npu1 CPU_IDs=0-7 Mem=0 GRES=gpu:h100:2(IDX:4-5)", ""),
        ("Nodes=npu1 CPU_IDs=0-7 Mem=0 GRES=", ""),
        ("Nodes=npu10 CPU_IDs=0-7 Mem=0 GRES=npu:2(IDX:0-1)", ""),
    ],
)
def test_npus_of_a_slurm_job(line, indices, slurm, tmp_path):
    write_scontrol(tmp_path, told(line))
    assert given("ascend") == list(indices)


@pytest.mark.parametrize("sample", sorted(DATA.glob("scontrol-*.txt")), ids=lambda path: path.stem)
def test_what_a_real_slurm_printed(sample):
    """The file's first line says what it must be read as."""
    expected, _, text = sample.read_text().partition("\n")
    job_id, node, gres, *indices = expected.removeprefix("# ").split()
    assert gres_indices(text, job_id, node, (gres,)) == [int(index) for index in indices]


def test_devices_that_slurm_only_counts_are_an_outage(slurm, tmp_path):
    write_scontrol(tmp_path, told("Nodes=npu1 CPU_IDs=0-7 Mem=16000 GRES=npu:ascend910b(CNT:2)"))
    with pytest.raises(Outage, match=r"gave job 17 2 npu, but does not say which.*File="):
        given("ascend")


@pytest.mark.parametrize(
    ("expression", "hosts"),
    [
        ("gpu1", ["gpu1"]),
        ("gpu1,cpu7", ["gpu1", "cpu7"]),
        ("cn-[001-003,010]", ["cn-001", "cn-002", "cn-003", "cn-010"]),
        ("dgx-[40,48],x[1-2]-ib", ["dgx-40", "dgx-48", "x1-ib", "x2-ib"]),
        ("r[1-2]n[1-2]", ["r1n1", "r1n2", "r2n1", "r2n2"]),
        ("", []),
    ],
)
def test_host_lists(expression, hosts):
    assert hostnames(expression) == hosts
