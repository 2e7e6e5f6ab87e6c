"""Plans: candidates are overrides on the incumbent; what cannot be run is refused, and said."""

import pytest

from servelab.plan import Configuration, Incumbent, apply, baseline, plan_stage
from servelab.study import COMPARISON, Candidate


@pytest.fixture
def incumbent():
    return Configuration(
        engine="llama.cpp",
        model="base",
        options={"max_num_seqs": 16},
        arguments={"--numa": "isolate", "--mlock": None},
        environment_variables={"OMP_NUM_THREADS": "2"},
        accelerators=1,
    )


def test_overrides_change_what_they_name_and_keep_the_rest(incumbent):
    after = apply(incumbent, Candidate(options={"threads": 1}, arguments={"--mlock": False}))
    assert after.options == {"max_num_seqs": 16, "threads": 1}
    assert after.arguments == {"--numa": "isolate"}
    assert after.environment_variables == incumbent.environment_variables


def test_null_option_goes_back_to_the_default(incumbent):
    assert apply(incumbent, Candidate(options={"max_num_seqs": None})).options == {}


def test_another_engine_drops_what_was_the_old_engines_own(incumbent):
    after = apply(incumbent, Candidate(engine="vllm"))
    assert after.arguments == {}
    assert after.environment_variables == {}
    assert after.options == {"max_num_seqs": 16}


def test_first_stage_is_the_baseline_and_every_candidate(study_content, make_project):
    project = make_project(study_content)
    plan = plan_stage(project, "sequences", baseline(project))
    assert plan.candidates[0].candidate == "baseline"
    assert len(plan.candidates) == 1 + len(study_content["stages"][0]["candidates"])
    assert len(plan.run_ids()) == len(plan.candidates)
    assert {run.workload for candidate in plan.candidates for run in candidate.runs} == {"cpu-sharegpt"}


def test_candidate_equal_to_the_incumbent_is_not_run_again(study_content, make_project):
    study_content["baseline"]["options"] = {"max_num_seqs": 8}
    project = make_project(study_content)
    plan = plan_stage(project, "sequences", baseline(project))
    assert "max_num_seqs=8" not in [candidate.candidate for candidate in plan.candidates]


def test_refused_candidate_has_no_run_and_says_why(study_content, make_project):
    study_content["engines"]["vllm"] = {"version": "0.32.0"}  # has the option that the incumbent's engine lacks
    study_content["stages"][0]["candidates"].append({"options": {"expert_parallel": True}})
    project = make_project(study_content)
    refused = plan_stage(project, "sequences", baseline(project)).candidates[-1]
    assert refused.runs == []
    assert "llama.cpp" in refused.refused and "expert_parallel" in refused.refused


def test_stage_that_does_not_apply_measures_only_the_incumbent(study_content, make_project):
    study_content["stages"][0]["when"] = {"engine": "vllm"}
    project = make_project(study_content)
    plan = plan_stage(project, "sequences", baseline(project))
    assert not plan.applies
    assert "engine is vllm" in plan.reason and "llama.cpp" in plan.reason
    assert len(plan.candidates) == 1


def test_comparison_runs_baseline_and_winner_on_every_workload(study_content, make_project, incumbent):
    project = make_project(study_content)
    plan = plan_stage(project, COMPARISON, Incumbent(candidate="16", configuration=incumbent))
    assert [candidate.candidate for candidate in plan.candidates] == ["baseline", "winner"]
    for candidate in plan.candidates:
        assert [run.workload for run in candidate.runs] == study_content["workloads"]


def test_comparison_of_a_baseline_that_won_measures_it_once(study_content, make_project):
    project = make_project(study_content)
    assert [entry.candidate for entry in plan_stage(project, COMPARISON, baseline(project)).candidates] == ["baseline"]


def test_a_limit_reruns_what_is_measured_for_goodput_and_nothing_else(study_content, make_project):
    def runs(metric, limit):
        study_content["objective"] |= {"metric": metric, "slos": {"ttft_ms": limit}}
        project = make_project(study_content)
        plan = plan_stage(project, COMPARISON, baseline(project))
        return plan.run_ids(), plan.candidates[0].runs[0].spec.slos

    assert runs("total_tokens_per_s", 500.0) == (runs("total_tokens_per_s", 300.0)[0], {})
    of_500, limits = runs("goodput_per_s", 500.0)
    assert limits == {"ttft_ms": 500.0}
    assert not set(of_500) & set(runs("goodput_per_s", 300.0)[0])


def test_all_variants_get_the_same_requests(study_content, make_project):
    study_content["model"]["variants"] = {
        "copy": {"source": {"kind": "path", "path": "/models/copy", "revision": "1"}, "format": "gguf"}
    }
    study_content["stages"][0]["candidates"] = [{"model": "copy"}]
    project = make_project(study_content)
    base, copy = plan_stage(project, "sequences", baseline(project)).candidates
    assert base.runs[0].spec.workload == copy.runs[0].spec.workload
    assert base.runs[0].run_id != copy.runs[0].run_id


def test_accelerators_that_the_engine_would_leave_idle_are_refused(study_content, make_project):
    study_content["hardware"]["per_node"] = 8
    study_content["engines"]["vllm"] = {"version": "0.32.0"}
    study_content["stages"][0]["candidates"] = [
        {"engine": "vllm", "accelerators": 4},
        {"engine": "vllm", "accelerators": 4, "options": {"tensor_parallel_size": 4}},
    ]
    project = make_project(study_content)
    _, idle, used = plan_stage(project, "sequences", baseline(project)).candidates
    assert idle.runs == [] and "tensor_parallel_size" in idle.refused
    assert used.refused is None and used.runs[0].spec.hardware.count == 4
