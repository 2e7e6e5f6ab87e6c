"""Lists what belongs in a study's archive, each file with its name there, and what is missing or changed.

Raw records are those that the study's files name, and each must be what its name says.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from servelab.archive.layout import CODE, RESULTS, WORKFLOW, files_below
from servelab.core.credentials import leaves
from servelab.core.errors import ServelabError
from servelab.core.files import read_json
from servelab.core.identity import content_id, file_sha256, workload_id
from servelab.core.run_spec import RunSpec
from servelab.core.seal import faults_of_seal
from servelab.core.yaml_file import read_yaml
from servelab.measure.run_files import GitState, RunManifest, RunStatus, read_import
from servelab.measure.run_folder import git, git_state
from servelab.metrics.capacity import judge
from servelab.metrics.tables import schemas
from servelab.metrics.tables.io import by_round, read_arrow, record_array
from servelab.results.parse import TABLES
from servelab.search.project import load_project
from servelab.search.strategies import stage_names
from servelab.study.project import Project, is_live
from servelab.study.recorded.study import LOGS, load_recorded

OPEN_LICENSES = {"Apache-2.0", "BSD-3-Clause", "CC-BY-4.0", "CC-BY-SA-4.0", "CC0-1.0", "MIT", "ODC-By-1.0"}
"""Licences (SPDX) under which a data set's prompts may be redistributed."""
_KEY = re.compile(r"(?:^|_)run_ids?(?:_|$)")
_ID = re.compile(r"[0-9a-f]{20}")
_NOT_SOURCE = re.compile(r"\..*|__pycache__|.*\.egg-info")
_OF_BOTH_KINDS = (
    *("study.json", "metrics.parquet", "checks.parquet", "improvements.parquet", "search.parquet", "curves.parquet"),
    *("recommended.json", "charts", "report.html", "report.md", "tables"),
)
_OF_LIVE = ("history.parquet", "answers.parquet", "device_series.parquet")
_OF_RECORDED = ("claims.parquet", "logs")
_OF_STAGE = ("plan.json", "decision.json", *(f"{name}.parquet" for name in TABLES))


@dataclass(frozen=True)
class WorkflowSource:
    """The workflow in a project's folder: its files and its commit."""

    files: list[str]
    """Paths below the folder, sorted."""
    commit: str | None
    dirty: bool | None
    """Whether tracked files differ from the commit."""
    date: str | None
    """Day of the commit (UTC), or of the release if there is no checkout."""


def read_source(root: Path) -> WorkflowSource:
    """The workflow in `root`: tracked files and new files of the code or, without a checkout, all files.

    `root` must be the top of the checkout, otherwise there is no commit. A link is a `ServelabError`.
    """
    state, date = git_state(root), None
    if state.commit and Path(git(root, "rev-parse", "--show-toplevel") or ".") == root.resolve():
        untracked = ("--others", "--exclude-standard", "--", *CODE)
        listed = [git(root, "ls-files", "-z", *which) or "" for which in (("--cached",), untracked)]
        # compiled files are made again
        names = {name for name in "\0".join(listed).split("\0") if "__pycache__" not in name}
        names = {name for name in names if os.path.lexists(root / name)}
        committed_s = int(git(root, "log", "-1", "--no-show-signature", "--format=%ct") or 0)
        date = datetime.fromtimestamp(committed_s, UTC).date().isoformat()
    else:
        parts = (part for part in root.iterdir() if part.name != RESULTS)
        below = (path for part in parts for path in (part, *part.rglob("*")) if path.is_symlink() or path.is_file())
        paths = (path.relative_to(root) for path in below)
        names = {path.as_posix() for path in paths if not any(_NOT_SOURCE.fullmatch(part) for part in path.parts)}
        state, citation = GitState(commit=None, dirty=None), root / "CITATION.cff"
        date = str(read_yaml(citation)["date-released"]) if citation.exists() else date
    files = sorted(names - {""})
    for file in (root / name for name in files):
        if file.is_symlink():
            raise ServelabError(f"{file}: a link, which an archive cannot have; replace it by the file")
    return WorkflowSource(files, state.commit, state.dirty, date)


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
    return (*_OF_BOTH_KINDS, *(_OF_LIVE if is_live(search) else _OF_RECORDED))


def study_contents(root: Path, results: Path, search: str, source: WorkflowSource) -> Contents:
    """Everything of a study. `root` is the folder of the workflow that `source` lists, `results` of what it made.

    A study file that cannot be read is a `ServelabError`.
    """
    found = (_live if is_live(search) else _recorded)(root, results, search, source)
    found.files |= {f"{WORKFLOW}/{name}": root / name for name in source.files}
    found.faults += [f"{root / part}: missing" for part in CODE if not (root / part).exists()]
    return found


def _live(root: Path, results: Path, search: str, source: WorkflowSource) -> Contents:
    project = load_project(root / f"config/{search}.yaml", root)
    own = _own_files(results, search, stage_names(project.study))
    contents = Contents(project.study.title, "", search, _named(RESULTS, results, own))
    runs = referenced_runs(path for path in own if path.suffix in (".json", ".parquet") and "charts" not in path.parts)
    contents.faults += [fault for run_id in runs for fault in run_faults(results, run_id)]
    if contents.faults:
        return contents
    folders = [results / "runs" / run_id for run_id in runs]
    workloads = sorted({content_id(read_json(folder / "spec.json")["workload"]) for folder in folders})
    for folder in (results / "workloads" / each for each in workloads):
        contents.faults += [f"{folder}/{fault}" for fault in faults_of_workload(folder)]
        made = (folder / name for name in ("workload.json", "requests.parquet"))
        contents.files |= _named(RESULTS, results, filter(Path.exists, made))
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
    own = _own_files(results, search, study.stage_names)
    plans = [path for path in own if path.name == "plan.json"]
    faults = [fault for logs in (folder / LOGS, results / search / LOGS) for fault in log_faults(plans, logs)]
    files = _named(RESULTS, results, own) | _named(WORKFLOW, root, files_below(folder))
    return Contents(study.title, source.date, search, files, faults=faults)


def _own_files(results: Path, search: str, stages: Iterable[str]) -> list[Path]:
    """Files of a study's own folder, without those of stages that it no longer has, or of an earlier workflow."""
    folder = results / search
    in_stages = (f"stages/{stage}/{name}" for stage in stages for name in _OF_STAGE)
    names = (*made_of(search), "answers", "predicted.json", *in_stages)
    parts = [folder / name for name in names]
    files = [file for part in parts for file in ([part] if part.is_file() else files_below(part))]
    return sorted(file for file in files if not any(part[0] == "." for part in file.relative_to(folder).parts))


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
    for workload in workloads:
        name, dataset = f"{RESULTS}/workloads/{workload}/requests.parquet", datasets.get(workload)
        closed = dataset if dataset and dataset.license not in OPEN_LICENSES else None
        if closed or name not in contents.files:
            why = f"its prompts are from {closed.title}, under {closed.license}" if closed else "it was not there"
            contents.files.pop(name, None)
            described = read_json(results / "workloads" / workload / "workload.json")
            contents.omitted[name] = f"{why}; its sha256 is {described['requests_sha256']}"


def referenced_runs(files: Iterable[Path]) -> list[str]:
    """All runs that these JSON and Parquet files name in keys and columns like `run_id`, each once.

    An unreadable file is a `ServelabError`.
    """
    contents = (read_json(file) if file.suffix == ".json" else _columns(file) for file in files)
    texts = ((key, value) for content in contents for _, key, value in leaves(content) if isinstance(value, str))
    return list(dict.fromkeys(value for key, value in texts if _KEY.search(key) and _ID.fullmatch(value)))


def _columns(file: Path) -> dict[str, list[Any]]:
    try:
        table = read_arrow(file, [name for name in pq.read_schema(file).names if _KEY.search(name)])
    except (OSError, pa.ArrowException) as error:
        raise ServelabError(f"{file}: cannot be read: {error}") from None
    return dict(table.to_pydict())


def run_faults(results: Path, run_id: str) -> list[str]:
    """A line per fault of a run and of the requests that it was sent, beginning with the file."""
    folder = results / "runs" / run_id
    return [f"{folder}/{fault}" for fault in faults_of_run(folder) or _faults_of_sent(folder, results / "workloads")]


def log_faults(plans: Iterable[Path], logs: Path) -> Iterator[str]:
    """Logs of a recorded study that differ from those its plans were made from."""
    runs = (run for plan in plans for each in read_json(plan)["candidates"] for run in each["runs"])
    for name, sha256 in (item for run in runs for item in run["spec"]["logs"].items()):
        if not (logs / name).is_file():
            yield f"{logs / name}: missing"
        elif file_sha256(logs / name) != sha256:
            yield f"{logs / name}: was changed since its plan was made"


def faults_of_run(folder: Path) -> list[str]:
    """Why the folder is not a run of that name: a line per file, beginning with its name."""
    return faults_of_seal(folder) or list(_faults_of_records(folder))


def faults_of_workload(folder: Path) -> list[str]:
    """The same of a workload's requests, which may be left out of an archive."""
    try:
        described = json.loads((folder / "workload.json").read_bytes())
        if (found := content_id(described["spec"])) != folder.name:
            return [f"workload.json: was changed: it describes workload {found}"]
        if (requests := folder / "requests.parquet").exists() and file_sha256(requests) != described["requests_sha256"]:
            return ["requests.parquet: was changed: workload.json has another sha256"]
    except (OSError, ValueError, LookupError, TypeError, RecursionError) as error:
        return [f"workload.json: cannot be read: {error}"]
    return []


def _faults_of_records(folder: Path) -> Iterator[str]:
    try:
        spec, status = RunSpec.read(folder / "spec.json"), RunStatus.read(folder / "status.json")
        manifest = RunManifest.read(folder / "manifest.json")
        read_import(folder)
    except ServelabError as error:
        yield str(error).removeprefix(f"{folder}/")
        return
    if manifest.run_id != folder.name:
        yield f"manifest.json: is of run {manifest.run_id}"
    for records in filter(Path.exists, (folder / "requests.parquet", folder / "steps.parquet")):  # a reader takes null
        if lacking := set(schemas.RUN_REQUESTS.names) - set(pq.read_schema(records).names):
            yield f"{records.name}: has no column {', '.join(sorted(lacking))}"
    if spec.capacity is not None and status.steps:
        rounds = by_round(record_array(pq.read_table(folder / "steps.parquet", schema=schemas.RUN_REQUESTS)))
        for number, step in enumerate(status.steps):
            if (sent := rounds.get(number)) is None or judge(spec.capacity, step.load, sent) != step:
                yield f"status.json: step {number} of the search for capacity is not what steps.parquet shows"


def _faults_of_sent(folder: Path, workloads: Path) -> Iterator[str]:
    """Whether a run was sent other requests than those of its specification's workload."""
    workload = workloads / content_id(read_json(folder / "spec.json")["workload"]) / "workload.json"
    sent = read_json(folder / "manifest.json").get("workload", {}).get("requests_sha256")
    if workload.is_file() and sent != read_json(workload)["requests_sha256"]:
        yield "manifest.json: was changed: it was sent other requests than its workload's"
