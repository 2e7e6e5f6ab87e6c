"""Plans: candidates are overrides on the incumbent; what cannot be run is refused, and said."""

from collections import Counter
from random import Random

import pytest

from servelab.search.planning import plan_confirm, plan_stage
from servelab.study.configuration import Configuration, Incumbent, apply, baseline, difference
from servelab.study.study import Candidate, Overrides


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


def test_another_engine_drops_what_was_the_old_engines_own(incumbent):
    after = apply(incumbent, Candidate(engine="vllm"))
    assert after.arguments == {}
    assert after.environment_variables == {}
    assert after.options == {"max_num_seqs": 16}


def test_first_stage_is_the_baseline_and_every_candidate(study_content, make_project):
    project = make_project(study_content)
    plan = plan_stage(project, "sequences", baseline(project.study))
    assert plan.candidates[0].candidate == "baseline"
    assert len(plan.candidates) == 1 + len(study_content["stages"][0]["candidates"])
    assert len(plan.run_ids()) == len(plan.candidates) + 1  # the incumbent is measured on two server starts
    assert {run.workload for candidate in plan.candidates for run in candidate.runs} == {"cpu-sharegpt"}


def test_candidate_equal_to_the_incumbent_is_not_run_again(study_content, make_project):
    study_content["baseline"]["options"] = {"max_num_seqs": 8}
    project = make_project(study_content)
    plan = plan_stage(project, "sequences", baseline(project.study))
    assert "max_num_seqs=8" not in [candidate.candidate for candidate in plan.candidates]


def test_refused_candidate_has_no_run_and_says_why(study_content, make_project):
    study_content["engines"]["vllm"] = {"version": "0.32.0"}  # has the option that the incumbent's engine lacks
    study_content["stages"][0]["candidates"].append({"options": {"expert_parallel": True}})
    project = make_project(study_content)
    refused = plan_stage(project, "sequences", baseline(project.study)).candidates[-1]
    assert refused.runs == []
    assert "llama.cpp" in refused.refused and "expert_parallel" in refused.refused


def test_only_the_first_pairs_measure_what_does_not_decide_and_in_one_round(study_content, make_project, incumbent):
    study_content |= {"answers": {}, "workloads": ["cpu-sharegpt", "cpu-short", "cpu-long"]}
    study_content["workloads"][2] = {"name": "cpu-long", "pairs": 5, "rounds": 2}
    plan = plan_confirm(
        make_project(study_content), Incumbent(candidate="16", configuration=incumbent), 6, lost={"cpu-short": 1}
    )
    for candidate in plan.candidates:
        counts = Counter((run.workload, run.spec.protocol.rounds) for run in candidate.measured_runs)
        assert counts == {("cpu-sharegpt", 3): 6, ("cpu-short", 1): 4, ("cpu-long", 2): 5, ("answers", 1): 3}


def test_a_limit_reruns_what_is_measured_for_goodput_and_nothing_else(study_content, make_project):
    def runs(metric, limit):
        study_content["objective"] |= {"metric": metric, "slos": {"ttft_ms": limit}}
        project = make_project(study_content)
        plan = plan_confirm(project, baseline(project.study), 3)
        return plan.run_ids(), plan.candidates[0].runs[0].spec.slos

    assert runs("total_tokens_per_s", 500.0) == (runs("total_tokens_per_s", 300.0)[0], {})
    of_500, limits = runs("goodput_per_s", 500.0)
    assert limits == {"ttft_ms": 500.0}
    assert not set(of_500) & set(runs("goodput_per_s", 300.0)[0])


@pytest.mark.parametrize("seed", range(40))
def test_changes_lead_from_one_configuration_to_the_other(seed):
    """A flag without a value is a change too, and one that is gone is not the same flag given."""
    draw = Random(seed)

    def made():
        arguments = {name: draw.choice([None, True, 1, "x"]) for name in "abcd" if draw.random() < 0.5}
        options = {name: draw.randint(1, 2) for name in ("max_num_seqs", "threads") if draw.random() < 0.5}
        variables = {"A": draw.choice("12")}
        return Configuration(
            engine="e",
            model="base",
            options=options,
            arguments=arguments,
            environment_variables=variables,
            accelerators=draw.randint(1, 2),
        )

    before, after = made(), made()
    changed = apply(before, Overrides.model_validate(difference(before, after)))
    assert changed == after and (difference(before, after) == {}) == (before == after)
