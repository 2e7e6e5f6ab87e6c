"""Lists what belongs into a study's archive, each file with its name there. Missing or changed files are an error."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from servelab.archive import record_faults
from servelab.archive.job_logs import logs_of
from servelab.archive.layout import PROVENANCE, RESULTS, WORKFLOW
from servelab.archive.references import read_json, referenced_runs
from servelab.archive.workflow_source import Source
from servelab.assets.datasets import Dataset, folder_name
from servelab.core.errors import ServelabError
from servelab.core.identity import content_id, workload_id
from servelab.measure.run_files import RunManifest, RunStatus
from servelab.search.project import load_project
from servelab.search.strategies import loads, stage_names
from servelab.study.project import Project
from servelab.study.recorded.study import LOGS, load_recorded

OPEN_LICENSES = {"Apache-2.0", "BSD-3-Clause", "CC-BY-4.0", "CC-BY-SA-4.0", "CC0-1.0", "MIT", "ODC-By-1.0"}
"""Licences (SPDX) under which a data set's prompts may be redistributed."""
MOST_REQUESTS_BYTES = 256 * 2**20
"""Larger requests of a workload are omitted; their hash and how to make them stay."""


def requests_of(workload: str) -> str:
    """The member with a workload's requests."""
    return f"{RESULTS}/workloads/{workload}/requests.parquet"


def why_left_out(dataset: Dataset | None, requests: Path | None, described: Path) -> str | None:
    """Why a workload's requests are left out, with their sha256 from its description; None if they are not.

    `requests` is None if there is no such file, as in the results of a restored archive that left them out.
    """
    if dataset is not None and dataset.license not in OPEN_LICENSES:
        why = f"its prompts are from {dataset.title}, under {dataset.license}"
    elif requests is None:
        why = "it was not there"
    elif (size := requests.stat().st_size) > MOST_REQUESTS_BYTES:
        why = f"it has {size:,} bytes"
    else:
        return None
    return f"{why}; its sha256 is {read_json(described)['requests_sha256']}"


def descriptions(spec: Mapping[str, Any]) -> dict[str, str]:
    """Descriptions of a run's models and environments, by name in the archive, and each one's file in `results`.

    `spec` is the content of the run's `spec.json`.
    """
    model = spec["model"]
    source, suffix = content_id(model["source"]), model["quantization"] or model["format"]
    models = {source, content_id(spec["workload"]["tokenizer"])}
    models |= {f"{source}-{suffix}"} if model["conversion"] else set()
    found = {f"{PROVENANCE}/models/{name}.json": f"models/{name}/model.json" for name in sorted(models)}
    for tool in (spec["engine"], spec["client"]):
        if lock := tool.get("environment_sha256"):
            name = f"{tool['name']}-{lock[:12]}"
            found[f"{PROVENANCE}/environments/{name}.json"] = f"envs/{name}/environment.json"
    return found


LIVE = "studies"
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
    "card.md",
    "card.png",
    "tables",
)
_OF_LIVE = ("history.parquet", "answers.parquet", "distributions.parquet", "device_series.parquet")
_OF_RECORDED = ("claims.parquet", "logs")
_FINISH = "only a finished study can be archived: run `snakemake` for it, or restore the file"


def made_of(search: str) -> tuple[str, ...]:
    """Files and folders that the workflow makes of a study, below its folder, besides those of its stages."""
    return (*_OF_BOTH_KINDS, *(_OF_LIVE if search.startswith(f"{LIVE}/") else _OF_RECORDED))


@dataclass(frozen=True)
class ArchivedRun:
    """Metadata of a run whose records are in the archive."""

    run_id: str
    engine: str
    engine_version: str
    model: str
    accelerator: str
    image: str | None
    """Container image with its digest; None without a container."""
    node: str | None
    """The batch system's name of the machine it ran on."""
    started_at: str
    finished_at: str
    is_ok: bool


@dataclass
class Contents:
    """Files by their names in the archive, with their metadata."""

    title: str
    date: str
    searches: list[str]
    files: dict[str, Path]
    runs: list[ArchivedRun] = field(default_factory=list)
    licenses: dict[str, str] = field(default_factory=dict)
    """Files that are under the licence of a data set."""
    omitted: dict[str, str] = field(default_factory=dict)
    """Files that are omitted, and why."""

    @property
    def study(self) -> str:
        """Name of the archive's own study."""
        return self.searches[0].split("/")[1]


def study_contents(root: Path, results: Path, searches: list[str], source: Source) -> Contents:
    """Everything of the studies in `searches` (`studies/<study>`, `recorded/<study>`); the first is the archive's own.

    `root` is the project's folder, `source` the workflow in it. `ServelabError` names a file that is missing or does
    not match another file.
    """
    found = [
        _live(root, results, search) if search.startswith(f"{LIVE}/") else _recorded(root, results, search, source)
        for search in searches
    ]
    contents = Contents(found[0].title, found[0].date, searches, {})
    contents.files |= {f"{WORKFLOW}/{name}": root / name for name in source.files}
    for part in found:
        contents.files |= part.files
        contents.runs += part.runs
        contents.licenses |= part.licenses
        contents.omitted |= part.omitted
    return contents


def date_of(root: Path, results: Path, search: str, source: Source) -> str:
    """Day (UTC) on which a study's last run ended; for a recorded study, whose logs have no date, the workflow's."""
    if search.startswith(f"{LIVE}/"):
        stages = stage_names(load_project(root / f"config/{search}.yaml", root).study)
        return _last_day(results, _planned(results, search, stages))
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


def _live(root: Path, results: Path, search: str) -> Contents:
    project = load_project(root / f"config/{search}.yaml", root)
    own = _finished(results, search, stage_names(project.study))
    named = referenced_runs(path for path in own if path.suffix in (".json", ".parquet") and "charts" not in path.parts)
    planned = _planned(results, search, stage_names(project.study))
    record_faults.raise_faults(record_faults.run_faults(results, named), _FINISH)
    specs = {run_id: read_json(results / "runs" / run_id / "spec.json") for run_id in named}
    workloads = {content_id(spec["workload"]) for spec in specs.values()}
    locks = sorted({project.lock(alias) for alias in project.study.engines})
    faults = [
        *record_faults.workload_faults(results, workloads),
        *record_faults.sent_faults(results, named),
        *record_faults.lock_faults(results, planned, locks),
    ]
    record_faults.raise_faults(faults, _FINISH)
    contents = Contents(project.study.title, _last_day(results, planned), [search], _below(results, own))
    ids = {"runs": list(named), "workloads": sorted(workloads)}
    for kind, names in ids.items():
        contents.files |= _below(results, [path for name in names for path in _files_below(results / kind / name)])
    locks += [project.client_lock] if project.client_lock else []
    settings = [project.file, root / "config/workloads.yaml", root / "config/datasets.yaml"]
    contents.files |= {f"{WORKFLOW}/{path.relative_to(root).as_posix()}": path for path in [*settings, *locks]}
    contents.files |= _provenance(project, results, specs.values())
    contents.files |= _logs(results, contents)
    contents.runs = [_archived(results, run_id, spec) for run_id, spec in specs.items()]
    _leave_out_requests(project, results, ids["workloads"], contents)
    return contents


def _recorded(root: Path, results: Path, search: str, source: Source) -> Contents:
    folder = root / "config" / search
    study = load_recorded(folder)
    own = _finished(results, search, study.stage_names)
    plans = [path for path in own if path.name == "plan.json"]
    faults = [
        fault for logs in (folder / LOGS, results / search / LOGS) for fault in record_faults.log_faults(plans, logs)
    ]
    record_faults.raise_faults(faults, _FINISH)
    contents = Contents(study.title, date_of(root, results, search, source), [search], _below(results, own))
    contents.files |= {f"{WORKFLOW}/{path.relative_to(root).as_posix()}": path for path in _files_below(folder)}
    contents.files |= _logs(results, contents)
    return contents


def _finished(results: Path, search: str, stages: list[str]) -> list[Path]:
    """Files of a study; `ServelabError` unless all of a finished study are there."""
    files = list(study_files(results, search, stages))
    there = {path.relative_to(results / search).as_posix() for path in files}
    needed = [name for name in made_of(search) if "." in name]  # the others are folders
    for name in [*needed, *(f"stages/{stage}/plan.json" for stage in stages)]:
        if name not in there:
            raise ServelabError(f"{results / search / name}: missing; {_FINISH}")
    return files


def _planned(results: Path, search: str, stages: Iterable[str]) -> list[str]:
    """Runs of a study's plans."""
    return list(referenced_runs(results / search / "stages" / stage / "plan.json" for stage in stages))


def _last_day(results: Path, run_ids: Iterable[str]) -> str:
    days = [RunStatus.read(results / "runs" / run_id / "status.json").finished_at[:10] for run_id in run_ids]
    if not days:
        raise ServelabError(f"{results}: no candidate of the study ran, so there is nothing to archive")
    return str(max(days))


def _archived(results: Path, run_id: str, spec: dict[str, Any]) -> ArchivedRun:
    folder = results / "runs" / run_id
    status, manifest = RunStatus.read(folder / "status.json"), RunManifest.read(folder / "manifest.json")
    return ArchivedRun(
        run_id=run_id,
        engine=spec["engine"]["name"],
        engine_version=spec["engine"]["version"],
        model=spec["model"]["id"],
        accelerator=spec["hardware"]["accelerator"],
        image=manifest.environment.image,
        node=manifest.placement.batch.node if manifest.placement else None,
        started_at=status.started_at,
        finished_at=status.finished_at,
        is_ok=status.is_ok,
    )


def _files_below(folder: Path) -> list[Path]:
    return [path for path in sorted(folder.rglob("*")) if path.is_file()]


def _below(results: Path, paths: Iterable[Path]) -> dict[str, Path]:
    return {f"{RESULTS}/{path.relative_to(results).as_posix()}": path for path in paths}


def _provenance(project: Project, results: Path, specs: Iterable[dict[str, Any]]) -> dict[str, Path]:
    """Descriptions of what is too large or not ours to redistribute: data sets, models, environments."""
    datasets = {dataset for name in project.study.workloads if (dataset := project.workloads[name].dataset)}
    folders = [folder_name(name, project.datasets[name].sha256) for name in sorted(datasets)]
    found = {f"datasets/{folder}.json": results / "datasets" / folder / "dataset.json" for folder in folders}
    named = {f"{PROVENANCE}/{name}": path for name, path in found.items()}
    for spec in specs:
        named |= {name: results / file for name, file in descriptions(spec).items()}
    return {name: path for name, path in named.items() if path.is_file()}


def _logs(results: Path, contents: Contents) -> dict[str, Path]:
    """Logs of the jobs that made these files, those that are there."""
    named = {name: results / name.removeprefix(f"{RESULTS}/") for name in logs_of(contents.files)}
    return {name: path for name, path in sorted(named.items()) if path.is_file()}


def _leave_out_requests(project: Project, results: Path, workloads: Iterable[str], contents: Contents) -> None:
    """Omits requests that may not be redistributed or are too large, and records the licence of the others."""
    datasets = {
        workload_id(load.requests(project.workload_spec(load.workload))): project.datasets[made_from]
        for load in loads(project.study)
        if (made_from := project.workloads[load.workload].dataset)
    }
    for workload in workloads:
        name, dataset = requests_of(workload), datasets.get(workload)
        if why := why_left_out(dataset, contents.files.get(name), results / "workloads" / workload / "workload.json"):
            contents.files.pop(name, None)
            contents.omitted[name] = why
        elif dataset is not None:
            contents.licenses[name] = dataset.license
