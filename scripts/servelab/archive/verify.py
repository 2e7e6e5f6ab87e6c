"""Verifies an archive: its files match the manifest, its records their names, and all else what is made again."""

from __future__ import annotations

import json
import math
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from servelab.archive.about import crate_metadata, readme
from servelab.archive.contents import WorkflowSource, made_of, study_contents
from servelab.archive.layout import (
    CODE,
    CRATE,
    MANIFEST,
    README,
    RESULTS,
    WORKFLOW,
    Manifest,
    files_below,
    opened,
    reading,
    shown,
)
from servelab.core.errors import ServelabError
from servelab.core.run_spec import NOTHING
from servelab.metrics.tables.io import read_arrow
from servelab.report.claims_section import RecordedLogs
from servelab.report.measured_runs import MeasuredRuns
from servelab.report.render import RENDERED, render_again
from servelab.search.project import load_project
from servelab.search.versions import study_versions, versions_id

_TOLERANCE = 1e-9
"""Relative, of numbers with a fraction."""
_COMPUTE = ("answer", "recorded", "report", "stages")
"""Scripts that only compute, all that the workflow has here: no archive makes it serve, build or download."""
_ANSWERS = "answers"
"""Folder of a study that also has the answers under earlier versions, which cannot be recomputed."""


@dataclass
class Verification:
    """The result of a verification."""

    manifest: Manifest
    holds: list[str] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    """One line per fault, beginning with the file."""
    incomparable: int = 0
    """How many of the faults, the first ones, say nothing, because other code or other packages made the file."""


@contextmanager
def verified(path: Path, code: Path, parent: Path | None = None) -> Iterator[tuple[Verification, Path]]:
    """The verification of an archive, without a network, and the folder below `parent` with its content.

    The workflow in the folder `code` makes the tables again. An unreadable archive is a `ServelabError`.
    """
    with (
        tempfile.TemporaryDirectory(prefix="servelab-verify-") as scratch,
        opened(path, parent or Path(scratch)) as (manifest, folder, faults),
    ):
        found, work = Verification(manifest, faults=faults), Path(scratch) / "again"
        try:
            with reading(f"{manifest.folder}: cannot be recomputed"):
                if not faults:
                    found.holds.append(f"{len(manifest.members)} files by their sha256")
                    faults += _faults_of_content(folder, manifest)
                if faults:
                    faults.append(f"{path}: nothing was recomputed, because of these faults")
                else:
                    found.holds.append("nothing missing, nothing more; runs and logs by the hash that names them")
                    _compare(folder, manifest, code, work, found)
        except ServelabError as error:
            faults.append(str(error))
        faults[:] = [line.replace(f"{folder}/", "").replace(f"{work}/", "") for line in faults]
        yield found, folder


def _faults_of_content(folder: Path, manifest: Manifest) -> Iterator[str]:
    """One line per member that is not what a study's archive has, or that is missing."""
    workflow = folder / WORKFLOW
    files = [path.relative_to(workflow).as_posix() for path in files_below(workflow)]
    source = WorkflowSource(files, manifest.commit, manifest.dirty, manifest.date)
    contents = study_contents(workflow, folder / RESULTS, manifest.search, source)
    yield from contents.faults
    if contents.faults:
        return
    expected = {*contents.files, README, CRATE}
    for name in sorted(manifest.members.keys() ^ expected):
        yield f"{name}: {'missing' if name in expected else 'belongs to nothing of the study'}"
    told = manifest.model_dump(include={"study", "title", "date", "omitted"})
    found = {"study": manifest.search.split("/")[1], "title": contents.title, "date": contents.date}
    for name, value in (found | {"omitted": contents.omitted}).items():
        if told[name] != value:
            yield f"{MANIFEST}: {name}: {shown(str(told[name]))}, not {shown(str(value))}"


def recompute(folder: Path, manifest: Manifest, code: Path, work: Path) -> str | None:
    """Makes tables, decisions, answers and pages in `work/results`; returns the reason of a failure, or None.

    `folder` has the archive's content, `code` is the project's folder whose workflow computes. A study file that cannot
    be used is a `ServelabError`.
    """
    _prepare(folder, manifest, code, work)
    kind, study = manifest.search.split("/")
    config = {"studies": [], "recorded": [], kind: [study], "again": [NOTHING]}
    (work / "config/config.yaml").write_text(json.dumps(config))  # JSON is YAML
    targets = [f"{manifest.folder}{each}" for each in made_of(manifest.search) if each not in ("charts", *RENDERED)]
    targets += [_current_answer(work, manifest)] if manifest.is_live else []
    command = [sys.executable, "-m", "snakemake", "--profile", "profiles/default", "--quiet", "--nolock", *targets]
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("SNAKEMAKE_", "SERVELAB_"))}
    programs = f"{Path(sys.executable).parent}:{os.environ.get('PATH', '')}"
    done = subprocess.run(
        command,
        cwd=work,
        env=kept | {"PATH": programs, "PYTHONPATH": str(work / "scripts"), "HOME": str(work)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode == 0:
        runs, logs = work / RESULTS / "runs", work / "config" / manifest.search
        render_again(work / RESULTS, manifest.search, MeasuredRuns(runs) if manifest.is_live else RecordedLogs(logs))
        return None
    lines = [line.strip() for line in done.stdout.splitlines() if line.strip()]
    errors = [line for line in lines if re.match(r"(error|\w*(Error|Exception))\b", line)]
    return " / ".join((errors or lines)[-12:])


def _prepare(folder: Path, manifest: Manifest, code: Path, work: Path) -> None:
    """A project with the code in `code` and the archive's configuration and raw records."""
    work.mkdir()
    (work / "scripts").mkdir()
    scripts = (f"scripts/{name}" for name in ("servelab", *(f"{name}.py" for name in _COMPUTE)))
    for name in ("Snakefile", "rules", "profiles", *scripts):
        (work / name).symlink_to((code / name).resolve())
    for name in ("config", "envs"):
        shutil.copytree(folder / WORKFLOW / name, work / name)
    shutil.copytree(folder / RESULTS, work / RESULTS)
    for path in (work / manifest.folder).iterdir():
        if path.name not in (_ANSWERS, "charts", "predicted.json"):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    if manifest.is_live:
        (work / _current_answer(work, manifest)).unlink(missing_ok=True)


def _current_answer(project: Path, manifest: Manifest) -> str:
    """Member with a live study's answer under the versions that its engines have in a project."""
    versions = study_versions(load_project(project / f"config/{manifest.search}.yaml", project))
    return f"{manifest.folder}{_ANSWERS}/{versions_id(versions)}.json"


def _compare(folder: Path, manifest: Manifest, code: Path, work: Path, found: Verification) -> None:
    """Makes in `work` all that follows from the raw records, and lists what differs."""
    if why := recompute(folder, manifest, code, work):
        found.faults.append(f"{manifest.folder}: cannot be recomputed from the raw records: {why}")
        return
    (work / README).write_text(readme(manifest, work / manifest.folder / "recommended.json"), encoding="utf-8")
    (work / CRATE).write_text(json.dumps(crate_metadata(manifest)), encoding="utf-8")
    made = {path.relative_to(work).as_posix() for path in files_below(work / manifest.folder) if path.name[0] != "."}
    names = made | {name for name in manifest.members if name.startswith(manifest.folder)} | {README, CRATE}
    drawn = {name for name in names if name.startswith(f"{manifest.folder}charts/")}
    kept = {name for name in names if manifest.is_live and name.startswith(f"{manifest.folder}{_ANSWERS}/")}
    kept -= {_current_answer(work, manifest)} if kept else set()
    compared = sorted(names - drawn - kept)
    different = {name: differs for name in compared if (differs := difference(folder / name, work / name))}
    again = f"{len(compared) - len(different)} tables, decisions, answers and pages made again from the raw records"
    found.holds.append(f"{again}, but not {len(drawn)} drawings and {len(kept)} answers under earlier versions")
    versions = _other_versions(folder / WORKFLOW, code) if different else ""
    found.faults += [f"{name}: {differs}{versions}" for name, differs in different.items()]
    found.incomparable = len(different) if versions else 0


def difference(archived: Path, again: Path) -> str | None:
    """The first difference of a file of an archive from the one made again; None if they are the same."""
    if not again.is_file():
        return "no rule of the workflow makes it from the archived records"
    if not archived.is_file():
        return "is made from the records, but the archive lacks it"
    if archived.read_bytes() == again.read_bytes():
        return None
    if archived.suffix not in (".json", ".parquet"):
        return "is not what the records give"
    try:
        return _difference(_plain(archived), _plain(again))
    except (RecursionError, ValueError, pa.ArrowException) as error:
        return f"cannot be read: {shown(str(error))}"


def _plain(file: Path) -> Any:
    """The content of a JSON file, or the columns of a table."""
    if file.suffix == ".json":
        return json.loads(file.read_bytes())
    table = read_arrow(file)
    return {f"column {each.name} ({each.type})": table[each.name].to_pylist() for each in table.schema}


def _difference(value: Any, again: Any, path: str = "") -> str | None:
    """The first difference of plain data, with its place."""
    parts: Iterable[tuple[Any, Any, str]] = ()
    if isinstance(value, dict) and isinstance(again, dict):
        if odd := value.keys() ^ again.keys():
            return f"{path}: {', '.join(sorted(odd))} is in one of the two"
        parts = ((value[key], again[key], f"{path}.{key}".lstrip(".")) for key in value)
    elif isinstance(value, list) and isinstance(again, list) and len(value) == len(again):
        parts = ((*pair, f"{path}[{number}]") for number, pair in enumerate(zip(value, again, strict=True)))
    elif not _is_same(value, again):
        return f"{path}: {shown(str(value))}; recomputed, {shown(str(again))}"
    return next((found for part in parts if (found := _difference(*part))), None)


def _is_same(value: Any, again: Any) -> bool:
    if isinstance(value, float) and isinstance(again, float):
        return math.isclose(value, again, rel_tol=_TOLERANCE) or (math.isnan(value) and math.isnan(again))
    return bool(value == again) and type(value) is type(again)


def _other_versions(workflow: Path, code: Path) -> str:
    """The difference of the code or lock that recomputes from the archive's; empty if they are the same."""
    names = (*CODE, "profiles", "envs/workflow.lock.txt")
    made_by = [path for name in names for path in (workflow / name, *files_below(workflow / name)) if path.is_file()]
    pairs = ((path, code / path.relative_to(workflow)) for path in made_by)
    other = [path for path, own in pairs if not own.is_file() or own.read_bytes() != path.read_bytes()]
    return f"; {len(other)} files of the workflow differ, such as {min(other)}" if other else ""
