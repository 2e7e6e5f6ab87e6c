"""Makes a study's tables, decisions and report again from its raw records, by the workflow's own rules.

In a folder of its own, without a network, and with no rule that measures or fetches: what such a rule would have to
make must be there.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from servelab.archive.difference import difference
from servelab.archive.layout import RESULTS, WORKFLOW, Manifest

CODE = ("Snakefile", "rules", "scripts", "profiles")
CONFIGURATION = ("config", "envs")
NEVER = (
    "archive_study",
    "build_environment",
    "convert_model",
    "download_dataset",
    "download_model",
    "measure",
    "measure_pair",
    "prepare_workload",
    "quantize_model",
)
"""Rules that hold a device, fetch something, or make what only these need."""
KEPT = ("answers",)
"""What of a study's folder is evidence, and not made from what else is here: its answers under earlier versions."""
_LINES = 12


def recompute(unpacked: Path, manifest: Manifest, code: Path, work: Path) -> str | None:
    """Makes everything again in `work/results`; what kept it from that, or None.

    `unpacked` is the archive's content, `code` the project's folder whose workflow computes.
    """
    _prepare(unpacked, manifest, code, work)
    kinds = {
        kind: [search.split("/")[1] for search in manifest.searches if search.startswith(f"{kind}/")]
        for kind in ("studies", "recorded")
    }
    (work / "config/config.yaml").write_text(json.dumps(kinds) + "\n")  # JSON is YAML
    targets = [
        f"{RESULTS}/{search}/{name}" for search in manifest.searches for name in ("report.html", "recommended.json")
    ]
    rules = sorted(set(re.findall(r"^(?:rule|checkpoint) (\w+):", _rules_text(code), re.MULTILINE)) - set(NEVER))
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "snakemake",
            "--profile",
            "profiles/default",
            "--quiet",
            "--nolock",
            *targets,
            "--allowed-rules",
            *rules,
        ],
        cwd=work,
        env=_environment(work),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    return None if done.returncode == 0 else " / ".join(_telling(done.stdout))


def differences(unpacked: Path, manifest: Manifest, work: Path) -> Iterator[tuple[str, str | None]]:
    """Each file that was made again or should have been, by its name in the archive, and how it differs, if it does."""
    for search in manifest.searches:
        prefix = f"{RESULTS}/{search}/"
        archived = {name for name in manifest.members if name.startswith(prefix)}
        again = {
            path.relative_to(work).as_posix()
            for path in (work / prefix).rglob("*")
            if path.is_file() and not _hidden(path, work)
        }
        for name in sorted(archived | again):
            if name not in again:
                yield name, "no rule of the workflow makes it from the records that are here"
            elif name not in archived:
                yield name, "is made from the records, and the archive lacks it"
            else:
                yield name, difference(unpacked / name, work / name)


def _prepare(unpacked: Path, manifest: Manifest, code: Path, work: Path) -> None:
    """A project with the code of one place and the archive's configuration and raw records."""
    for name in CODE:
        (work / name).symlink_to((code / name).resolve())
    for name in CONFIGURATION:
        shutil.copytree(unpacked / WORKFLOW / name, work / name)
    shutil.copytree(unpacked / RESULTS, work / RESULTS, ignore=shutil.ignore_patterns("logs"))
    for search in manifest.searches:
        folder = work / RESULTS / search
        for path in folder.iterdir():
            if path.name not in KEPT:
                shutil.rmtree(path) if path.is_dir() else path.unlink()


def _rules_text(code: Path) -> str:
    return "\n".join(path.read_text(encoding="utf-8") for path in sorted((code / "rules").glob("*.smk")))


def _environment(work: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("SNAKEMAKE_", "SERVELAB_"))}
    programs = f"{Path(sys.executable).parent}:{os.environ.get('PATH', '')}"
    return kept | {"PATH": programs, "PYTHONPATH": str(work / "scripts"), "HOME": str(work)}


def _telling(output: str) -> Iterable[str]:
    """The lines of a failed workflow that say why."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    telling = [line for line in lines if re.match(r"(error|\w*(Error|Exception))\b", line)]
    return (telling or lines)[-_LINES:]


def _hidden(path: Path, work: Path) -> bool:
    return any(part.startswith(".") for part in path.relative_to(work).parts)
