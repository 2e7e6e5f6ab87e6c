"""What belongs into a study's archive: every file with the name it has there. Missing or changed ones are an error."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

from servelab.archive import checks
from servelab.archive.layout import PROVENANCE, RESULTS, WORKFLOW
from servelab.archive.references import read_json, references
from servelab.archive.source import Source
from servelab.errors import ServelabError
from servelab.identity import content_id, file_sha256, workload_id
from servelab.project import Project, load_project
from servelab.recorded.study import LOGS, load_recorded

LIVE = "studies"
OPEN_LICENSES = {"Apache-2.0", "BSD-3-Clause", "CC-BY-4.0", "CC-BY-SA-4.0", "CC0-1.0", "MIT", "ODC-By-1.0"}
"""Licences (SPDX) under which a data set's prompts may be passed on."""
MOST_REQUESTS_BYTES = 256 * 2**20
"""Requests of a workload beyond it are left out; their hash and how they are made stay."""
_NOT_OF_A_STUDY = ("preflight.json",)
"""Of one machine, and made before anything was measured."""
_NEEDED = ("report.html", "report.md", "recommended.json", "improvements.parquet")
_FINISH = "an archive is of a finished study: run `snakemake` for it, or bring the file back"


@dataclass(frozen=True)
class ArchivedRun:
    """What is told of a run whose records are in the archive."""

    run_id: str
    engine: str
    engine_version: str
    model: str
    accelerator: str
    image: str | None
    """Container image with its digest; None where there was none."""
    node: str | None
    """The batch system's name of the machine it ran on."""
    started_at: str
    finished_at: str
    is_ok: bool


@dataclass
class Contents:
    """Files by their names in the archive, and what is told of them."""

    title: str
    date: str
    searches: list[str]
    files: dict[str, Path]
    runs: list[ArchivedRun] = field(default_factory=list)
    licenses: dict[str, str] = field(default_factory=dict)
    """Files that are under the licence of a data set."""
    omitted: dict[str, str] = field(default_factory=dict)
    """Files that are left out, and why."""

    @property
    def study(self) -> str:
        """Name of the archive's own study."""
        return self.searches[0].split("/")[1]


def study_contents(root: Path, results: Path, searches: list[str], source: Source) -> Contents:
    """Everything of the studies in `searches` (`studies/<study>`, `recorded/<study>`); the first is the archive's own.

    `root` is the project's folder, `source` the workflow in it. `ServelabError` where a file that belongs to them is
    missing or is not what another one says of it.
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
    """Day (UTC) on which the last of a study's runs ended; of a recorded study the workflow's, for logs tell none."""
    if search.startswith(f"{LIVE}/"):
        stages = load_project(root / f"config/{search}.yaml", root).stage_names
        return _last_day(results, _planned(results, search, stages))
    if source.date is None:
        raise ServelabError(f"{root}: neither a checkout nor a CITATION.cff says of which day the workflow is")
    return source.date


def archive_name(search: str, date: str) -> str:
    """Where a study's archive belongs below results/archives; recorded studies have a folder of their own there."""
    kind, study = search.split("/")
    return f"{study}-{date}.zip" if kind == LIVE else f"{kind}/{study}-{date}.zip"


def study_files(results: Path, search: str, stages: Iterable[str]) -> Iterator[Path]:
    """Files of a study's own folder, sorted; what stages that it no longer has have left is not among them."""
    folder, known = results / search, set(stages)
    for path in sorted(folder.rglob("*")):
        parts = path.relative_to(folder).parts
        is_stale = parts[0] == "stages" and len(parts) > 1 and parts[1] not in known
        is_other = any(part.startswith(".") for part in parts) or parts[0] in _NOT_OF_A_STUDY
        if path.is_file() and not (is_stale or is_other):
            yield path


def _live(root: Path, results: Path, search: str) -> Contents:
    project = load_project(root / f"config/{search}.yaml", root)
    own = _finished(results, search, project.stage_names)
    named = references(path for path in own if path.suffix in (".json", ".parquet") and "charts" not in path.parts)
    planned = _planned(results, search, project.stage_names)
    faults = [*checks.run_faults(results, named.runs), *checks.pair_faults(results, named.pairs)]
    checks.raise_faults(faults, _FINISH)
    specs = {run_id: read_json(results / "runs" / run_id / "spec.json") for run_id in named.runs}
    workloads = {content_id(spec["workload"]) for spec in specs.values()}
    locks = sorted({project.lock(alias) for alias in project.study.engines})
    faults = [
        *checks.workload_faults(results, workloads),
        *checks.sent_faults(results, named.runs),
        *checks.lock_faults(results, planned, locks),
    ]
    checks.raise_faults(faults, _FINISH)
    contents = Contents(project.study.title, _last_day(results, planned), [search], _below(results, own))
    ids = {"runs": list(named.runs), "pairs": list(named.pairs), "workloads": sorted(workloads)}
    for kind, names in ids.items():
        contents.files |= _below(results, [path for name in names for path in _files_below(results / kind / name)])
    contents.files |= _below(results, [results / _plan_of(stage) for stage in named.elsewhere])
    locks += [project.client_lock] if project.client_lock else []
    settings = [project.file, root / "config/workloads.yaml", root / "config/datasets.yaml"]
    contents.files |= {f"{WORKFLOW}/{path.relative_to(root).as_posix()}": path for path in [*settings, *locks]}
    contents.files |= _provenance(project, results, specs.values())
    contents.files |= _below(results, _logs(results, search, project.stage_names, chain.from_iterable(ids.values())))
    contents.runs = [_archived(results, run_id, spec) for run_id, spec in specs.items()]
    _leave_out_requests(project, contents)
    return contents


def _recorded(root: Path, results: Path, search: str, source: Source) -> Contents:
    folder = root / "config" / search
    study = load_recorded(folder)
    own = _finished(results, search, study.stage_names)
    plans = [path for path in own if path.name == "plan.json"]
    faults = [fault for logs in (folder / LOGS, results / search / LOGS) for fault in checks.log_faults(plans, logs)]
    checks.raise_faults(faults, _FINISH)
    contents = Contents(study.title, date_of(root, results, search, source), [search], _below(results, own))
    contents.files |= {f"{WORKFLOW}/{path.relative_to(root).as_posix()}": path for path in _files_below(folder)}
    contents.files |= _below(results, _logs(results, search, study.stage_names, []))
    return contents


def _finished(results: Path, search: str, stages: list[str]) -> list[Path]:
    """Files of a study, all of which a finished one has."""
    files = list(study_files(results, search, stages))
    there = {path.relative_to(results / search).as_posix() for path in files}
    for name in [*_NEEDED, *(f"stages/{stage}/plan.json" for stage in stages)]:
        if name not in there:
            raise ServelabError(f"{results / search / name}: missing; {_FINISH}")
    return files


def _planned(results: Path, search: str, stages: Iterable[str]) -> list[str]:
    """Runs of a study's plans."""
    return list(references(results / search / "stages" / stage / "plan.json" for stage in stages).runs)


def _last_day(results: Path, run_ids: Iterable[str]) -> str:
    days = [read_json(results / "runs" / run_id / "status.json")["finished_at"][:10] for run_id in run_ids]
    if not days:
        raise ServelabError(f"{results}: no candidate of the study could be run, so there is nothing to archive")
    return str(max(days))


def _archived(results: Path, run_id: str, spec: dict[str, Any]) -> ArchivedRun:
    folder = results / "runs" / run_id
    status, manifest = read_json(folder / "status.json"), read_json(folder / "manifest.json")
    return ArchivedRun(
        run_id=run_id,
        engine=spec["engine"]["name"],
        engine_version=spec["engine"]["version"],
        model=spec["model"]["id"],
        accelerator=spec["hardware"]["accelerator"],
        image=manifest.get("environment", {}).get("image"),
        node=((manifest.get("placement") or {}).get("batch") or {}).get("node"),
        started_at=status["started_at"],
        finished_at=status["finished_at"],
        is_ok=status["outcome"] == "ok",
    )


def _plan_of(stage: str) -> str:
    """`studies/<study>/<stage>` → its plan below results/."""
    kind, study, name = stage.split("/")
    return f"{kind}/{study}/stages/{name}/plan.json"


def _files_below(folder: Path) -> list[Path]:
    return [path for path in sorted(folder.rglob("*")) if path.is_file()]


def _below(results: Path, paths: Iterable[Path]) -> dict[str, Path]:
    return {f"{RESULTS}/{path.relative_to(results).as_posix()}": path for path in paths}


def _provenance(project: Project, results: Path, specs: Iterable[dict[str, Any]]) -> dict[str, Path]:
    """Descriptions of what is too large to be here, or not ours to pass on: data sets, models, environments."""
    datasets = {project.workloads[name].dataset for name in project.study.workloads} - {None}
    found = {f"datasets/{name}.json": results / "datasets" / str(name) / "dataset.json" for name in datasets}
    for spec in specs:
        for model in sorted((results / "models").glob(f"{content_id(spec['model']['source'])}*/model.json")):
            found[f"models/{model.parent.name}.json"] = model
        for tool in (spec["engine"], spec["client"]):
            if lock := tool.get("environment_sha256"):
                name = f"{tool['name']}-{lock[:12]}"
                found[f"environments/{name}.json"] = results / "envs" / name / "environment.json"
    return {f"{PROVENANCE}/{name}": path for name, path in found.items() if path.is_file()}


def _logs(results: Path, search: str, stages: list[str], ids: Iterable[str]) -> list[Path]:
    """Logs of the jobs that made a study: `results/logs/<rule>/<what it made>.log`."""
    names = {search, search.split("/")[1]}
    keys = names | {f"{name}-{stage}" for name in names for stage in stages} | set(ids)
    logs = results / "logs"
    return [
        path
        for path in _files_below(logs)
        if path.relative_to(logs).as_posix().partition("/")[2].removesuffix(".log") in keys
    ]


def _leave_out_requests(project: Project, contents: Contents) -> None:
    """Takes out requests that may not be passed on or are too large; says under whose licence the others are."""
    datasets = {
        workload_id(load.requests(project.workload_spec(load.workload))): project.datasets[made_from]
        for load in project.loads
        if (made_from := project.workloads[load.workload].dataset)
    }
    for name, path in list(contents.files.items()):
        if not name.startswith(f"{RESULTS}/workloads/") or path.name != "requests.parquet":
            continue
        dataset, why = datasets.get(path.parent.name), None
        if dataset is not None and dataset.license not in OPEN_LICENSES:
            why = f"its prompts are of {dataset.title}, under {dataset.license}"
        elif path.stat().st_size > MOST_REQUESTS_BYTES:
            why = f"it has {path.stat().st_size:,} bytes"
        if why:
            del contents.files[name]
            contents.omitted[name] = f"{why}; its sha256 is {file_sha256(path)}"
        elif dataset is not None:
            contents.licenses[name] = dataset.license
