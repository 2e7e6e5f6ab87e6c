"""A small study, run for real with Snakemake and llama.cpp in a copy of the project."""

import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import psutil
import yaml

from servelab.core.identity import file_sha256

ROOT = Path(__file__).parents[2]
PROJECT_FILES = ("Snakefile", "CITATION.cff", "config", "rules", "scripts", "envs", "profiles")
SHARED_RESULTS = ("datasets", "envs", "models")
"""Named by their content, so tests use what the project already has, and leave what they make."""

NEW, OLD = "2026.10.11549", "2026.9.11063"

WORKLOADS = {
    "tiny": {
        "title": "Tiny",
        "kind": "random",
        "parameters": {"input_tokens": 16, "output_tokens": 4, "num_requests": 4, "seed": 1},
    },
    "tiny-long": {
        "title": "Tiny, longer prompts",
        "kind": "random",
        "parameters": {"input_tokens": 64, "output_tokens": 4, "num_requests": 3, "seed": 1},
    },
    "tiny-sharegpt": {
        "title": "Tiny ShareGPT",
        "kind": "sharegpt",
        "parameters": {
            "dataset": "sharegpt-v3-head",
            "num_requests": 4,
            "seed": 1,
            "endpoint": "chat",
            "max_input_tokens": 128,
            "max_output_tokens": 16,
        },
    },
}
SLOW_PREFILL = {"max_num_seqs": 1, "max_num_batched_tokens": 8, "threads": 1}
"""Prompts are read eight tokens at a time: slower than reading them at once."""
PREFILL_ONLY = {
    "title": "Prompts to read",
    "kind": "random",
    "parameters": {"input_tokens": 256, "output_tokens": 2, "num_requests": 2, "seed": 1},
}


def tiny_study(name="tiny"):
    """A study of two releases of llama.cpp; a margin that nothing passes keeps its path the same in every run.

    Its servers have one thread: several that wait for each other on a busy machine take many times as long.
    """
    demo = yaml.safe_load((ROOT / "config/studies/cpu-smollm2.yaml").read_text())
    return {
        "study": name,
        "title": "Tiny",
        "model": demo["model"],
        "hardware": demo["hardware"],
        "engines": {
            "llama.cpp": {"version": NEW},
            "old": {"engine": "llama.cpp", "version": OLD, "lock": f"envs/llama.cpp-{OLD}.lock.txt"},
        },
        "objective": {"metric": "total_tokens_per_s", "on": "tiny", "margin_percent": 1000},
        "protocol": {
            "warmup_requests": 1,
            "rounds": 1,
            "startup_timeout_s": 60,
            "round_timeout_s": 60,
            "max_others_cpu_percent": 100,  # tests run side by side
        },
        "search": {"strategy": "staged"},
        "baseline": {"engine": "llama.cpp", "options": {"threads": 1}},
        "stages": [
            {"name": "engine", "candidates": [{"engine": "old"}]},
            {
                "name": "sequences",
                "candidates": [{"options": {"max_num_seqs": 2}}, {"arguments": {"--no-such-flag": None}}],
            },
        ],
        "workloads": ["tiny", "tiny-long", "tiny-sharegpt"],
    }


def code_sha256() -> str:
    """Of every file that a finished workspace depends on."""
    digest = hashlib.sha256()
    for name in (*PROJECT_FILES, "tests/workflow", "tests/data"):
        for path in sorted([ROOT / name, *(ROOT / name).rglob("*")]):
            if path.is_file() and "__pycache__" not in path.parts:
                digest.update(f"{path.relative_to(ROOT)} {file_sha256(path)}\n".encode())
    return digest.hexdigest()


ARCHIVE = {"wildcards": {"search": "studies/tiny"}, "output": {"name": "results/archives/studies/tiny.json"}}
ARCHIVE_STUDY = ("archive_study", f"files={json.dumps(ARCHIVE)}")
"""Words of `archive.py` that archive the tiny study."""


class Workspace:
    """A copy of the project that runs a study of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @classmethod
    def create(cls, folder: Path, shared: Iterable[str] = SHARED_RESULTS) -> "Workspace":
        """A fresh copy, with the tiny study as the only one, and those results of the project's."""
        folder.mkdir(parents=True)
        for name in PROJECT_FILES:
            source = ROOT / name
            if source.is_dir():
                shutil.copytree(source, folder / name)
            else:
                shutil.copy2(source, folder / name)
        (folder / "results").mkdir()
        for name in shared:
            (ROOT / "results" / name).mkdir(parents=True, exist_ok=True)
            (folder / "results" / name).symlink_to(ROOT / "results" / name)
        for lock in (ROOT / "tests/data").glob("llama.cpp-*.lock.txt"):
            shutil.copy2(lock, folder / "envs" / lock.name)
        workspace = cls(folder)
        workspace.write("config/workloads.yaml", yaml.safe_dump(WORKLOADS, sort_keys=False))
        workspace.write_study(tiny_study())
        workspace.write("config/config.yaml", "studies: [tiny]\n")
        return workspace

    def copy(self, folder: Path) -> "Workspace":
        """The workspace as it stands, times of its files and Snakemake's records included."""
        shutil.copytree(self.folder, folder, symlinks=True)
        return Workspace(folder)

    def write(self, name: str, text: str) -> None:
        (self.folder / name).write_text(text)

    def edit(self, name: str, old: str, new: str) -> None:
        """Replaces text that must be there."""
        text = (self.folder / name).read_text()
        assert old in text
        self.write(name, text.replace(old, new))

    def write_study(self, study: dict) -> None:
        self.write(f"config/studies/{study['study']}.yaml", yaml.safe_dump(study, sort_keys=False))

    def touch_results(self) -> None:
        """Touches datasets, models, environments and workloads; the shared ones become this workspace's own copies."""
        for name in (*SHARED_RESULTS, "workloads"):
            linked = self.folder / "results" / name
            if linked.is_symlink():
                target = linked.resolve()
                linked.unlink()
                linked.mkdir()
                for entry in filter(Path.is_dir, target.iterdir()):
                    copy = linked / entry.name
                    if name == "envs":
                        copy.mkdir()
                        for part in entry.iterdir():
                            shutil.copy2(part, copy) if part.is_file() else (copy / part.name).symlink_to(part)
                    else:
                        shutil.copytree(entry, copy)
            for file in [path for path in linked.rglob("*") if path.is_file() and not path.is_symlink()]:
                os.utime(file)

    def study(self) -> dict:
        return yaml.safe_load((self.folder / "config/studies/tiny.yaml").read_text())

    def environment(self) -> dict[str, str]:
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        return kept | {"PATH": path, "PYTHONPATH": str(self.folder / "scripts")}

    def call(self, *command: str, folder: Path | str = ".", **variables: str) -> subprocess.CompletedProcess[str]:
        """Runs a command to its end in this folder of the project; all that it printed is in `stdout`."""
        return subprocess.run(
            command,
            cwd=self.folder / folder,
            env=self.environment() | variables,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )

    def command(self, *arguments: str) -> list[str]:
        return [sys.executable, "-m", "snakemake", "--profile", "profiles/default", *arguments]

    def snakemake(self, *arguments: str, check: bool = True) -> str:
        """Runs the workflow to its end; returns what it printed, of a dry run all jobs."""
        verbose = ["--verbose"] if {"-n", "--dry-run"} & {*arguments} else []
        done = self.call(*self.command(*verbose, *arguments))
        assert not check or done.returncode == 0, done.stdout[-6000:]
        return done.stdout

    def begin(self, log: Path, *command: str) -> psutil.Popen:
        """Starts the workflow, or another command, which writes to the log, in a group of its own."""
        with log.open("w") as said:
            return psutil.Popen(
                command or self.command(),
                cwd=self.folder,
                env=self.environment(),
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
                start_new_session=True,
                preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # ignored in the background
            )

    def runs(self) -> dict[str, int]:
        """When each run was measured, by its id."""
        statuses = self.folder.glob("results/runs/*/status.json")
        return {status.parent.name: status.stat().st_mtime_ns for status in statuses}

    def measured_by(self, *arguments: str) -> set[str]:
        """Runs that a further run of the workflow measures, the repeated ones included."""
        before = self.runs()
        self.snakemake(*arguments)
        return {run for run, time in self.runs().items() if before.get(run) != time}

    def json(self, name: str):
        return json.loads((self.folder / name).read_text())
