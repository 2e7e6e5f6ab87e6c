"""Lists what belongs into a study's archive, each file with its name there. Missing or changed files are an error."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from servelab.archive import records
from servelab.archive.layout import LIVE, RESULTS, WORKFLOW
from servelab.archive.records import read_json, referenced_runs
from servelab.core.errors import ServelabError
from servelab.core.identity import content_id, workload_id
from servelab.core.yaml_file import read_yaml
from servelab.measure.run_files import RunManifest, RunStatus
from servelab.measure.run_folder import git_state
from servelab.search.project import load_project
from servelab.search.strategies import stage_names
from servelab.study.project import Project
from servelab.study.recorded.study import LOGS, load_recorded

OPEN_LICENSES = {"Apache-2.0", "BSD-3-Clause", "CC-BY-4.0", "CC-BY-SA-4.0", "CC0-1.0", "MIT", "ODC-By-1.0"}
"""Licences (SPDX) under which a data set's prompts may be redistributed."""
MOST_REQUESTS_BYTES = 256 * 2**20
"""Larger requests of a workload are omitted; their hash and how to make them stay."""
CITATION = "CITATION.cff"
_NOT_SOURCE = ("results", "__pycache__")
_CODE = ("Snakefile", "rules", "scripts")
"""Parts where a new file counts as code that ran, committed or not."""
_NOT_OF_A_STUDY = ("preflight.json",)
"""Files about one machine, made before anything was measured."""
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
_FINISH = "only a finished study can be archived: `servelab run` it, or restore the file"


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
    if top and Path(os.fsdecode(top.rstrip(b"\n"))) == root.resolve() and _git(root, "rev-parse", "HEAD"):
        state = git_state(root)
        listed = _git(root, "ls-files", "-z", "--cached") or b""
        listed += _git(root, "ls-files", "-z", "--others", "--exclude-standard", "--", *_CODE) or b""
        files = {os.fsdecode(name) for name in listed.split(b"\0") if name}
        # a deleted one is in the diff; compiled files are made again
        files = {name for name in files if os.path.lexists(root / name) and "__pycache__" not in name}
        diff = _git(root, "diff", "--no-ext-diff", "--no-textconv", "--no-color", "--binary", "--full-index", "HEAD")
        if diff is None:
            raise ServelabError(f"{root}: git cannot print the differences from the commit")
        day = _git(root, "log", "-1", "--no-show-signature", "--format=%cd", "--date=format-local:%Y-%m-%d")
        return WorkflowSource(
            _no_links(root, files), state.commit, state.dirty, diff, day.decode().strip() if day else None
        )
    paths = (path.relative_to(root) for path in root.rglob("*") if path.is_symlink() or path.is_file())
    files = {path.as_posix() for path in paths if not any(_is_left_out(part) for part in path.parts)}
    citation = root / CITATION
    day_of_release = str(read_yaml(citation)["date-released"]) if citation.exists() else None
    return WorkflowSource(_no_links(root, files), None, None, b"", day_of_release)


def _is_left_out(part: str) -> bool:
    return part.startswith(".") or part in _NOT_SOURCE or part.endswith(".egg-info")


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
    search: str
    """The study's folder below results/: `studies/<study>` or `recorded/<study>`."""
    files: dict[str, Path]
    nodes: set[str] = field(default_factory=set)
    """Machines that the runs name."""
    omitted: dict[str, str] = field(default_factory=dict)
    """Files that are omitted, and why."""


def made_of(search: str) -> tuple[str, ...]:
    """Files and folders that the workflow makes of a study, below its folder, besides those of its stages."""
    return (*_OF_BOTH_KINDS, *(_OF_LIVE if search.startswith(f"{LIVE}/") else _OF_RECORDED))


def study_contents(root: Path, results: Path, search: str, source: WorkflowSource) -> Contents:
    """Everything of a study. `root` is the project's folder, `source` the workflow in it.

    `ServelabError` names a file that is missing or does not match another file.
    """
    found = (_live if search.startswith(f"{LIVE}/") else _recorded)(root, results, search, source)
    found.files |= {f"{WORKFLOW}/{name}": root / name for name in source.files}
    return found


def date_of(root: Path, results: Path, search: str, source: WorkflowSource) -> str:
    """Day (UTC) on which a study's last run ended; for a recorded study, whose logs have no date, the workflow's."""
    if search.startswith(f"{LIVE}/"):
        stages = stage_names(load_project(root / f"config/{search}.yaml", root).study)
        plans = [results / search / "stages" / stage / "plan.json" for stage in stages]
        statuses = [results / "runs" / run_id / "status.json" for run_id in referenced_runs(plans)]
        if not statuses:
            raise ServelabError(f"{results}: no candidate of the study ran, so there is nothing to archive")
        return max(RunStatus.read(status).finished_at[:10] for status in statuses)
    if source.date is None:
        raise ServelabError(f"{root}: neither a checkout nor a CITATION.cff gives the workflow's date")
    return source.date


def archive_name(search: str, date: str) -> str:
    """Path of a study's archive below results/archives, where recorded studies have their own folder."""
    kind, study = search.split("/")
    return f"{study}-{date}.zip" if kind == LIVE else f"{kind}/{study}-{date}.zip"


def study_files(results: Path, search: str, stages: Iterable[str]) -> Iterator[Path]:
    """Files of a study's own folder, sorted, without those of stages that it no longer has."""
    folder, known = results / search, set(stages)
    for path in sorted(folder.rglob("*")):
        parts = path.relative_to(folder).parts
        is_stale = parts[0] == "stages" and len(parts) > 1 and parts[1] not in known
        is_other = any(part.startswith(".") for part in parts) or parts[0] in _NOT_OF_A_STUDY
        if path.is_file() and not (is_stale or is_other):
            yield path


def _live(root: Path, results: Path, search: str, source: WorkflowSource) -> Contents:
    project = load_project(root / f"config/{search}.yaml", root)
    stages = stage_names(project.study)
    own = _finished(results, search, stages)
    runs = referenced_runs(path for path in own if path.suffix in (".json", ".parquet") and "charts" not in path.parts)
    _raise(records.record_faults(results, runs, []))
    specs = [read_json(results / "runs" / run_id / "spec.json") for run_id in runs]
    workloads = sorted({content_id(spec["workload"]) for spec in specs})
    _raise(records.record_faults(results, [], workloads))
    contents = Contents(project.study.title, date_of(root, results, search, source), search, _below(results, own))
    for folder in [*(f"runs/{run_id}" for run_id in runs), *(f"workloads/{workload}" for workload in workloads)]:
        contents.files |= _below(results, _files_below(results / folder))
    settings = [project.file, root / "config/workloads.yaml", root / "config/datasets.yaml"]
    settings += sorted({project.lock(alias) for alias in project.study.engines})
    settings += [project.client_lock] if project.client_lock else []
    contents.files |= {f"{WORKFLOW}/{path.relative_to(root).as_posix()}": path for path in settings}
    manifests = (RunManifest.read(results / "runs" / run_id / "manifest.json") for run_id in runs)
    contents.nodes = {each.placement.batch.node for each in manifests if each.placement and each.placement.batch.node}
    _leave_out_requests(project, results, workloads, contents)
    return contents


def _recorded(root: Path, results: Path, search: str, source: WorkflowSource) -> Contents:
    folder = root / "config" / search
    study = load_recorded(folder)
    own = _finished(results, search, study.stage_names)
    plans = [path for path in own if path.name == "plan.json"]
    _raise(fault for logs in (folder / LOGS, results / search / LOGS) for fault in records.log_faults(plans, logs))
    contents = Contents(study.title, date_of(root, results, search, source), search, _below(results, own))
    contents.files |= {f"{WORKFLOW}/{path.relative_to(root).as_posix()}": path for path in _files_below(folder)}
    return contents


def _raise(faults: Iterable[str]) -> None:
    """Raises one `ServelabError` for all faults, with the first in full."""
    if found := list(dict.fromkeys(faults)):
        more = f" (and {len(found) - 1} more: {'; '.join(found[1:4])})" if len(found) > 1 else ""
        raise ServelabError(f"{found[0]}{more}; {_FINISH}")


def _finished(results: Path, search: str, stages: list[str]) -> list[Path]:
    """Files of a study; `ServelabError` unless all of a finished study are there."""
    files = list(study_files(results, search, stages))
    there = {path.relative_to(results / search).as_posix() for path in files}
    needed = [name for name in made_of(search) if "." in name]  # the others are folders
    for name in [*needed, *(f"stages/{stage}/plan.json" for stage in stages)]:
        if name not in there:
            raise ServelabError(f"{results / search / name}: missing; {_FINISH}")
    return files


def _files_below(folder: Path) -> list[Path]:
    return [path for path in sorted(folder.rglob("*")) if path.is_file()]


def _below(results: Path, paths: Iterable[Path]) -> dict[str, Path]:
    return {f"{RESULTS}/{path.relative_to(results).as_posix()}": path for path in paths}


def _leave_out_requests(project: Project, results: Path, workloads: Iterable[str], contents: Contents) -> None:
    """Omits requests that may not be redistributed or are too large."""
    datasets = {
        workload_id(project.workload_spec(name)): project.datasets[made_from]
        for name in project.study.workloads
        if (made_from := project.workloads[name].dataset)
    }
    for workload in workloads:
        name, dataset = f"{RESULTS}/workloads/{workload}/requests.parquet", datasets.get(workload)
        requests = contents.files.get(name)
        if dataset is not None and dataset.license not in OPEN_LICENSES:
            why = f"its prompts are from {dataset.title}, under {dataset.license}"
        elif requests is None:
            why = "it was not there"
        elif (size := requests.stat().st_size) > MOST_REQUESTS_BYTES:
            why = f"it has {size:,} bytes"
        else:
            continue
        contents.files.pop(name, None)
        described = read_json(results / "workloads" / workload / "workload.json")
        contents.omitted[name] = f"{why}; its sha256 is {described['requests_sha256']}"
