"""The live Qwen3-32B study, whole, on a simulated H100: its answer is within 3 % of the best that it could have chosen.

Simulated: no GPU, no engine, no weights. `SIMULATED_SEEDS` lists seeds of the noise, `SIMULATED_SLOWER` says how many
seconds pass for a simulated one, and `SIMULATED_KEEP` names a folder for what is made.
"""

import os
import subprocess
from pathlib import Path
from random import Random

import pytest
import yaml
from device_tools import write_nvidia_smi
from engines import doubles
from h100.stand_in import BETWEEN_STARTS, BETWEEN_STEPS, SERVERS, Request, launched, simulated_tokens_per_s
from tokenizers import Tokenizer, models, pre_tokenizers
from unit.made_preflight import make_model
from workflow.workspace import ROOT, Workspace

from servelab.core.yaml_file import read_yaml
from servelab.engines.adapters import ENGINES
from servelab.search.options_space import space_of
from servelab.search.project import load_project
from servelab.search.simulate import Measured, simulate_project
from servelab.study.configuration import Configuration, key_of

HERE = Path(__file__).parent
SEEDS = [int(seed) for seed in os.environ.get("SIMULATED_SEEDS", "1").split(",")]
SLOWER = float(os.environ.get("SIMULATED_SLOWER", "1"))
SIMULATED = yaml.safe_load((HERE / "simulated.yaml").read_text().replace("{slower}", f"{SLOWER:g}"))
NAME, DECIDES = SIMULATED["study"]["study"], SIMULATED["study"]["objective"]["on"]
NEAR = 0.97
FP8 = {"quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]}}
FP8_BYTES = 34 << 30


def made_models(folder):
    """Models by variant: the shape of Qwen3-32B, and weights that are holes."""
    tokenizer = Tokenizer(models.WordLevel({f"w{number}": number for number in range(4096)}, unk_token="w0"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    shape = {"model_type": "qwen3", "intermediate_size": 25600, "vocab_size": 151936}
    made = {"base": make_model(folder / "base", shape), "fp8": make_model(folder / "fp8", shape | FP8)}
    os.truncate(made["fp8"] / "model.safetensors", FP8_BYTES)
    for model in made.values():
        tokenizer.save(str(model / "tokenizer.json"))
    return made


def simulated(folder, seed, weights):
    """The shipped study with simulated servers, and a load that they serve in seconds."""
    study = read_yaml(ROOT / "config/studies/qwen3-32b-h100.yaml")
    base, fp8 = ({"source": {"kind": "path", "path": str(each), "revision": "1"}} for each in weights.values())
    study["model"] = {"id": study["model"]["id"], **base, "variants": {"fp8": fp8}}
    for name, engine in study["engines"].items():
        release = f"{name}-{engine['version']}"
        (place := folder / release).mkdir()
        names = {metric: given[0] for metric, given in ENGINES.get(name).metric_names.items()}
        more = {"server": SERVERS[release], "seed": seed, "slower": SLOWER, "metric_names": names}
        lock = doubles.lock(release, place, HERE / "stand_in.py", **more)
        study["engines"][name] = {"version": engine["version"], "runtime": "host", "lock": str(lock)}
    return study | SIMULATED["study"]


@pytest.fixture(params=SEEDS)
def made(request, tmp_path, monkeypatch):
    """A copy of the project with the study, what it loads, and the simulated tokens a second of each configuration."""
    write_nvidia_smi(tmp_path, gpus=1, name=SIMULATED["study"]["hardware"]["accelerator"])
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.setenv("SERVELAB_LOCKS", str(tmp_path))
    folder = Path(os.environ.get("SIMULATED_KEEP", tmp_path)) / f"{NAME}-seed-{request.param}"
    workspace = Workspace.create(folder / "project", shared=())  # names by content would stay behind in the project's
    weights = made_models(folder)
    workspace.write("config/workloads.yaml", yaml.safe_dump(SIMULATED["workloads"]))
    workspace.write("config/config.yaml", f"studies: [{NAME}]\n")
    workspace.write_study(simulated(folder, request.param, weights))
    project = load_project(workspace.folder / f"config/studies/{NAME}.yaml", workspace.folder)
    return workspace, project, landscape(project, weights)


def landscape(project, weights):
    """Simulated total tokens a second of each configuration by its key, without noise."""
    load, draw, found = SIMULATED["workloads"][DECIDES]["parameters"], Random(0), {}
    prompts = [[draw.randrange(4096) for _ in range(load["input_tokens"])] for _ in range(load["num_requests"])]
    for each in (variant.configuration for variant in space_of(project.study).variants):
        words = ENGINES.get(each.engine).flags(each.options, each.arguments)
        given = {word: next(iter(words[at + 1 :]), "") for at, word in enumerate(words) if word.startswith("-")}
        server = SERVERS[f"{each.engine}-{project.study.engines[each.engine].version}"]
        requests = [Request(prompt, load["output_tokens"]) for prompt in prompts]
        found[key_of(each)] = simulated_tokens_per_s(launched(server, given, weights[each.model], 1), requests)
    return found


def test_plans_and_decisions_of_20_seeds(made):
    """Without servers: the noise of starts and rounds on the landscape."""
    _, project, truth = made
    near = 0
    for seed in range(20):
        draw = Random(seed)

        def measure(configuration, load, start, draw=draw):
            value = truth[key_of(configuration)] * draw.lognormvariate(0, BETWEEN_STARTS)
            return Measured([value * draw.lognormvariate(0, BETWEEN_STEPS) for _ in range(2)], 60.0)

        near += truth[key_of(simulate_project(project, measure).winner)] >= NEAR * max(truth.values())
    assert near >= 19


@pytest.mark.slow
def test_what_vllm_refuses_is_refused_with_its_lines(made):
    folder = made[0].folder.parent
    program = [folder / "vllm-0.11.0/mindie-service/bin/program", "-m", "vllm.entrypoints.openai.api_server", "--model"]
    for variant, flags, reason in (
        ("base", "-tp 3", "unsupported_argument"),
        ("fp8", "-tp 16", "unsupported_argument"),
        ("base", "--max-model-len 40960", "out_of_memory"),
        ("base", "--gpu-memory-utilization 0.5", "out_of_memory"),
        ("base", "--max-model-length 8192", "unsupported_argument"),
    ):
        command = [*program, str(folder / variant), "--host", "127.0.0.1", "--port", "1", *flags.split()]
        devices = {"CUDA_VISIBLE_DEVICES": ",".join(map(str, range(16)))}
        done = subprocess.run(command, env=os.environ | devices, stderr=subprocess.PIPE, text=True)
        assert done.returncode and ENGINES.get("vllm").explain_failure(done.stderr.splitlines()).reason == reason, flags


@pytest.mark.slow
def test_the_answer_is_near_the_best_of_the_landscape(made):
    workspace, _, truth = made
    workspace.snakemake()
    folder = f"results/studies/{NAME}"
    proof = workspace.json(f"{folder}/recommended.json")["proof"]
    found = truth[key_of(Configuration.model_validate(proof["proposed"]))]
    (proved,) = [each for each in proof["workloads"] if each["workload"] == DECIDES]
    assert found >= NEAR * max(truth.values())
    assert proof["verdict"] == "better"
    assert proved["value"] == pytest.approx(found, rel=0.05)
    page = (workspace.folder / folder / "report.html").read_text()
    assert "SIMULATED" in page and "on 1 × NVIDIA H100 80GB HBM3 (simulated)" in page
