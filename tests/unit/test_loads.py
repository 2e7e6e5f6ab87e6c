"""Loads of a study's workloads: what each has of its own, and the study's `protocol` for everything else."""

import pytest
import yaml
from made_study import demo_study

from servelab.core.errors import ConfigError
from servelab.search.planning import plan_confirm
from servelab.study.configuration import baseline
from servelab.study.study import load_study

PAIRS = 3
OWN = {
    "num_requests": 7,
    "request_rate": 2.5,
    "arrivals": "gamma",
    "burstiness": 0.5,
    "ramp_up_s": 1.0,
    "max_concurrency": 3,
    "duration_s": 30.0,
    "settle_requests": 2,
    "saturation_in_flight": 100,
}
"""Every key that a load may have of its own."""


def with_workloads(*workloads, **changes):
    content = demo_study()
    content["workloads"] = [content["objective"]["on"], *workloads]
    for key, values in changes.items():
        content[key] = content[key] | values
    return content


def specs(project):
    """Workload → specification of the baseline's run."""
    return {run.workload: run.spec for run in plan_confirm(project, baseline(project.study), PAIRS).candidates[0].runs}


def test_a_load_of_its_own_is_in_the_run_and_nothing_else_changes(make_project):
    own = {"name": "busy", "workload": "cpu-sharegpt", **OWN}
    found = specs(make_project(with_workloads("cpu-short", own)))
    before = specs(make_project(with_workloads("cpu-short")))
    assert {name: found[name] for name in before} == before
    protocol, parameters = found["busy"].protocol, found["busy"].workload.parameters
    assert parameters == before["cpu-sharegpt"].workload.parameters | {"num_requests": OWN["num_requests"]}
    given = {key: value for key, value in OWN.items() if key != "num_requests"}
    assert protocol.model_dump() == before["cpu-sharegpt"].protocol.model_dump() | given | {"rounds": 1}


def test_a_study_with_its_defaults_written_out_has_every_load(make_project, tmp_path):
    """As the recipe of an archive has it, without nulls: it must still plan the same runs."""
    own = {"name": "busy", "workload": "cpu-short", "title": "Busy", "max_concurrency": "inf", "slos": {"ttft_ms": 9}}
    content = with_workloads(own, {"name": "cpu-long", **OWN}, protocol={"max_concurrency": 4})
    study = make_project(content).study
    written = yaml.safe_load(yaml.safe_dump(study.model_dump(mode="json", exclude_none=True)))
    file = tmp_path / "again" / f"{study.study}.yaml"
    file.parent.mkdir()
    file.write_text(yaml.safe_dump(written))
    assert load_study(file) == study
    assert written["workloads"][1] == own


def test_two_loads_have_two_titles(make_project):
    content = with_workloads(
        {"name": "a", "workload": "cpu-short", "request_rate": 2, "max_concurrency": 4, "num_requests": 12},
        {"name": "b", "workload": "cpu-short", "title": "My users", "slos": {"ttft_ms": 500}},
        {"name": "c", "workload": "cpu-short", "request_rate": 3, "slos": {"ttft_ms": 500}},
    )
    project = make_project(with_workloads() | {"workloads": content["workloads"]})
    assert [workload.title for workload in project.workloads.values()] == [
        "ShareGPT (part), 12 prompts, scaled to a CPU",
        "Short prompts (64 in, 4 out), 12 requests, 2 requests/s, at most 4 in flight",
        "My users",
        "Short prompts (64 in, 4 out), 3 requests/s, SLOs ttft_ms 500",
    ]


MISTAKES = {
    "no name": ([{"workload": "cpu-short"}], ["workloads", "entry 0", "`name`"]),
    "twice": (["cpu-sharegpt", "cpu-sharegpt"], ["workloads", "`cpu-sharegpt` is there twice"]),
    "wrong key": (
        ["cpu-sharegpt", {"name": "cpu-short", "max_concurency": 3}],
        ["workloads.cpu-short.max_concurency", "did you mean `max_concurrency`?"],
    ),
    "unknown workload": (["cpu-sharegpt", "cpu-shor"], ["workloads", "did you mean `cpu-short`?"]),
    "the same load": (
        ["cpu-sharegpt", {"name": "again", "workload": "cpu-sharegpt", "request_rate": "inf"}],
        ["workloads.again", "sends the same load as `cpu-sharegpt`"],
    ),
    "against the protocol": (
        ["cpu-sharegpt", {"name": "cpu-short", "arrivals": "constant"}],
        ["workloads.cpu-short", "needs a finite `request_rate`"],
    ),
}


@pytest.mark.parametrize("case", MISTAKES)
def test_a_mistake_is_one_line_with_key_and_fix(make_project, case):
    workloads, expected = MISTAKES[case]
    with pytest.raises(ConfigError) as raised:
        make_project(demo_study() | {"workloads": workloads})
    message = str(raised.value)
    assert "\n" not in message
    assert all(part in message for part in expected), message


def test_goodput_needs_limits_on_each_workload(make_project):
    own = {"name": "cpu-sharegpt", "slos": {"ttft_ms": 500}}
    content = demo_study() | {"workloads": [own, "cpu-short"]}
    content["objective"] |= {"metric": "goodput_per_s"}
    with pytest.raises(ConfigError, match="needs limits on workload cpu-short"):
        make_project(content)
    content["objective"] |= {"metric": "total_tokens_per_s", "constraints": {"slo_attainment": {"mean": 0.9}}}
    make_project(content)
