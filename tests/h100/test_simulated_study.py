"""Live studies, whole, on simulated H100s: the answer is within 3 % of the best that the study could have chosen.

Simulated: no GPU, no engine, no weights. `SIMULATED_SEEDS` lists seeds of the noise, `SIMULATED_SLOWER` says how many
seconds pass for a simulated one, and `SIMULATED_KEEP` names a folder for what is made.
"""

import os
import subprocess
from itertools import product
from pathlib import Path
from random import Random

import pytest
import yaml
from device_tools import write_nvidia_smi
from engines import doubles
from h100.stand_in import BETWEEN_STARTS, BETWEEN_STEPS, GIB, SERVERS, Request, launched, simulated_tokens_per_s
from tokenizers import Tokenizer, models, pre_tokenizers
from unit.made_preflight import make_model
from workflow.workspace import ROOT, Workspace

from servelab.core.yaml_file import read_yaml
from servelab.engines.adapters import ENGINES
from servelab.metrics.objective import per_basis
from servelab.search.options_space import space_of
from servelab.search.project import load_project
from servelab.search.simulate import Measured, simulate_project
from servelab.study.configuration import Configuration, key_of

HERE = Path(__file__).parent
SEEDS = [int(seed) for seed in os.environ.get("SIMULATED_SEEDS", "1").split(",")]
SLOWER = float(os.environ.get("SIMULATED_SLOWER", "1"))
SIMULATED = yaml.safe_load((HERE / "simulated.yaml").read_text().replace("{slower}", f"{SLOWER:g}"))
NEAR = 0.97


def made_models(folder, shapes):
    """Models by variant: their shapes, and weights that are holes."""
    tokenizer = Tokenizer(models.WordLevel({f"w{number}": number for number in range(4096)}, unk_token="w0"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    made = {variant: make_model(folder / variant, each["config"]) for variant, each in shapes.items()}
    for variant, model in made.items():
        os.truncate(model / "model.safetensors", int(shapes[variant]["gib"] * GIB))
        tokenizer.save(str(model / "tokenizer.json"))
    return made


def simulated(folder, shipped, seed, weights):
    """The shipped study with simulated servers, and a load that they serve in seconds."""
    study = read_yaml(ROOT / f"config/studies/{shipped}.yaml")
    slower = SLOWER * SIMULATED["studies"][shipped].get("slower", 1)
    sources = {name: {"source": {"kind": "path", "path": str(each), "revision": "1"}} for name, each in weights.items()}
    study["model"] = {"id": study["model"]["id"], **sources.pop("base"), "variants": sources}
    for name, engine in study["engines"].items():
        release = f"{name}-{engine['version']}"
        (place := folder / release).mkdir()
        names = {metric: given[0] for metric, given in ENGINES.get(name).metric_names.items()}
        more = {"server": SERVERS[release], "seed": seed, "slower": slower, "metric_names": names}
        lock = doubles.lock(release, place, HERE / "stand_in.py", **more)
        study["engines"][name] = {"version": engine["version"], "runtime": "host", "lock": str(lock)}
    return study | SIMULATED["studies"][shipped]["study"]


@pytest.fixture(params=product(SIMULATED["studies"], SEEDS), ids=str)
def made(request, tmp_path, monkeypatch):
    """A copy of the project with the study, what it loads, the simulated objective of each configuration, and more."""
    shipped, seed = request.param
    its = SIMULATED["studies"][shipped]
    name, hardware = its["study"]["study"], its["study"]["hardware"]
    write_nvidia_smi(tmp_path, gpus=hardware["per_node"], name=hardware["accelerator"])
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.setenv("SERVELAB_LOCKS", str(tmp_path))
    folder = Path(os.environ.get("SIMULATED_KEEP", tmp_path)) / f"{name}-seed-{seed}"
    workspace = Workspace.create(folder / "project", shared=())  # names by content would stay behind in the project's
    weights = made_models(folder, its["models"])
    workspace.write("config/workloads.yaml", yaml.safe_dump(SIMULATED["workloads"]))
    workspace.write("config/config.yaml", f"studies: [{name}]\n")
    workspace.write_study(simulated(folder, shipped, seed, weights))
    project = load_project(workspace.folder / f"config/studies/{name}.yaml", workspace.folder)
    return workspace, project, landscape(project, weights), its


def copies(study, configuration):
    """From tokens a second of a deployment to the objective's."""
    return per_basis(study.objective.metric_and_basis[1], configuration.accelerators, study.hardware.per_node)[0]


def landscape(project, weights):
    """The simulated objective of each configuration by its key, without noise."""
    load, draw, found = project.workloads[project.study.objective.on].parameters, Random(0), {}
    prompts = [[draw.randrange(4096) for _ in range(load["input_tokens"])] for _ in range(load["num_requests"])]
    tpot_ms = project.study.objective.constraints.get("tpot_ms", {"mean": 1e9})["mean"] / SLOWER
    for each in (variant.configuration for variant in space_of(project.study).variants):
        words = ENGINES.get(each.engine).flags(each.options, each.arguments)
        given = {word: next(iter(words[at + 1 :]), "") for at, word in enumerate(words) if word.startswith("-")}
        server = SERVERS[f"{each.engine}-{project.study.engines[each.engine].version}"]
        requests = [Request(prompt, load["output_tokens"]) for prompt in prompts]
        launch = launched(server, given | each.environment_variables, weights[each.model], each.accelerators)
        most = project.study.protocol_of(project.study.objective.on, each.accelerators).max_concurrency or len(prompts)
        found[key_of(each)] = copies(project.study, each) * simulated_tokens_per_s(launch, requests, most, tpot_ms)
    return found


def test_plans_and_decisions_of_20_seeds(made):
    """Without servers: the noise of starts and rounds on the landscape."""
    _, project, truth, _ = made
    near = 0
    for draw in map(Random, range(20)):

        def measure(each, load, start, draw=draw):
            value = truth[key_of(each)] / copies(project.study, each) * draw.lognormvariate(0, BETWEEN_STARTS)
            rounds = [value * draw.lognormvariate(0, BETWEEN_STEPS) for _ in range(2)]
            return Measured(rounds, 60.0, failed=None if value else "crashed")

        near += truth[key_of(simulate_project(project, measure).winner)] >= NEAR * max(truth.values())
    assert near >= 19


@pytest.mark.slow
def test_what_vllm_refuses_is_refused_with_its_lines(made):
    folder = made[0].folder.parent
    (program,) = folder.glob("vllm-*/mindie-service/bin/program")
    for variant, flags, reason in made[-1]["refused"]:
        command = [program, "serve", str(folder / variant), "--host", "127.0.0.1", "--port", "1", *flags.split()]
        devices = {"CUDA_VISIBLE_DEVICES": ",".join(map(str, range(16)))}
        done = subprocess.run(command, env=os.environ | devices, stderr=subprocess.PIPE, text=True)
        assert done.returncode and ENGINES.get("vllm").explain_failure(done.stderr.splitlines()).reason == reason, flags


@pytest.mark.slow
def test_the_answer_is_near_the_best_of_the_landscape(made):
    workspace, project, truth, its = made
    workspace.snakemake()
    folder = f"results/studies/{project.study.study}"
    proof = workspace.json(f"{folder}/recommended.json")["proof"]
    found = truth[key_of(Configuration.model_validate(proof["proposed"]))]
    (proved,) = [each for each in proof["workloads"] if each["workload"] == project.study.objective.on]
    assert found >= NEAR * max(truth.values())
    assert proof["verdict"] == "better"
    assert proved["value"] * SLOWER * its.get("slower", 1) == pytest.approx(found, rel=0.05)
    page = (workspace.folder / folder / "report.html").read_text()
    on = f"on {proof['proposed']['accelerators']} × NVIDIA H100 80GB HBM3 (simulated)"
    assert "SIMULATED" in page and on in page
