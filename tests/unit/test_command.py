"""The command `servelab`: what it hands to Snakemake and to scripts, and the study that it begins."""

import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from servelab_command import run_servelab

from servelab.cli.checkout import find_studies
from servelab.cli.first_study import first_model
from servelab.cli.launch import COMMANDS, snakemake_line
from servelab.core.errors import ConfigError
from servelab.search.project import load_project

ROOT = Path(__file__).parents[2]
MODEL, COMMIT = "Qwen/Qwen3-32B", "9216db5781bf21249d130ec9da846c4624c16137"
H100 = ("--hardware", "NVIDIA H100 80GB HBM3")


@pytest.fixture
def checkout(tmp_path):
    """A folder that is a checkout, with studies of its own."""
    folder = tmp_path / "checkout"
    folder.mkdir()
    shutil.copytree(ROOT / "config", folder / "config", ignore=shutil.ignore_patterns("recorded"))
    for name in ("Snakefile", "scripts", "envs", "rules", "profiles"):
        (folder / name).symlink_to(ROOT / name)
    return folder


@pytest.fixture(autouse=True)
def no_hub(monkeypatch):
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setenv("XDG_CONFIG_HOME", "/nonexistent")


@pytest.fixture
def here(checkout):
    """Runs a command in a folder below the checkout; its exit code, output and errors."""

    def run(*words, **variables):
        done = run_servelab(*words, cwd=checkout / "config", **variables)
        return done.returncode, done.stdout, done.stderr

    return run


@pytest.mark.parametrize("name", COMMANDS)
def test_each_command_explains_itself(name, here):
    code, said, errors = here(name, "--help")
    assert code == 0, errors
    assert f"servelab {name}" in said
    assert " ".join(COMMANDS[name].text.partition("\n")[0].split()[:3]) in said


def test_where_no_study_is_it_says_so(tmp_path):
    done = run_servelab("run", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"error: {tmp_path}/config/studies: no study here; begin one: servelab tune NAME -- COMMAND\n"
    for words in ([], ["--help"]):
        done = run_servelab(*words, cwd=tmp_path)
        assert done.returncode == 0 and all(f"\n  {name} " in done.stdout for name in COMMANDS)
    done = run_servelab("comapre", cwd=tmp_path)
    assert done.returncode == 2 and "did you mean `compare`?" in done.stderr
    assert run_servelab("--version", cwd=tmp_path).stdout.startswith("servelab ")


def test_any_folder_becomes_a_folder_of_studies(tmp_path):
    """Everything but the study is the checkout's; the commands also work below that folder."""
    folder = tmp_path / "folder of mine"
    folder.mkdir()
    done = run_servelab("tune", "mine", *H100, "--revision", COMMIT, "--", "vllm", "serve", MODEL, cwd=folder)
    assert done.returncode == 0, done.stderr
    assert (folder / "config/config.yaml").read_text() == "studies: [mine]\n"
    schema = (folder / "config/studies/mine.yaml").read_text().partition("$schema=")[2].partition("\n")[0]
    assert Path(schema).samefile(ROOT / "config/schema/study.schema.json")
    assert find_studies(folder / "config") == folder
    line = snakemake_line([], ["mine"], ["mine"], root=folder)
    assert [line[at + 1] for at in (0, 2)] == [str(ROOT / "profiles/default"), str(ROOT / "Snakefile")]
    (planned,) = run_servelab("plan", "--json", cwd=folder / "config").stdout.splitlines()
    assert json.loads(planned)["study"] == "mine"


@pytest.mark.parametrize(
    ("words", "line"),
    [
        ([], "--profile profiles/default archive"),
        (["a", "b"], "--profile profiles/default archive --config studies=[a,b]"),
        (["a", "-n", "--cores", "2"], "--profile profiles/default archive -n --cores 2 --config studies=[a]"),
        (["--profile", "slurm", "a"], "archive --profile profiles/slurm a"),
        (["a", "--profile=slurm"], "archive --profile=slurm --config studies=[a]"),
        (["a", "-n", "--config", "x=1"], "--profile profiles/default archive -n --config studies=[a] x=1"),
        (["a", "-C", "x=1"], "--profile profiles/default archive --config studies=[a] x=1"),
        (["a", "--", "all"], "--profile profiles/default archive --config studies=[a] -- all"),
    ],
)
def test_words_for_snakemake(words, line):
    assert " ".join(snakemake_line(["archive"], words, ["a", "b"])) == line
    assert snakemake_line([], ["-n"], ["a"], profile="slurm") == ["-n"]


def test_an_unknown_study_is_named_with_the_nearest():
    with pytest.raises(ConfigError, match=r"config/studies/demi.yaml: no such study; did you mean `demo`\?"):
        snakemake_line([], ["demi"], ["demo"])


def test_paths_are_those_of_the_folder_where_they_are_typed(checkout):
    folder = checkout / "logs"
    shutil.copytree(ROOT / "config/recorded/example/logs", folder)
    log = min(path.name for path in folder.glob("*.txt"))
    done = run_servelab("read", log, cwd=folder)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[0])["file"].endswith(f"logs/{log}")


def test_a_path_is_a_model_and_the_machine_is_the_hardware(checkout, here):
    (checkout / "config/small.gguf").write_bytes(b"GGUF")
    code, _, errors = here("tune", "mine", "--", "llama-server", "-m", "small.gguf", PATH="/nonexistent")
    assert code == 0, errors
    study = load_project(checkout / "config/studies/mine.yaml", checkout).study
    assert study.model.source.path == str(checkout / "config/small.gguf")
    assert study.hardware.model_dump()["device"] == "cpu"
    demo = load_project(ROOT / "config/studies/cpu-smollm2.yaml", ROOT).study
    assert (study.protocol.rounds, study.objective.on) == (demo.protocol.rounds, "cpu-sharegpt")


@pytest.mark.parametrize(
    ("words", "model", "said"),
    [
        (H100, "/no/such/path", "no such path"),
        (("--device", "nvidia"), MODEL, "--device: give --hardware too"),
        ((*H100, "--engines", "vlm"), MODEL, "did you mean `vllm`"),
        ((*H100, "--question", "ttft"), MODEL, "did you mean `ttft_ms`"),
        ((*H100, "--workload", "sharegtp"), MODEL, "did you mean `sharegpt`"),
        (H100, "a/b", "--revision: give the commit of a/b"),
    ],
)
def test_a_mistake_is_one_line_and_leaves_no_file(words, model, said, checkout, here):
    pinned = ("--revision", COMMIT) if model == MODEL else ()
    code, _, errors = here("tune", "mine", *words, *pinned, "--", "vllm", "serve", model)
    assert code == 2, errors
    assert errors.startswith("error: ") and said in errors and errors.count("\n") == 1
    assert not (checkout / "config/studies/mine.yaml").exists()


def test_the_hub_is_asked_for_the_newest_commit(monkeypatch):
    class Hub(BaseHTTPRequestHandler):
        def do_GET(self):
            body = json.dumps({"id": "a/b", "sha": "1" * 40, "siblings": []}).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    with HTTPServer(("127.0.0.1", 0), Hub) as hub:
        threading.Thread(target=hub.serve_forever, daemon=True).start()
        monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{hub.server_port}")
        assert first_model("a/b", None) == {"id": "a/b", "revision": "1" * 40}
        hub.shutdown()


def test_the_table_of_the_readme_has_every_command():
    rows = [line for line in (ROOT / "README.md").read_text().splitlines() if line.startswith("| `servelab ")]
    assert [row.split()[2].strip("`") for row in rows] == list(COMMANDS)


@pytest.mark.slow
def test_the_wheel_alone_runs_the_demo(tmp_path):
    """In an empty folder with an empty home; what the lock has is not fetched again."""
    site = tmp_path / "venv/lib" / f"python{sys.version_info.major}.{sys.version_info.minor}" / "site-packages"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "venv"], check=True)
    (site / "others.pth").write_text(sysconfig.get_path("purelib"))
    pip = [sys.executable, "-m", "pip", "--python", tmp_path / "venv", "install", "--no-deps", "--no-build-isolation"]
    subprocess.run([*pip, "--quiet", ROOT], check=True)
    (tmp_path / "empty").mkdir()
    done = subprocess.run(
        [tmp_path / "venv/bin/servelab", "demo"],
        cwd=tmp_path / "empty",
        env={name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        | {"HOME": str(tmp_path / "home")},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Use this command" in done.stdout or re.search("Cannot tell.* disturbed", done.stdout)
    assert (tmp_path / "empty/results/studies/cpu-smollm2/report.html").exists()
    assert str(ROOT) not in (tmp_path / "empty/results/studies/cpu-smollm2/study.json").read_text()
