"""Verifies an archive: its files match the manifest, its records their names, its tables what is recomputed."""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from servelab.archive.contents import made_of, study_files
from servelab.archive.layout import MANIFEST, RESULTS, WORKFLOW, Manifest, read_manifest
from servelab.archive.records import log_faults, record_faults, referenced_runs
from servelab.archive.unpack import Archive, open_archive, reading, shown, unpacked
from servelab.core.errors import ServelabError
from servelab.metrics.tables.io import read_arrow
from servelab.search.project import load_project
from servelab.search.versions import study_versions, versions_id

_TOLERANCE = 1e-9
"""Relative, of numbers with a fraction."""
_CODE = ("Snakefile", "rules", "scripts", "profiles")
_CONFIGURATION = ("config", "envs")
_NEVER = (
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
_OF_PAGES = ("charts", "tables")
"""Folders of a study with what its page shows."""
_ANSWERS = "answers"
"""Folder of a study that also has the answers under earlier versions, which cannot be recomputed."""
_LINES = 12


def difference(archived: Path, again: Path) -> str | None:
    """The first difference of a table or JSON file of an archive from the one made again; None if they are the same."""
    if archived.read_bytes() == again.read_bytes():
        return None
    try:
        if archived.suffix == ".json":
            return _difference(json.loads(archived.read_bytes()), json.loads(again.read_bytes()))
        one, other = read_arrow(archived), read_arrow(again)
        same = [name for name in one.column_names if name in other.column_names and one[name].equals(other[name])]
        return _difference(_plain(one.drop_columns(same)), _plain(other.drop_columns(same)))
    except (RecursionError, ValueError, pa.ArrowException) as error:
        return f"cannot be read: {shown(str(error))}"


def _plain(table: pa.Table) -> dict[str, Any]:
    columns = [f"{each.name}: {each.type}" for each in table.schema]
    return {"columns": columns, **{f"column {name}": table[name].to_pylist() for name in table.column_names}}


def _difference(value: Any, again: Any, path: str = "") -> str | None:
    """The first difference of plain data, with its place."""
    at = f"{path}: " if path else ""
    parts: list[tuple[Any, Any, str]] = []
    if isinstance(value, dict) and isinstance(again, dict):
        if value.keys() != again.keys():
            return f"{at}{', '.join(sorted(map(str, value.keys() ^ again.keys())))} is in one of the two"
        parts = [(value[key], again[key], f"{path}.{key}".lstrip(".")) for key in value]
    elif isinstance(value, list) and isinstance(again, list):
        if len(value) != len(again):
            return f"{at}{len(value)} entries; recomputed, {len(again)}"
        parts = [(*pair, f"{path}[{number}]") for number, pair in enumerate(zip(value, again, strict=True))]
    if parts or _is_same(value, again):
        return next((found for part in parts if (found := _difference(*part))), None)
    return f"{at}{shown(str(value))}; recomputed, {shown(str(again))}"


def _is_same(value: Any, again: Any) -> bool:
    if isinstance(value, float) and isinstance(again, float):
        return math.isclose(value, again, rel_tol=_TOLERANCE) or (math.isnan(value) and math.isnan(again))
    return bool(value == again) and type(value) is type(again)


def recompute(folder: Path, manifest: Manifest, code: Path, work: Path) -> str | None:
    """Recomputes tables, decisions and answers in `work/results`; returns the reason of a failure, or None.

    `folder` has the archive's content, `code` is the project's folder whose workflow computes. A study file that cannot
    be used is a `ServelabError`.
    """
    _prepare(folder, manifest, code, work)
    kind, study = manifest.search.split("/")
    configured = {"studies": [], "recorded": [], kind: [study]}
    (work / "config/config.yaml").write_text(json.dumps(configured) + "\n")  # JSON is YAML
    targets = [name for each in made_of(manifest.search) if _is_computed(name := f"{manifest.folder}{each}")]
    targets += [name for name in _recomputed(folder, manifest) if name.split("/")[3] == _ANSWERS]
    text = "\n".join(path.read_text(encoding="utf-8") for path in sorted((code / "rules").glob("*.smk")))
    rules = sorted(set(re.findall(r"^(?:rule|checkpoint) (\w+):", text, re.MULTILINE)) - set(_NEVER))
    command = [sys.executable, "-m", "snakemake", "--profile", "profiles/default", "--quiet", "--nolock", *targets]
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("SNAKEMAKE_", "SERVELAB_"))}
    programs = f"{Path(sys.executable).parent}:{os.environ.get('PATH', '')}"
    done = subprocess.run(
        [*command, "--allowed-rules", *rules],
        cwd=work,
        env=kept | {"PATH": programs, "PYTHONPATH": str(work / "scripts"), "HOME": str(work)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode == 0:
        return None
    lines = [line.strip() for line in done.stdout.splitlines() if line.strip()]
    errors = [line for line in lines if re.match(r"(error|\w*(Error|Exception))\b", line)]
    return " / ".join((errors or lines)[-_LINES:])


def _prepare(folder: Path, manifest: Manifest, code: Path, work: Path) -> None:
    """A project with the code in `code` and the archive's configuration and raw records."""
    work.mkdir()
    for name in _CODE:
        (work / name).symlink_to((code / name).resolve())
    for name in _CONFIGURATION:
        shutil.copytree(folder / WORKFLOW / name, work / name)
    shutil.copytree(folder / RESULTS, work / RESULTS)
    for path in (work / manifest.folder).iterdir():
        if path.name != _ANSWERS:
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    if manifest.is_live:
        (work / manifest.folder / _ANSWERS / _current_answer(work, manifest)).unlink(missing_ok=True)


def _differences(folder: Path, manifest: Manifest, work: Path) -> Iterator[tuple[str, str | None]]:
    """Each table and JSON file of the study, in the archive or recomputed, by name, and how it differs, or None."""
    names = [path.relative_to(work).as_posix() for path in (work / manifest.folder).rglob("*")]
    again = {name for name in names if _is_computed(name)} - _earlier_answers(folder, manifest)
    archived = _recomputed(folder, manifest)
    for name in sorted(archived | again):
        if name not in again:
            yield name, "no rule of the workflow makes it from the archived records"
        elif name not in archived:
            yield name, "is made from the records, but the archive lacks it"
        else:
            yield name, difference(folder / name, work / name)


def _recomputed(folder: Path, manifest: Manifest) -> set[str]:
    """Members that follow from raw records: tables and JSON files of the study, without earlier versions' answers."""
    found = {name for name in manifest.members if name.startswith(manifest.folder) and _is_computed(name)}
    return found - _earlier_answers(folder, manifest)


def _is_computed(name: str) -> bool:
    """Whether a file of a study is a table or JSON; pages and what they show are not compared."""
    parts = name.split("/")
    return name.endswith((".json", ".parquet")) and not any(part in _OF_PAGES or part.startswith(".") for part in parts)


def _earlier_answers(folder: Path, manifest: Manifest) -> set[str]:
    """Members that hold a live study's answers under earlier versions of its engines, which nothing recomputes."""
    if not manifest.is_live:
        return set()
    prefix = f"{manifest.folder}{_ANSWERS}/"
    current = prefix + _current_answer(folder / WORKFLOW, manifest)
    return {name for name in manifest.members if name.startswith(prefix) and name != current}


def _current_answer(project: Path, manifest: Manifest) -> str:
    versions = study_versions(load_project(project / f"config/{manifest.search}.yaml", project))
    return f"{versions_id(versions)}.json"


def _other_versions(folder: Path, code: Path) -> str:
    """How the code or the lock that recomputes differs from the archive's; empty if they are the same."""
    workflow = folder / WORKFLOW
    files = [path for name in _CODE for path in [workflow / name, *(workflow / name).rglob("*")]]
    files = [path for path in [*files, workflow / "envs/workflow.lock.txt"] if path.is_file()]
    pairs = {path.relative_to(workflow): path for path in files}
    other = [
        name
        for name, path in pairs.items()
        if not (code / name).is_file() or (code / name).read_bytes() != path.read_bytes()
    ]
    return f"; {len(other)} files of the workflow differ, such as {min(other)}" if other else ""


_FOREIGN = (AttributeError, LookupError, OSError, RuntimeError, TypeError, ValueError)
"""Errors that records raise which no workflow has written."""


@dataclass
class Verification:
    """The result of a verification."""

    manifest: Manifest
    holds: list[str] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    """One line per fault, beginning with the file."""
    incomparable: list[str] = field(default_factory=list)
    """Those of the faults that say nothing, because other code or other packages made the file."""


def verify_archive(path: Path, code: Path) -> Verification:
    """Verifies an archive without a network; the workflow in the folder `code` recomputes the tables.

    An unreadable archive is a `ServelabError`.
    """
    with open_archive(path) as archive, reading(str(path)):
        manifest = read_manifest(archive)
        found = Verification(manifest, faults=list(member_faults(archive, manifest)))
        if found.faults:
            found.faults.append(f"{path}: nothing was recomputed, because its files do not match the manifest")
            return found
        found.holds.append(f"{len(manifest.members)} files by their sha256")
        with (
            tempfile.TemporaryDirectory(prefix="servelab-verify-") as scratch,
            unpacked(archive, Path(scratch), archive.members) as folder,
        ):
            work = Path(scratch) / "again"
            try:
                found.faults += _faults_of_records(folder, manifest)
                found.holds += [] if found.faults else ["runs and logs by the hash that names them"]
                _recompute(folder, manifest, code, work, found)
            except ServelabError as error:
                found.faults.append(f"{manifest.folder}: cannot be recomputed: {error}")
            except _FOREIGN as error:
                why = f"records not written by this workflow: {type(error).__name__}: {error}"
                found.faults.append(f"{manifest.folder}: {why}")
            for lines in (found.faults, found.incomparable):
                lines[:] = [line.replace(f"{folder}/", "").replace(f"{work}/", "") for line in lines]
    return found


def member_faults(archive: Archive, manifest: Manifest) -> Iterator[str]:
    """One line per member that is missing, not in the manifest, or differs from it; reads all members."""
    for name in sorted(manifest.members.keys() - archive.members.keys()):
        yield f"{shown(name)}: is in the manifest, but not in the archive"
    for name in archive.members:
        if name == MANIFEST:
            continue
        if (listed := manifest.members.get(name)) is None:
            yield f"{name}: is not in the manifest"
            continue
        digest, size = hashlib.sha256(), 0
        try:
            for block in archive.blocks(name):
                digest.update(block)
                size += len(block)
        except ServelabError as error:
            yield str(error).removeprefix(f"{archive.path}: ")
            continue
        if (digest.hexdigest(), size) != (listed.sha256, listed.size_bytes):
            yield f"{name}: its sha256 is {digest.hexdigest()}, the manifest says {listed.sha256}"


def _faults_of_records(folder: Path, manifest: Manifest) -> Iterator[str]:
    """One line per raw record that does not match its name or the study's own files."""
    results, search = folder / RESULTS, manifest.search
    stages = [path.name for path in (results / search / "stages").glob("*")]
    own = [path for path in study_files(results, search, stages) if path.suffix in (".json", ".parquet")]
    named = referenced_runs(path for path in own if "charts" not in path.parts)
    workloads = sorted(path.name for path in (results / "workloads").glob("*"))
    yield from record_faults(results, named if manifest.is_live else [], workloads)
    if not manifest.is_live:
        plans = [path for path in own if path.name == "plan.json"]
        for logs in (results / search / "logs", folder / WORKFLOW / "config" / search / "logs"):
            yield from log_faults(plans, logs)
        planned = referenced_runs(plans)
        unplanned = {run_id: file for run_id, file in named.items() if run_id not in planned}
        yield from (f"{file}: names run {run_id}, which is in no plan" for run_id, file in unplanned.items())


def _recompute(folder: Path, manifest: Manifest, code: Path, work: Path, found: Verification) -> None:
    """Recomputes tables, decisions and answers in the folder `work`, and lists what differs."""
    if why := recompute(folder, manifest, code, work):
        found.faults.append(f"{manifest.folder}: cannot be recomputed from the raw records: {why}")
        return
    compared = dict(_differences(folder, manifest, work))
    different = {name: differs for name, differs in compared.items() if differs}
    found.holds.append(
        f"{len(compared) - len(different)} tables, decisions and answers recomputed from the raw records"
    )
    versions = _other_versions(folder, code) if different else ""
    lines = [f"{name}: {differs}{versions}" for name, differs in different.items()]
    found.faults += lines
    found.incomparable += lines if versions else []
