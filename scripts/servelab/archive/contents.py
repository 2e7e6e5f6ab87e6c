"""Lists what belongs into a study's archive, each file with its name there, and what is missing or changed."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from servelab.archive.layout import CODE, LIVE, RESULTS, WORKFLOW, files_below
from servelab.archive.records import faults_of_workload, log_faults, read_json, referenced_runs, run_faults
from servelab.core.errors import ServelabError
from servelab.core.identity import content_id, workload_id
from servelab.core.yaml_file import read_yaml
from servelab.measure.run_files import RunManifest, RunStatus
from servelab.search.project import load_project
from servelab.search.strategies import stage_names
from servelab.study.project import Project
from servelab.study.recorded.study import LOGS, load_recorded

OPEN_LICENSES = {"Apache-2.0", "BSD-3-Clause", "CC-BY-4.0", "CC-BY-SA-4.0", "CC0-1.0", "MIT", "ODC-By-1.0"}
"""Licences (SPDX) under which a data set's prompts may be redistributed."""
CITATION = "CITATION.cff"
_NOT_SOURCE = re.compile(r"\..*|results|__pycache__|.*\.egg-info")
_OF_BOTH_KINDS = (
    "study.json",
    "metrics.parquet",
    "checks.parquet",
    "improvements.parquet",
    "search.parquet",
    "curves.parquet",
    "recommended.json",
    "charts",
    "report.html",
    "report.md",
    "tables",
)
_OF_LIVE = ("history.parquet", "answers.parquet", "device_series.parquet")
_OF_RECORDED = ("claims.parquet", "logs")


@dataclass(frozen=True)
class WorkflowSource:
    """The workflow in a project's folder: its files, its commit, and the differences from that commit."""

    files: list[str]
    """Paths below the folder, sorted."""
    commit: str | None
    dirty: bool | None
    diff: bytes
    """Differences of tracked files from the commit, as `git diff` prints them; empty if there are none."""
    date: str | None
    """Day of the commit (UTC), or of the release if there is no checkout."""


def read_source(root: Path) -> WorkflowSource:
    """The workflow in `root`: tracked files and new files of the code or, without a checkout, all files.

    `root` must be the top of the checkout, otherwise there is no commit. A link is a `ServelabError`.
    """
    top = _git(root, "rev-parse", "--show-toplevel")
    commit = _git(root, "rev-parse", "HEAD")
    if top and commit and Path(os.fsdecode(top.rstrip(b"\n"))) == root.resolve():
        listed = _git(root, "ls-files", "-z", "--cached") or b""
        listed += _git(root, "ls-files", "-z", "--others", "--exclude-standard", "--", *CODE) or b""
        files = {os.fsdecode(name) for name in listed.split(b"\0") if name}
        # a deleted one is in the diff; compiled files are made again
        files = {name for name in files if os.path.lexists(root / name) and "__pycache__" not in name}
        diff = _git(root, "diff", "--no-ext-diff", "--no-textconv", "--no-color", "--binary", "--full-index", "HEAD")
        if diff is None:
            raise ServelabError(f"{root}: git cannot print the differences from the commit")
        day = _git(root, "log", "-1", "--no-show-signature", "--format=%cd", "--date=format-local:%Y-%m-%d") or b""
        return WorkflowSource(_no_links(root, files), commit.decode().strip(), bool(diff), diff, day.decode().strip())
    paths = (path.relative_to(root) for path in root.rglob("*") if path.is_symlink() or path.is_file())
    files = {path.as_posix() for path in paths if not any(_NOT_SOURCE.fullmatch(part) for part in path.parts)}
    citation = root / CITATION
    day_of_release = str(read_yaml(citation)["date-released"]) if citation.exists() else None
    return WorkflowSource(_no_links(root, files), None, None, b"", day_of_release)


def _no_links(root: Path, files: Iterable[str]) -> list[str]:
    for name in files:
        if (root / name).is_symlink():
            raise ServelabError(f"{root / name}: a link, which an archive cannot have; replace it by the file")
    return sorted(files)


def _git(root: Path, *arguments: str) -> bytes | None:
    """The output of git; None if it fails or is missing."""
    environment = os.environ | {"TZ": "UTC", "LC_ALL": "C"}
    command = ["git", "-C", str(root), *arguments]
    try:
        return subprocess.run(command, capture_output=True, check=True, env=environment, timeout=300).stdout
    except (OSError, subprocess.SubprocessError):
        return None


@dataclass
class Contents:
    """Files by their names in the archive, with their metadata."""

    title: str
    date: str
    """When its last run ended, as a day (UTC); of a recorded study, whose logs have no date, the workflow's."""
    search: str
    """The study's folder below results/: `studies/<study>` or `recorded/<study>`."""
    files: dict[str, Path]
    nodes: set[str] = field(default_factory=set)
    """Machines that the runs name."""
    omitted: dict[str, str] = field(default_factory=dict)
    """Files that are omitted, and why."""
    faults: list[str] = field(default_factory=list)
    """A line per file that is missing or does not match another, beginning with the file."""


def made_of(search: str) -> tuple[str, ...]:
    """Files and folders that the workflow makes of a study, below its folder, besides those of its stages."""
    return (*_OF_BOTH_KINDS, *(_OF_LIVE if search.startswith(f"{LIVE}/") else _OF_RECORDED))


def archive_name(search: str, date: str) -> str:
    """Path of a study's archive below results/archives, where recorded studies have their own folder."""
    kind, study = search.split("/")
    return f"{study}-{date}.zip" if kind == LIVE else f"{kind}/{study}-{date}.zip"


def study_contents(root: Path, results: Path, search: str, source: WorkflowSource) -> Contents:
    """Everything of a study. `root` is the folder of the workflow that `source` lists, `results` of what it made.

    A study file that cannot be read is a `ServelabError`.
    """
    found = (_live if search.startswith(f"{LIVE}/") else _recorded)(root, results, search, source)
    found.files |= {f"{WORKFLOW}/{name}": root / name for name in source.files}
    found.faults += [f"{root / part}: missing" for part in CODE if not (root / part).exists()]
    return found


def _live(root: Path, results: Path, search: str, source: WorkflowSource) -> Contents:
    project = load_project(root / f"config/{search}.yaml", root)
    own, faults = _own_files(results, search, stage_names(project.study))
    runs = referenced_runs(path for path in own if path.suffix in (".json", ".parquet") and "charts" not in path.parts)
    faults += [fault for run_id in runs for fault in run_faults(results, run_id)]
    contents = Contents(project.study.title, "", search, _named(RESULTS, results, own), faults=faults)
    folders = [results / "runs" / run_id for run_id in runs]
    workloads = {content_id(read_json(folder / "spec.json")["workload"]) for folder in folders if not faults}
    for folder in [results / "workloads" / each for each in sorted(workloads)]:
        faults += [f"{folder}/{fault}" for fault in faults_of_workload(folder)]
        made = [path for name in ("workload.json", "requests.parquet") if (path := folder / name).exists()]
        contents.files |= _named(RESULTS, results, made)
    if faults:
        return contents
    planned = referenced_runs(path for path in own if path.name == "plan.json")
    if not planned:
        raise ServelabError(f"{results}: no candidate of the study ran, so there is nothing to archive")
    ended = (RunStatus.read(results / "runs" / run_id / "status.json").finished_at for run_id in planned)
    contents.date = max(ended)[:10]
    contents.files |= _named(RESULTS, results, (file for folder in folders for file in files_below(folder)))
    settings = [project.file, root / "config/workloads.yaml", root / "config/datasets.yaml"]
    settings += [project.lock(alias) for alias in project.study.engines]
    settings += [project.client_lock] if project.client_lock else []
    contents.files |= _named(WORKFLOW, root, settings)
    manifests = (RunManifest.read(folder / "manifest.json") for folder in folders)
    contents.nodes = {each.placement.batch.node for each in manifests if each.placement and each.placement.batch.node}
    _leave_out_requests(project, results, workloads, contents)
    return contents


def _recorded(root: Path, results: Path, search: str, source: WorkflowSource) -> Contents:
    folder = root / "config" / search
    study = load_recorded(folder)
    if source.date is None:
        raise ServelabError(f"{root}: neither a checkout nor a CITATION.cff gives the workflow's date")
    own, faults = _own_files(results, search, study.stage_names)
    plans = [path for path in own if path.name == "plan.json"]
    faults += [fault for logs in (folder / LOGS, results / search / LOGS) for fault in log_faults(plans, logs)]
    files = _named(RESULTS, results, own) | _named(WORKFLOW, root, files_below(folder))
    return Contents(study.title, source.date, search, files, faults=faults)


def _own_files(results: Path, search: str, stages: Iterable[str]) -> tuple[list[Path], list[str]]:
    """Files of a study's own folder, without those of stages that it no longer has; and a line per file it lacks."""
    folder, made = results / search, made_of(search)
    stage_folders = [folder / "stages" / stage for stage in stages]
    needed = [folder / name for name in made if "." in name]  # a folder may be empty
    needed += [stage / "plan.json" for stage in stage_folders]
    parts = [*(folder / name for name in made), folder / "answers", *stage_folders]
    files = [file for part in parts for file in ([part] if part.is_file() else files_below(part))]
    visible = [file for file in files if not any(part.startswith(".") for part in file.relative_to(folder).parts)]
    return sorted(visible), [f"{path}: missing" for path in needed if not path.exists()]


def _named(top: str, root: Path, paths: Iterable[Path]) -> dict[str, Path]:
    """Files below `root` by their names in the archive, below `top`."""
    return {f"{top}/{path.relative_to(root).as_posix()}": path for path in paths}


def _leave_out_requests(project: Project, results: Path, workloads: Iterable[str], contents: Contents) -> None:
    """Omits requests that may not be redistributed."""
    datasets = {
        workload_id(project.workload_spec(name)): project.datasets[made_from]
        for name in project.study.workloads
        if (made_from := project.workloads[name].dataset)
    }
    for workload in sorted(workloads):
        name, dataset = f"{RESULTS}/workloads/{workload}/requests.parquet", datasets.get(workload)
        closed = dataset if dataset and dataset.license not in OPEN_LICENSES else None
        if closed or name not in contents.files:
            why = f"its prompts are from {closed.title}, under {closed.license}" if closed else "it was not there"
            contents.files.pop(name, None)
            described = read_json(results / "workloads" / workload / "workload.json")
            contents.omitted[name] = f"{why}; its sha256 is {described['requests_sha256']}"
