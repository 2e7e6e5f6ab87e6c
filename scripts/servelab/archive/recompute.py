"""Recomputes a study's tables, decisions and report from its raw records, with the workflow's own rules.

It works in its own folder, without a network and without rules that measure or download, whose outputs must exist.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from servelab.archive.file_difference import difference
from servelab.archive.layout import RESULTS, WORKFLOW, Manifest
from servelab.search.kept_answers import study_versions, versions_id
from servelab.search.project import load_project

CODE = ("Snakefile", "rules", "scripts", "profiles")
CONFIGURATION = ("config", "envs")
NEVER = (
    "archive_study",
    "build_environment",
    "convert_model",
    "download_dataset",
    "download_model",
    "measure",
    "prepare_workload",
    "quantize_model",
)
"""Rules that reserve a device, download something, or make the inputs of such rules."""
KEPT = "answers"
"""Part of a study's folder that cannot be recomputed as a whole: it also has the answers under earlier versions."""
_LINES, _REASONS = 12, 3
_PINNED = re.compile(r"^([A-Za-z0-9][\w.-]*)==([^\s;\\]+)", re.MULTILINE)


def recompute(unpacked: Path, manifest: Manifest, code: Path, work: Path) -> str | None:
    """Recomputes everything in `work/results`; returns the reason of a failure, or None.

    `unpacked` is the archive's content, `code` the project's folder whose workflow computes. A study file that cannot
    be used is a `ServelabError`.
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
    return None if done.returncode == 0 else " / ".join(_error_lines(done.stdout))


def differences(unpacked: Path, manifest: Manifest, work: Path) -> Iterator[tuple[str, str | None]]:
    """Each file that is in the archive or was recomputed, by its name in the archive, and how it differs, or None.

    Answers under earlier versions are left out.
    """
    earlier = earlier_answers(unpacked, manifest)
    for search in manifest.searches:
        prefix = f"{RESULTS}/{search}/"
        archived = {name for name in manifest.members if name.startswith(prefix)} - earlier
        again = {
            path.relative_to(work).as_posix()
            for path in (work / prefix).rglob("*")
            if path.is_file() and not _hidden(path, work)
        }
        for name in sorted(archived | (again - earlier)):
            if name not in again:
                yield name, "no rule of the workflow makes it from the archived records"
            elif name not in archived:
                yield name, "is made from the records, but the archive lacks it"
            else:
                yield name, difference(unpacked / name, work / name)


def earlier_answers(unpacked: Path, manifest: Manifest) -> set[str]:
    """Members that hold a live study's answers under earlier versions of its engines, which nothing recomputes."""
    found = set()
    for search in manifest.searches:
        if search.startswith("studies/"):
            current = _current_answer(unpacked / WORKFLOW, search)
            prefix = f"{RESULTS}/{search}/{KEPT}/"
            found |= {name for name in manifest.members if name.startswith(prefix) and name != f"{prefix}{current}"}
    return found


def other_versions(unpacked: Path, code: Path) -> str:
    """How the code or the packages that recompute differ from the archive's; empty if they are the same."""
    workflow, why = unpacked / WORKFLOW, []
    files = {path.relative_to(workflow) for name in CODE for path in _files(workflow / name)}
    other = sorted(
        str(name)
        for name in files
        if not (code / name).is_file() or (code / name).read_bytes() != (workflow / name).read_bytes()
    )
    if other:
        why.append(f"{len(other)} files of the workflow differ, such as {other[0]}")
    lock = workflow / "envs/workflow.lock.txt"
    pinned: dict[str, list[str]] = {}  # a package may have several, for other releases of Python
    for name, wanted in _PINNED.findall(lock.read_text(encoding="utf-8")) if lock.is_file() else ():
        pinned.setdefault(name, []).append(wanted)
    for name, versions in sorted(pinned.items()):
        try:
            found = version(name)
        except PackageNotFoundError:  # not needed here
            continue
        if found not in versions:
            why.append(f"{name} {found} is installed, the archive's lock has {' or '.join(versions)}")
    return "; ".join(why[:_REASONS])


def _current_answer(project: Path, search: str) -> str:
    versions = study_versions(load_project(project / f"config/{search}.yaml", project))
    return f"{versions_id(versions)}.json"


def _prepare(unpacked: Path, manifest: Manifest, code: Path, work: Path) -> None:
    """A project with the code in `code` and the archive's configuration and raw records."""
    for name in CODE:
        (work / name).symlink_to((code / name).resolve())
    for name in CONFIGURATION:
        shutil.copytree(unpacked / WORKFLOW / name, work / name)
    shutil.copytree(unpacked / RESULTS, work / RESULTS, ignore=shutil.ignore_patterns("logs"))
    for search in manifest.searches:
        folder = work / RESULTS / search
        for path in folder.iterdir():
            if path.name != KEPT:
                shutil.rmtree(path) if path.is_dir() else path.unlink()
        if search.startswith("studies/"):
            (folder / KEPT / _current_answer(work, search)).unlink(missing_ok=True)


def _rules_text(code: Path) -> str:
    return "\n".join(path.read_text(encoding="utf-8") for path in sorted((code / "rules").glob("*.smk")))


def _environment(work: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("SNAKEMAKE_", "SERVELAB_"))}
    programs = f"{Path(sys.executable).parent}:{os.environ.get('PATH', '')}"
    return kept | {"PATH": programs, "PYTHONPATH": str(work / "scripts"), "HOME": str(work)}


def _error_lines(output: str) -> Iterable[str]:
    """The lines of a failed workflow that explain the failure."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    errors = [line for line in lines if re.match(r"(error|\w*(Error|Exception))\b", line)]
    return (errors or lines)[-_LINES:]


def _files(path: Path) -> list[Path]:
    return [path] if path.is_file() else [file for file in path.rglob("*") if file.is_file()]


def _hidden(path: Path, work: Path) -> bool:
    return any(part.startswith(".") for part in path.relative_to(work).parts)
