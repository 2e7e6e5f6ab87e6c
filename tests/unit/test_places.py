"""Where a run was measured: recorded with it, and marked wherever runs of unequal places are compared."""

from __future__ import annotations

import os

import pandas as pd
import pytest
from device_tools import write_nvidia_smi
from made_place import AFTER, BEFORE, put_places, upgrade
from made_run import manifest, spec
from made_study import stage_rows

from servelab.machine.lease import Batch, DevicePlacement, PlacedDevice, lease
from servelab.measure.outcome import place_of
from servelab.measure.run_files import ManifestDevice, PlaceFacts
from servelab.results.checks import place_columns, unequal_places
from servelab.results.compare_with_baseline import improvements
from servelab.search.planning import plan_stage
from servelab.search.proof_plan import judge
from servelab.search.strategies import decide
from servelab.study.configuration import baseline
from servelab.study.study import CONFIRM


@pytest.fixture
def tools(tmp_path, monkeypatch):
    """The folder of a stand-in for `nvidia-smi`, on a machine with locks of its own."""
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("SERVELAB_LOCKS", str(tmp_path / "locks"))
    for variable in ("CUDA_VISIBLE_DEVICES", "SLURM_JOB_ID"):
        monkeypatch.delenv(variable, raising=False)
    return tmp_path


def placed(count=1, machine=None, **settings) -> PlaceFacts:
    """The place of a run on leased GPUs of the machine as it is now."""
    with lease("nvidia", count) as leased:
        devices = [
            ManifestDevice(index=d.index, name=d.name, driver=d.driver, memory_bytes=1, settings=d.settings)
            for d in leased.devices
        ]
        return place_of(manifest(spec(), machine, devices=devices, placement=leased.placement()))


def test_a_driver_upgrade_is_another_place(tools):
    write_nvidia_smi(tools, 8, driver="550.54.15", cuda="12.4")
    before = placed()
    assert (before.accelerator, before.driver, before.runtime) == ("NVIDIA H100 80GB HBM3", "550.54.15", "CUDA 12.4")
    write_nvidia_smi(tools, 8)
    after = placed()
    assert before.digest != after.digest
    rows = [{"run_ids": [name], **place_columns([place])} for name, place in (("a", before), ("b", after))]
    assert unequal_places(rows) == upgrade(1, 1)


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"power": "350.00 W"}, "power limit 700 (1 run), 350 (1 run)"),
        ({"clock": "1400 MHz"}, "core clock 1980 (1 run), 1400 (1 run)"),
        ({"clock": "N/A"}, "core clock 1980 (1 run), unknown (1 run)"),
        ({"mig": "Enabled"}, "mig mode Disabled (1 run), Enabled (1 run)"),
    ],
)
def test_settings_that_make_another_place(tools, changed, named):
    places = []
    for settings in ({}, changed):
        write_nvidia_smi(tools, 2, **settings)
        places.append(placed())
    assert unequal_places([{"run_ids": ["a", "b"], **place_columns(places)}]) == named


def test_what_makes_no_other_place(tools):
    """Which of equal devices, how many, on which host, with how many CPUs of a batch system, and its memory."""
    write_nvidia_smi(tools, 8)
    one = placed()
    with lease("nvidia", 1):
        assert placed() == one  # on another GPU
    assert placed(4, machine={"cpus_usable": 48, "memory_bytes": 2**40}) == one
    run = manifest(spec())
    devices = [PlacedDevice(index="3", key="GPU-3")]
    batch = Batch(system="slurm", job_id="17", node="node-9")
    elsewhere = DevicePlacement(devices=devices, server_cpus=None, client_cpus=None, batch=batch)
    assert place_of(run.model_copy(update={"placement": elsewhere})) == place_of(run)


def test_a_decision_between_unequal_places_is_marked(study_content, make_project):
    """A driver was upgraded between the incumbent's runs and one candidate's."""
    project = make_project(study_content)
    plan = plan_stage(project, "sequences", baseline(project.study))
    names = [candidate.candidate for candidate in plan.candidates]
    table, _ = stage_rows({name: [100.0 + number, 101.0 + number] for number, name in enumerate(names)})
    decision = decide(project.study, plan, put_places(table, {names[1]: [AFTER]}))
    assert decision.unequal_places == upgrade(2 * len(names) - 2, 2)
    verdicts = {each.candidate: each for each in decision.candidates}
    assert verdicts[names[1]].unequal_places == upgrade(2, 2)
    assert f"not measured at one place: {upgrade(2, 2)}" in verdicts[names[1]].why
    assert all(verdicts[name].unequal_places is None for name in names if name != names[1])
    same = decide(project.study, plan, put_places(table, {}))
    assert same.unequal_places is None and "place" not in "".join(each.why for each in same.candidates)


@pytest.mark.parametrize(
    ("winner", "text"),
    [
        ([BEFORE], None),
        ([AFTER], upgrade(3, 3)),  # on each pair's other device, say
        ([BEFORE, BEFORE, AFTER], upgrade(5, 1)),
    ],
)
def test_a_proof_and_its_percentages_are_marked(study, winner, text):
    table, rounds = stage_rows({"baseline": [100.0, 101.0, 99.0], "winner": [150.0, 151.0, 149.0]}, stage=CONFIRM)
    table = put_places(table, {"winner": winner})
    verdict = judge(study, table, 40.0)
    assert verdict.unequal_places == text and verdict.verdict == "better"
    assert ("not measured at one place" in verdict.why) == (text is not None)
    found = improvements(table, rounds, rounds.assign(definition=None)).to_pandas()
    assert len(found) and {None if pd.isna(each) else each for each in found["unequal_places"]} == {text}
