"""The live studies of the five published models: they plan, and give the published commands, token for token."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from servelab.core.yaml_file import read_config
from servelab.search.planning import plan_stage
from servelab.search.project import load_project
from servelab.study.configuration import baseline
from servelab.study.plan import winner_of
from servelab.study.recorded.study import RecordedStudy

ROOT = Path(__file__).parents[2]
STUDIES = ["qwen3-235b-a22b-h100", "qwen3-32b-h100", "qwen3-14b-h100", "qwen3.5-9b-h100", "qwen3-30b-a3b-910b"]

NOT_OF_ITS_SECTION = {
    # The page prints another engine's command than its section is about.
    ("qwen3-32b-h100", "quantization/fp8"): ("sglang", "Qwen/Qwen3-32B-FP8"),
    # The page serves the weights of another model than its own.
    ("qwen3-30b-a3b-910b", "quantization/w8a8"): ("mindie", "vllm-ascend/Qwen3-8B-W8A8"),
}
LEFT_OUT = {("qwen3-235b-a22b-h100", "attention/flashinfer")}
"""Commands of a page that an environment of ours cannot run; the study says why."""
ADDED = {"qwen3-32b-h100": " --gpu-memory-utilization 0.95"}
"""What a study adds to commands of a page, so that they start on the board that is named; the study says why."""


def live(study):
    return load_project(ROOT / f"config/studies/{study}.yaml", ROOT)


def recorded(study):
    return read_config(ROOT / f"config/recorded/{study}/study.yaml", RecordedStudy)


def tokens(command, names=()):
    """A command's tokens, `--flag=value` as two of them; other names of the model become its first."""
    split = [part for token in shlex.split(command) for part in (token.split("=", 1) if token[:2] == "--" else [token])]
    return tuple(names[0] if token in names else token for token in split)


@pytest.mark.parametrize("study", STUDIES)
def test_published_commands_come_out_token_for_token(study):
    """Stage by stage along the page: each starts from what the page chose in the one before."""
    project, page = live(study), recorded(study)
    names = (page.model.id, *page.model.names)
    chosen = {claim.stage: claim.candidate for claim in page.claims if claim.kind == "chosen"}
    commands = {
        f"{stage.name}/{candidate.name}": tokens(candidate.command, names)
        for stage in page.stages
        for candidate in stage.candidates
    }
    assert [stage.name for stage in page.stages] == [stage.name for stage in project.study.stages]
    incumbent = baseline(project.study)
    winners = {page.baseline: incumbent}
    for stage in page.stages:
        plan = plan_stage(project, stage.name, incumbent)
        planned = {tokens(each.command.replace(ADDED.get(study, ""), "")): each for each in plan.candidates}
        for candidate in stage.candidates:
            name = f"{stage.name}/{candidate.name}"
            if (study, name) in NOT_OF_ITS_SECTION or (study, name) in LEFT_OUT:
                continue
            found = planned[commands[name]]
            assert found.refused is None
            if project.study.hardware.device == "nvidia":  # the page does not say how many MindIE took
                assert found.configuration.accelerators == candidate.accelerators
            winners[name] = winner_of(plan, found.candidate)
        if (study, chosen.get(stage.name)) in NOT_OF_ITS_SECTION:
            winners[chosen[stage.name]] = winner_of(plan, plan.candidates[1].candidate)
        incumbent = winners[chosen[stage.name]] if stage.name in chosen else incumbent
