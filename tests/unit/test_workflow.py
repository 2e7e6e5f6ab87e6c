"""What the rules ask of `servelab.workflow`, without Snakemake: fake plans on disk, made studies."""

import json
import logging
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import made_run
import pytest
import yaml
from made_study import ROOT, demo_study
from snakemake.iocontainers import Wildcards
from snakemake_interface_logger_plugins.common import LogEvent

from servelab.core.errors import ConfigError
from servelab.core.files import write_json, write_text
from servelab.core.run_spec import HardwareSpec
from servelab.measure.inputs import MeasuringJob
from servelab.measure.sealed_runs import SealedRuns
from servelab.report.json_output import RunOutput
from servelab.search.planning import plan_confirm, plan_stage
from servelab.search.project import load_project
from servelab.study.configuration import Incumbent, baseline
from servelab.study.project import name_of
from servelab.study.spec_builder import served_settings
from servelab.study.study import CONFIRM, CONFIRM_FIRST, CONFIRM_MORE, PROOF_STAGES
from servelab.workflow import progress_lines
from servelab.workflow.jobs import MeasuringJobs, Plans, StageRuns
from servelab.workflow.made_from import CODE, MADE_FROM, write_digests
from servelab.workflow.needs import Sources, run_files
from servelab.workflow.placement import Placements
from servelab.workflow.rule_parts import StudyFiles
from servelab.workflow.studies import Studies, WorkflowConfig

SEARCH = "studies/cpu-smollm2"


@pytest.fixture
def project(study_content, make_project):
    return make_project(study_content)


@pytest.fixture
def studies(project):
    return Studies(live={project.study.study: project}, recorded={})


@pytest.fixture
def planned(project, studies, tmp_path, monkeypatch):
    """The first stage of a study, planned on disk; the current folder is the project's."""
    monkeypatch.chdir(tmp_path)
    return write(plan_stage(project, studies.stages(SEARCH)[0], baseline(project.study)))


def write(plan):
    path = Path(f"results/studies/{plan.study}/stages/{plan.stage}/plan.json")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(plan.model_dump_json())
    return plan


@pytest.fixture
def proof(project, planned):
    """A proof of two pairs, planned on disk: baseline and the first stage's second candidate."""
    second = planned.candidates[1]
    winner = Incumbent(candidate=second.candidate, configuration=second.configuration)
    return write(plan_confirm(project, winner, 2))


def plans(patience_s=0.0):
    return Plans(Path("results"), lambda: patience_s)


def stage_runs(studies, index, wait=lambda study, stage: None, is_main_process=True):
    return StageRuns(studies, index, sealed(), wait, LookupError, is_main_process=is_main_process)


def sealed(report=lambda line: None):
    return SealedRuns(Path("results/runs"), Path("kept"), report)


def complete(run_id):
    folder = Path("results/runs") / run_id
    folder.mkdir(parents=True)
    plans().spec(run_id).write(folder / "spec.json")
    (folder / "requests.parquet").write_text(f"records of {run_id}")
    (folder / "status.json").write_text(json.dumps({"run_id": run_id}))
    made_run.seal(folder)
    return folder


def measuring():
    return MeasuringJobs(plans(), sealed(), lambda spec, files: ())


def last_missing(runs, study, stage):
    return [Path(manifest).parent.name for manifest in runs.missing(study, stage)]


def test_missing_runs_are_jobs_and_complete_ones_are_files(planned, studies):
    runs = stage_runs(studies, plans())
    study, stage, ids = name_of(SEARCH), planned.stage, list(dict.fromkeys(planned.run_ids()))
    assert last_missing(runs, study, stage) == ids  # a run each: the search has one workload
    assert runs.measured(study, stage) == runs.to_wait_for(study, stage) == runs.all_to_wait_for()
    statuses = [f"results/runs/{run}/status.json" for run in ids]
    assert stage_runs(studies, plans(), is_main_process=False).measured(study, stage) == statuses
    for run in ids:
        complete(run)
    assert not runs.missing(study, stage) and not runs.to_wait_for(study, stage)
    assert runs.measured(study, stage) == runs.of_study(SEARCH) == statuses


def test_a_pair_is_one_job_named_by_its_last_run_and_leaves_out_what_is_complete(proof, studies):
    runs, needed = stage_runs(studies, plans()), measuring()
    jobs = [[[run.run_id for run in visit] for visit in job] for job in proof.jobs()]
    assert [len(job) for job in jobs] == [2, 2] and len(jobs[0][0]) == len(proof.candidates[0].runs) // 2 > 1
    assert {run.run_id for run in proof.candidates[1].runs} >= set(jobs[1][0])  # the second begins with the winner
    assert last_missing(runs, proof.study, CONFIRM) == [job[-1][-1] for job in jobs]
    found = json.loads(needed.json(jobs[1][-1][-1]))["visits"]
    assert [[each["spec"]["start"][-2:] for each in visit] for visit in found] == [
        ["-1"] * len(visit) for visit in jobs[1]
    ]
    complete(jobs[0][-1][-1])
    complete(jobs[0][0][0])
    last = jobs[0][-1][-2]
    assert last_missing(runs, proof.study, CONFIRM)[0] == last
    assert needed.runs(last) == [*jobs[0][0][1:], *jobs[0][1][:-1]]
    assert last in needed.runs(last) and needed.hardware(last).count == 1
    for run in jobs[0][0][1:]:
        complete(run)
    assert [list(visit) for visit in needed.visits(last)] == [jobs[0][1][:-1]]  # no empty visit


def test_the_measuring_script_takes_every_job_of_a_study_with_every_kind_of_load(
    study_content, make_project, tmp_path, monkeypatch
):
    limits = {"ttft_ms": {"p90": 900}}
    study_content["workloads"] = [
        {"name": "cpu-sharegpt", "load": {"max_concurrency": [1, 4]}},
        {"name": "rates", "workload": "cpu-short", "load": {"request_rate": [1, 2]}},
        {"name": "users", "workload": "cpu-short", "load": {"capacity": {"of": "max_concurrency", "slos": limits}}},
        {"name": "most", "workload": "cpu-short", "load": {"capacity": {"of": "request_rate"}}},
    ]
    study_content["objective"]["on"] = "cpu-sharegpt-c4"
    project = make_project(study_content)
    monkeypatch.chdir(tmp_path)
    first = write(plan_stage(project, project.study.stages[0].name, baseline(project.study)))
    winner = Incumbent(candidate="w", configuration=first.candidates[1].configuration)
    for plan in (first, write(plan_confirm(project, winner, 2))):
        for job in plan.jobs():
            visits = MeasuringJob.model_validate_json(measuring().json(job[-1][-1].run_id)).visits
            assert sum(map(len, visits)) == sum(map(len, job)) > 0


def test_the_first_pairs_and_all_pairs_share_their_jobs(project, proof, studies):
    write(proof.model_copy(update={"stage": CONFIRM_FIRST}))
    runs = stage_runs(studies, plans())
    both = last_missing(runs, proof.study, CONFIRM_FIRST), last_missing(runs, proof.study, CONFIRM)
    assert both[0] == both[1]
    assert measuring().runs(both[0][0]) == [run.run_id for visit in proof.jobs()[0] for run in visit]


def test_of_jobs_of_several_plans_that_end_with_the_same_run_the_longest_counts(planned, project):
    """Two studies may ask for the same server start, with different workloads before the one that both have."""
    first, *others = plan_confirm(project, baseline(project.study), 1).candidates[0].runs
    other = planned.model_copy(update={"study": "other", "stage": CONFIRM})
    side = planned.candidates[0]
    for study, runs in (("one", [*others, first]), ("two", [first])):
        write(other.model_copy(update={"study": study, "candidates": [side.model_copy(update={"runs": runs})]}))
    assert measuring().runs(first.run_id) == [*(run.run_id for run in others), first.run_id]
    # the other study's run may be measured by two jobs, and is then kept by the second
    assert measuring().runs(others[0].run_id) == [others[0].run_id]


def test_a_plan_that_is_due_is_waited_for(planned, studies):
    def due(study, stage):
        raise LookupError

    runs = stage_runs(studies, plans(), due)
    with pytest.raises(LookupError):
        runs.missing(name_of(SEARCH), planned.stage)
    assert runs.missing(name_of(SEARCH), studies.stages(SEARCH)[1]) == []  # not planned yet
    assert runs.all_to_wait_for() == []


def test_files_of_stages(studies):
    files, stages, study = StudyFiles(studies), studies.stages(SEARCH), Wildcards(fromdict={"search": SEARCH})

    def past(stage):
        return files.past_stages(Wildcards(fromdict={"study": name_of(SEARCH), "stage": stage}))

    assert files.of_stages("plan.json")(study)[-1] == f"results/{SEARCH}/stages/confirm/plan.json"
    assert files.of_last_stage("plan.json")(study) == files.of_stages("plan.json")(study)[-1]
    assert CONFIRM_FIRST not in stages and studies.planned_stages(SEARCH)[-3:] == [*PROOF_STAGES]
    assert len(files.of_deciding_stages("decision.json")(study)) == len(stages) - 1
    assert past(stages[0]) == {}
    first, confirm = past(CONFIRM_FIRST), past(CONFIRM)
    assert first.keys() == {"past_plans", "past_decisions", "past_tables"}
    assert len(first["past_plans"]) == len(stages) - 1
    assert confirm == {
        **first,
        "before_plan": f"results/{SEARCH}/stages/{CONFIRM_MORE}/plan.json",
        "before_table": f"results/{SEARCH}/stages/{CONFIRM_MORE}/table.parquet",
    }
    made = files.made(SEARCH)
    assert len(set(made)) == len(made)
    assert {f"results/{SEARCH}/stages/{stage}/checks.parquet" for stage in stages} < set(made)
    assert f"results/{SEARCH}/stages/{CONFIRM_FIRST}/table.parquet" in made
    assert f"results/{SEARCH}/stages/{CONFIRM_FIRST}/decision.json" not in made


def test_the_digest_of_a_study_has_its_file_its_locks_and_all_code(studies, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "scripts").mkdir()
    (tmp_path / "scripts/any.py").write_text("")
    write_digests(tmp_path / "scripts", studies)
    names = [line.split()[1] for line in Path(MADE_FROM.format(search=SEARCH)).read_text().splitlines()]
    lock = "llama.cpp.lock.txt"
    assert set(names) == {"code", "cpu-smollm2.yaml", "workloads.yaml", "datasets.yaml", lock}
    assert Path(CODE).exists()


def test_sources_of_a_study(project):
    sources = Sources({"a": project})
    alias = next(iter(project.study.engines))
    found = sources.environment(project.engine(alias).name, project.environment_sha256(alias)[:12])
    assert found.lock == project.lock(alias) and found.runtime == "venv"
    with pytest.raises(ConfigError, match="no engine of the studies serves nothing"):
        sources.converter("nothing")


def test_an_engine_under_another_name_is_checked_with_the_settings_of_its_stages(tmp_path):
    study = demo_study()
    study["engines"] = {"older": {"engine": "llama.cpp", **study["engines"]["llama.cpp"]}}
    study["baseline"] = {"engine": "older"}
    study["stages"] = [{"name": "a", "when": {"engine": "llama.cpp"}, "candidates": [{"options": {"max_num_seqs": 9}}]}]
    write_text(tmp_path / "s.yaml", yaml.safe_dump(study | {"study": "s"}))
    settings = served_settings([(load_project(tmp_path / "s.yaml", ROOT), "older")])
    assert {each.options.get("max_num_seqs") for each in settings} == {None, 9}


def test_before_a_stage_is_planned_all_that_its_runs_are_made_from_is_known(project, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    missing = Sources({"a": project}).missing(Path("results"))
    plan = plan_stage(project, "sequences", baseline(project.study))
    needed = {file for each in plan.candidates for run in each.runs for file in run_files(run.spec).values()}
    assert needed < set(missing)  # other workloads too
    for file in needed:
        Path(file).parent.mkdir(parents=True, exist_ok=True)
        Path(file).touch()
    assert set(Sources({"a": project}).missing(Path("results"))) == set(missing) - needed


def test_a_dataset_that_is_edited_under_its_name_is_another_file(project):
    """Issue: its folder was named by its name, so the old file was there and the edited one was never fetched."""
    files = []
    for sha256 in ("a" * 64, "b" * 64):
        edited = {
            name: workload.model_copy(
                update={"kind": "sharegpt", "dataset": "mine", "parameters": {"dataset_sha256": sha256, "seed": 1}}
            )
            for name, workload in project.workloads.items()
        }
        sources = Sources({"a": replace(project, workloads=edited)})
        files += [file for workload in sources.workloads for file in sources.datasets(workload)]
    assert set(files) == {f"results/datasets/mine-{digit * 12}/dataset.json" for digit in "ab"}


def workflow_config(**keys):
    return WorkflowConfig(studies=[], **keys)


def snakemake_workflow(*rules, local=True):
    found = SimpleNamespace(rules=rules, local_exec=local, is_main_process=True, cores=4, local=[])
    found.localrules = lambda *names: found.local.extend(names)
    return found


def test_on_one_machine_runs_ask_for_nothing_and_all_rules_run_here(planned, studies):
    workflow = snakemake_workflow(*(SimpleNamespace(name=name, resources={}) for name in ("measure", "parse_stage")))
    placed = Placements(workflow, workflow_config(), studies, measuring(), Path("results/runs"))
    placed.place("envs/workflow.yaml")
    assert workflow.local == ["parse_stage"]
    assert placed.job(planned.run_ids()[0], 1) == {} and placed.resources(lambda *job: {}) == {}
    assert placed.accelerators() == 1


def test_a_cluster_needs_a_site(planned, studies):
    placed = Placements(snakemake_workflow(local=False), workflow_config(), studies, measuring(), Path("results/runs"))
    with pytest.raises(ConfigError, match="site: missing, and a cluster needs it"):
        placed.job(planned.run_ids()[0], 1)
    hardware = HardwareSpec(accelerator="cpu", device="cpu", count=1)
    with pytest.raises(ConfigError, match="site: missing"):
        placed.threads(hardware)


def test_on_a_cluster_a_run_asks_for_what_its_site_says(planned, studies):
    site = Path("config/sites/here.yaml")
    site.parent.mkdir(parents=True, exist_ok=True)
    site.write_text("site: here\ndevices:\n  cpu: {partition: nodes, cpus: 3, memory_gb: 2}\n")
    placed = Placements(
        snakemake_workflow(local=False), workflow_config(site="here"), studies, measuring(), Path("runs")
    )
    request = placed.job(planned.run_ids()[0], 1)
    assert request["mem_mb"] == 2000 and request["slurm_partition"] == "nodes"
    job = SimpleNamespace(run_id=planned.run_ids()[0])
    resources = placed.resources(lambda wildcards, attempt: placed.job(wildcards.run_id, attempt))
    assert resources["mem_mb"](job, 1) == 2000 and resources["gres"](job, 1) is None


def test_lines_for_the_stages_of_measured_runs_and_objects(project, planned, caplog, tmp_path, monkeypatch):
    caplog.set_level("INFO")
    run = planned.run_ids()[0]
    handler = progress_lines.ProgressHandler([project.study], Path("results"), lambda last: [last])
    monkeypatch.setattr(progress_lines, "_for_programs", [(tmp_path / "out").open("w")])
    log, decided = tmp_path / "log", {"search": SEARCH, "stage": planned.stage}
    log.write_text("error: of an earlier attempt\n")
    fault = Path(f"results/logs/measure/{run}.json"), {"kind": "environment", "reason": "disk"}
    write_json(*fault)  # of an earlier attempt too
    for job, rule in enumerate(("measure", "decide_stage", "measure", "measure")):
        started = {"event": LogEvent.JOB_INFO, "rule_name": rule, "jobid": job, "log": [str(log)], "resources": {}}
        handler.emit(logging.makeLogRecord(started | {"wildcards": {"run_id": run} if rule == "measure" else decided}))
    log.write_text("error: a disk is full, or cannot be written: /tmp. To mend it: free some\n")
    for job in (2, 3):
        failed = {"event": LogEvent.JOB_ERROR, "jobid": job, "log": [str(log)], "rule_msg": None}
        handler.emit(logging.makeLogRecord(failed))
        write_json(*fault)  # of the second
    for job in (1, 0, 0):
        handler.emit(logging.makeLogRecord({"event": LogEvent.JOB_FINISHED, "job_id": job}))
    assert [line.startswith(f"cpu-smollm2, {planned.stage}: ") for line in caplog.messages] == [True]
    told = [RunOutput.model_validate_json(line) for line in (tmp_path / "out").read_text().splitlines()]
    assert [each.event for each in told] == [*["begun"] * 4, *["failed"] * 2, "finished", "decided", "finished"]
    assert [each.runs for each in told] == [[run], [], *[[run]] * 4, [], [], [run]]
    assert [(each.kind, each.reason) for each in told[4:6]] == [("outage", None), ("environment", "disk")]
    assert told[4].message.startswith("a disk is full") and told[7].stages and told[-1].stages


def test_a_missing_container_program_is_one_error_that_names_the_lock(tmp_path, monkeypatch):
    """It is checked as the workflow starts, while something is left to measure and to build."""
    project = load_project(ROOT / "config/studies/vllm-h100-node.yaml", ROOT)
    studies = Studies(live={"vllm-h100-node": project}, recorded={})
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ConfigError) as error:
        studies.check_environments(tmp_path, ["vllm-h100-node"])
    assert str(error.value) == (
        "config/studies/vllm-h100-node.yaml: engines.vllm: there is no program `docker` here; run where it is "
        "installed, use another runtime, or serve from packages: "
        "`vllm: {version: 0.17.1, lock: envs/vllm-0.17.1.lock.txt}` (docs/engines.md)"
    )
    (tmp_path / "docker").write_text("#!/bin/sh\n")
    (tmp_path / "docker").chmod(0o755)
    studies.check_environments(tmp_path, ["vllm-h100-node"])
