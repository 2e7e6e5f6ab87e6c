"""The command line between a rule and its script, and the digests of what rules read."""

import os
import re
import shlex
import subprocess
import sys
import time
from pathlib import Path

import yaml
from snakemake.iocontainers import InputFiles, OutputFiles, Wildcards

from servelab.core.cli import RuleJob
from servelab.core.files import write_text
from servelab.core.yaml_file import read_yaml
from servelab.workflow.made_from import code_files, set_back, write_digest
from servelab.workflow.rule_parts import call, rule_files

ROOT = Path(__file__).parents[2]


def test_a_script_gets_what_its_rule_has_by_name():
    read = InputFiles(
        fromdict={"plan": "a b/plan.json", "tables": ["1.parquet", "2.parquet"], "none": [], "made_from": "x"}
    )
    made = OutputFiles(fromdict={"decision": "decision.json"})
    files = rule_files(Wildcards(fromdict={"stage": "engine"}), read, made)
    command = call("stages.decide_stage", "sign").replace("{params.files:q}", shlex.quote(files))
    words = shlex.split(command.replace("{params.sign:q}", shlex.quote('{"a": "b=c"}')))
    assert words[:3] == ["python", "$SERVELAB_SCRIPTS/stages.py", "decide_stage"]
    rule = RuleJob(words[3:5])
    assert rule.input == {"plan": Path("a b/plan.json"), "tables": [Path("1.parquet"), Path("2.parquet")], "none": []}
    assert (rule.output.decision, rule.wildcards.stage) == (Path("decision.json"), "engine")
    assert rule.params == {"sign": '{"a": "b=c"}'}


def test_a_digest_is_as_old_as_its_newest_file_and_new_when_one_changes(tmp_path):
    scripts, digest = tmp_path / "scripts", tmp_path / "code.sha256"
    (scripts / "pack/templates").mkdir(parents=True)
    for age, name in enumerate(("make.py", "pack/one.py", "pack/templates/page.j2")):
        (scripts / name).write_text("")
        os.utime(scripts / name, ns=(0, 10**18 + age))

    def made_ns():
        write_digest(digest, code_files(scripts))
        return digest.stat().st_mtime_ns

    assert made_ns() == 10**18 + 2
    (scripts / "pack/__pycache__").mkdir()
    (scripts / "pack/__pycache__/one.pyc").write_text("compiled")
    (scripts / "make.py").touch()
    assert made_ns() == 10**18 + 2  # the content is the same
    (scripts / "pack/templates/page.j2").write_text("changed")
    os.utime(scripts / "pack/templates/page.j2", ns=(0, 0))
    assert made_ns() > 10**18 + 2


def test_results_ahead_of_the_clock_are_dated_now_and_alike(tmp_path):
    """Changed code was "Nothing to be done": its digest was older than they were."""
    ahead = [tmp_path / name for name in ("studies/s/stages/a/table.parquet", "runs/r/status.json", "studies/s/a")]
    for number, path in enumerate((*ahead, tmp_path / "runs/r/spec.json")):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
        os.utime(path, ns=(0, 4 * 10**18 + number if path in ahead else 10**18))
    set_back(tmp_path)
    times = {path.stat().st_mtime_ns for path in ahead}
    assert len(times) == 1 and times.pop() <= time.time_ns()
    assert (tmp_path / "runs/r/spec.json").stat().st_mtime_ns == 10**18


def test_an_engine_of_another_package_is_planned_and_its_code_counts(tmp_path):
    """Installed as pip does: a module, and beside it the file that names it."""
    page = (ROOT / "docs/adding.md").read_text()
    study = read_yaml(ROOT / "config/studies/cpu-smollm2.yaml")
    study |= {
        "engines": {"toy": {"version": "1.0", "runtime": "host", "lock": "envs/toy.host.yaml"}},
        "model": {"id": "m", "format": "safetensors", "source": {"kind": "path", "path": "/m", "revision": "1"}},
        "baseline": {"engine": "toy"},
        "search": {"strategy": "staged"},
        "stages": [{"name": "slots", "candidates": [{"options": {"max_num_seqs": 2}}]}],
    }
    for name, text in {
        "toy_serving/adapter.py": re.findall(r"```python\n(.*?)```", page, re.DOTALL)[0],
        "toy_serving-1.dist-info/entry_points.txt": "[servelab.engines.adapters]\ntoy = toy_serving.adapter\n",
        "config/config.yaml": "studies: [toy]\n",
        "config/studies/toy.yaml": yaml.safe_dump(study | {"study": "toy"}),
        "envs/toy.host.yaml": re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)[0],
    }.items():
        write_text(tmp_path / name, text)

    def python(*words):
        environment = os.environ | {"PYTHONPATH": f"{tmp_path}:{ROOT / 'scripts'}"}
        command = [sys.executable, *words]
        return subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)

    planned = python(ROOT / "scripts/servelab_command.py", "plan", "toy")
    assert "toy-serve --model m --slots 2" in planned.stdout, planned
    counted = python(
        "-c", "import servelab.engines.adapters; from servelab.core.registry import *; print(plugged_in())"
    )
    assert str(tmp_path / "toy_serving/adapter.py") in counted.stdout
    (tmp_path / "toy_serving/adapter.py").write_text("import no_such_module")
    broken = python(ROOT / "scripts/servelab_command.py", "check", "toy")
    assert "entry point toy of servelab.engines.adapters, toy_serving.adapter: ModuleNotFound" in broken.stderr
    assert "Traceback" not in broken.stderr
