"""Every command the documents show is run: here, or by .ci/run."""

import re
import shlex
import shutil
from pathlib import Path

import pytest
from servelab_command import SERVELAB, run_servelab
from workspace import tiny_study

ROOT = Path(__file__).parents[2]
DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
PROGRAMS = ("make", "snakemake", "servelab", "python", "cp", "source", "export", "pip")

IN_CI = {"make demo", "make test", "make gate"}
"""Shown, and run by .ci/run itself."""
BY_OTHERS = {
    "servelab bisect my-study --engine vllm --good 0.30.0 --bad 0.33.0": "test_bisect_releases.py, with llama.cpp",
    "make gpu-test": "nobody: it needs a GPU; test_gpu_target.py has how it ends without one",
    "make gpu-pack PYTHON=python3.12": "nobody: it takes minutes; test_gpu_target.py has its parts",
    "make gpu-rehearsal": "nobody: CI has no time for it",
    "make nightly": "all that .ci/run has no time for",
    "make setup": "every target begins with it",
    "servelab status": "test_study_progress.py",
    "servelab compare results/studies/cpu-smollm2 results/studies/cpu-engines": "test_compare.py",
    "make lock ENGINE=vllm VERSION=0.32.0": "test_locking.py runs what it runs",
    "make lock-tools": "nobody: it replaces the packages that the tests run with",
    "servelab compare old/results/studies/cpu-smollm2 results/studies/cpu-smollm2"
    " --fail-if total_tokens_per_s < -3% --fail-if ttft_ms > +5%": "test_conditions.py",
    "servelab bench http://127.0.0.1:8000": "test_bench.py and test_running_servers.py, at other ports",
    "servelab bench https://host/team/v1 --api-key-env TEAM_KEY": "test_reach.py, on loopback",
    "servelab bench https://host/openai/deployments/m?api-version=2026-01-01"
    " --model m --header-env api-key AZURE_KEY": "test_reach.py, on loopback",
    "servelab upgrade my-study --engine vllm --to 0.34.0": "test_bisect_releases.py, with llama.cpp",
    "servelab tune my-study --hardware NVIDIA H100 80GB HBM3 --per-node 8 --users 256 --slo tpot_ms mean 50 -- "
    "vllm serve Qwen/Qwen3-32B -tp 2": "test_tune.py, likewise",
    "servelab tune my-study --hardware NVIDIA H100 --per-node 8 -- vllm serve Qwen/Qwen3-32B -tp 2": (
        "test_tune.py, with a revision: no hub is asked"
    ),
    "servelab check cpu-engines": "test_subcommands.py",
    "make format": "the checks refuse what it would change",
    "source .venv/bin/activate": "the tests run with its programs first on the path",
    "make docs": "the test of generated documents",
    "snakemake --profile profiles/default --configfile config/recorded.yaml": "test_recorded_studies.py",
    "snakemake --profile profiles/default --report report.zip": "test_output_files.py",
    "snakemake --profile profiles/default --config studies=[cpu-engines]": "test_reruns.py, on runs that are there",
    "snakemake --profile profiles/default archive": "test_archive_workflow.py",
    "servelab verify --accept-unsigned FILE": "test_archive_workflow.py",
    "servelab restore --accept-unsigned FILE": "test_archive_workflow.py",
    "servelab run my-study --config runs_from=[/shared/team/results]": "test_runs_from.py",
    "python scripts/install_profile.py ours": "tests/slurm",
    "snakemake --profile slurm": "tests/slurm",
    "snakemake --profile slurm -n": "tests/slurm",
    "servelab run my-study --here": "tests/slurm/test_slurm_here.py",
    "servelab run vllm-h100-node --here": "the same, on a CPU",
}
SITE_SETTINGS = {"export PIP_EXTRA_INDEX_URL=https://download.pytorch.org/whl/cpu"}
"""For sites whose pip does not find PyTorch's CPU wheels; no command of ours."""


def shown():
    """Commands in indented blocks of the documents, without their comments."""
    found = {}
    for document in DOCUMENTS:
        for line in document.read_text().splitlines():
            if re.match(rf"    ({'|'.join(PROGRAMS)})\b", line):
                found.setdefault(" ".join(shlex.split(line, comments=True)), document.name)
    return found


def test_make_commands_are_those_of_ci_and_of_the_makefile():
    ci, makefile = (ROOT / ".ci/run").read_text(), (ROOT / "Makefile").read_text()
    for command in shown():
        if command.startswith("make "):
            assert f"\n{command.split()[1]}:" in makefile
            assert command in BY_OTHERS or (command in IN_CI and re.search(rf"^(suite )?{command}\b", ci, re.MULTILINE))


LOGS = [str(path.relative_to(ROOT)) for path in sorted((ROOT / "config/recorded/example/logs").glob("*.txt"))]
"""What `FILE...` and `PATH...` stand for."""
RUN_HERE = sorted(set(shown()) - IN_CI - set(BY_OTHERS) - SITE_SETTINGS)


def test_there_are_commands_to_run():
    assert any(command.startswith("snakemake") for command in RUN_HERE)


@pytest.mark.parametrize(
    "command",
    [pytest.param(each, marks=[pytest.mark.slow] if each.startswith("snakemake") else []) for each in RUN_HERE],
)
def test_shown_command_works(command, workspace):
    """On the tiny study, under the names that the documents use; on the project's own where it only plans or reads."""
    for name in ("cpu-engines", "cpu-smollm2"):
        workspace.write_study(tiny_study(name))
    if "servelab report" in command:
        command = re.sub(r"results/studies/[\w-]+", "results/studies/tiny", command)
    if "h100" in command:
        shutil.copy2(ROOT / "config/workloads.yaml", workspace.folder / "config/workloads.yaml")
    command = command.replace("FILE...", " ".join(LOGS)).replace("PATH...", " ".join(LOGS))
    words = shlex.split(command)
    if words[0] == "servelab" and words[1] not in ("plan", "run", "archive"):
        done = run_servelab(*words[1:], cwd=workspace.folder)
    else:
        done = workspace.call(*(SERVELAB if words[0] == "servelab" else words[:1]), *words[1:])
    assert done.returncode == 0, (done.stdout, done.stderr)
