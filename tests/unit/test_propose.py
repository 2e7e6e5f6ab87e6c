"""`servelab propose`: a candidate is added to a study's file, and tried on the winner of any search; and the skills."""

import json
import re
import shutil
from difflib import ndiff
from pathlib import Path

import propose_candidate
import pytest
import yaml
from made_study import demo_study

from servelab.cli.launch import COMMANDS, Script
from servelab.core.errors import ConfigError
from servelab.engines.adapters import ENGINES
from servelab.search.project import load_project
from servelab.search.simulate import Measured, simulate_project
from servelab.search.strategies import STRATEGIES
from servelab.tune.typed_command import with_flags

ROOT = Path(__file__).parents[2]
BEGUN = "  - name: proposed # mine\n    candidates: []\n# behind the stages\n"
FOUND = BEGUN.replace(" []", "\n      - {label: first, options: {max_num_seqs: 16}} # kept")
FORMS = {"no such stage": "# behind the stages\n", "an empty one": BEGUN, "one with a candidate": FOUND}
SPEEDS = {4: 100.0, 8: 120.0, 32: 150.0}


@pytest.fixture
def study(tmp_path, monkeypatch):
    """Makes a checkout with one study, whose last stage is followed by a text."""

    def make(ending):
        for name in ("config", "envs"):
            shutil.copytree(ROOT / name, tmp_path / name)
        file = tmp_path / "config/studies/cpu-smollm2.yaml"
        head, _, rest = file.read_text().partition("\nworkloads:")
        file.write_text(f"{head}\n{ending}\nworkloads:{rest}")
        monkeypatch.chdir(tmp_path)
        return file

    return make


def propose(*words):
    propose_candidate.main(propose_candidate.options().parse_args(["cpu-smollm2", *words]))


@pytest.mark.parametrize("form", FORMS)
def test_only_the_candidate_is_added(study, form, capsys):
    file = study(FORMS[form])
    before = file.read_text()
    propose("--argument", "parallel=32", "--variable", "OMP_WAIT_POLICY=active", "--reason", "more\nslots", "--json")
    text = file.read_text()
    added = {"options": {"max_num_seqs": 32}, "environment_variables": {"OMP_WAIT_POLICY": "active"}}
    assert yaml.safe_load(text)["stages"][-1]["candidates"][-1] == added
    gone = [line[2:] for line in ndiff(before.splitlines(), text.splitlines()) if line.startswith("- ")]
    assert gone == [line for line in before.splitlines() if line == "    candidates: []"]
    assert "# more slots" in text
    assert json.loads(capsys.readouterr().out)["candidate"] == added


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--argument", "host=0.0.0.0"], "--host: may not be set"),
        (["--argument", "parallel=4"], "changes nothing of the baseline as the engine serves it"),
        (["--engine", "vllm"], "the study has llama.cpp"),
        (["--argument", "parallel"], "--parallel takes a whole number, and has no value"),
        (["--argument", "parallel=many"], "--parallel takes a whole number, not 'many'"),
        (["--weights", "q3"], "q3"),
        ([], "does not change the incumbent"),
    ],
)
def test_what_is_wrong_is_not_written(study, words, why):
    file = study(BEGUN)
    before = file.read_text()
    with pytest.raises(ConfigError, match=why):
        propose(*words)
    assert file.read_text() == before


def test_a_proof_takes_no_candidates(study):
    file = study(BEGUN)
    plan = Path("results/studies/cpu-smollm2/stages/confirm-first/plan.json")
    plan.parent.mkdir(parents=True)
    plan.write_text("{}")
    with pytest.raises(ConfigError, match="its proof has begun"):
        propose("--argument", "parallel=32")
    assert load_project(file, Path()).study.stages[-1].candidates == []


@pytest.mark.parametrize("strategy", STRATEGIES.names())
def test_it_is_tried_on_the_winner_of_any_search(make_project, strategy):
    def measure(configuration, load, start):
        speed = SPEEDS.get(configuration.options.get("max_num_seqs"), 90.0) * (1 + 0.1 * bool(configuration.arguments))
        measured.append(configuration)
        return Measured(rounds=[speed * (1 + 0.001 * (len(measured) % 3))] * 3, accelerator_s=60.0)

    measured = []
    batch = {"name": "batch", "candidates": [{"arguments": {"--ubatch-size": 64}}]}
    slots = {"name": "slots", "candidates": [{"options": {"max_num_seqs": 8}}]}
    proposed = {"name": "proposed", "candidates": [{"options": {"max_num_seqs": 32}}]}
    stages = {"stages": [slots, batch, proposed], "search": {"strategy": strategy}}
    found = simulate_project(make_project(demo_study() | stages), measure)
    assert found.winner.options["max_num_seqs"] == 32 and found.winner.arguments == {"--ubatch-size": 64}
    assert found.verdict == "better"
    assert sum(each.options.get("max_num_seqs") == 32 for each in measured) >= 4


@pytest.mark.parametrize("engine", [*ENGINES], ids=lambda engine: engine.name)
def test_an_argument_is_read_for_any_engine_also_one_that_no_typed_command_starts(engine):
    found = with_flags(engine, ["MODEL", "--its-own=77"], {}, None)
    assert (found.engine, found.arguments, found.left_out) == (engine.name, {"its-own": 77}, {})


@pytest.mark.parametrize("file", sorted(ROOT.glob("skills/*/SKILL.md")), ids=lambda file: file.parent.name)
def test_a_skill_has_its_folders_name_and_commands_that_exist(file):
    _, head, text = file.read_text().split("---\n", 2)
    keys = yaml.safe_load(head)
    assert keys["name"] == file.parent.name and 0 < len(keys["description"]) <= 1024
    lines = re.findall(r"`servelab ([^`]+)`", text)
    assert lines
    for name, *words in map(str.split, lines):
        command = COMMANDS[name]
        is_script = isinstance(command, Script)
        flags = command.parser(name)._option_string_actions if is_script else {"--again", "--json"}
        assert {word for word in words if word.startswith("--") and word != "--"} <= set(flags), name
