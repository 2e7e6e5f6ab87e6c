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
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from servelab.archive.contents import made_of, study_files
from servelab.archive.layout import LIVE, MANIFEST, RESULTS, WORKFLOW, Manifest, parse_manifest
from servelab.archive.records import log_faults, record_faults, referenced_runs
from servelab.archive.unpack import Archive, one_line, open_archive, reading, shown, unpacked
from servelab.core.errors import ServelabError
from servelab.metrics.tables.io import read_arrow
from servelab.search.project import load_project
from servelab.search.versions import study_versions, versions_id

_TOLERANCE = 1e-9
"""Relative, of numbers with a fraction."""
_SHOWN = 100


def difference(archived: Path, again: Path) -> str | None:
    """The first difference of a table or JSON file of an archive from the one made again; None if they are the same."""
    if archived.read_bytes() == again.read_bytes():
        return None
    try:
        if archived.suffix == ".json":
            return _of_json(json.loads(archived.read_bytes()), json.loads(again.read_bytes()))
        return _of_tables(read_arrow(archived), read_arrow(again))
    except (RecursionError, ValueError, pa.ArrowException) as error:
        return f"cannot be read: {_cut(str(error))}"


def _of_tables(table: pa.Table, again: pa.Table) -> str | None:
    if table.column_names != again.column_names:
        other = [name for name in (*table.column_names, *again.column_names) if not _in_both(name, table, again)]
        return f"columns {', '.join(other) or 'are in another order'}"
    if not table.schema.equals(again.schema):  # descriptions of columns are no result
        return "the types of its columns"
    pairs = zip(table.column_names, table.columns, again.columns, strict=True)
    changed = ((name, one, other) for name, one, other in pairs if not one.equals(other))
    found = (_of_json(one.to_pylist(), other.to_pylist(), f"column {name}") for name, one, other in changed)
    return next(filter(None, found), None)


def _in_both(name: str, table: pa.Table, again: pa.Table) -> bool:
    return name in table.column_names and name in again.column_names


def _of_json(value: Any, again: Any, path: str = "") -> str | None:
    at = f"{path}: " if path else ""
    if isinstance(value, dict) and isinstance(again, dict):
        if value.keys() != again.keys():
            return f"{at}{', '.join(sorted(map(str, value.keys() ^ again.keys())))} is in one of the two"
        parts = [(value[key], again[key], f"{path}.{key}".lstrip(".")) for key in value]
        return next((found for part in parts if (found := _of_json(*part))), None)
    if isinstance(value, list) and isinstance(again, list):
        if len(value) != len(again):
            return f"{at}{len(value)} entries; recomputed, {len(again)}"
        parts = [(*pair, f"{path}[{number}]") for number, pair in enumerate(zip(value, again, strict=True))]
        return next((found for part in parts if (found := _of_json(*part))), None)
    same = value == again and type(value) is type(again)
    if isinstance(value, float) and isinstance(again, float):
        same = math.isclose(value, again, rel_tol=_TOLERANCE) or (math.isnan(value) and math.isnan(again))
    return None if same else f"{at}{_cut(value)}; recomputed, {_cut(again)}"


def _cut(value: Any) -> str:
    text = one_line(value if isinstance(value, str) else repr(value))
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


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


def recompute(unpacked: Path, manifest: Manifest, code: Path, work: Path) -> str | None:
    """Recomputes tables, decisions and answers in `work/results`; returns the reason of a failure, or None.

    `unpacked` is the archive's content, `code` the project's folder whose workflow computes. A study file that cannot
    be used is a `ServelabError`.
    """
    _prepare(unpacked, manifest, code, work)
    kinds = {
        kind: [search.split("/")[1] for search in manifest.searches if search.startswith(f"{kind}/")]
        for kind in ("studies", "recorded")
    }
    (work / "config/config.yaml").write_text(json.dumps(kinds) + "\n")  # JSON is YAML
    targets = [f"{RESULTS}/{search}/{name}" for search in manifest.searches for name in made_of(search)]
    targets = [name for name in targets if _is_computed(name)]
    targets += [name for name in _recomputed(unpacked, manifest) if name.split("/")[3] == _ANSWERS]
    text = "\n".join(path.read_text(encoding="utf-8") for path in sorted((code / "rules").glob("*.smk")))
    rules = sorted(set(re.findall(r"^(?:rule|checkpoint) (\w+):", text, re.MULTILINE)) - set(_NEVER))
    command = [sys.executable, "-m", "snakemake", "--profile", "profiles/default", "--quiet", "--nolock", *targets]
    done = subprocess.run(
        [*command, "--allowed-rules", *rules],
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
    """Each table and JSON file of the studies, in the archive or recomputed, by name, and how it differs, or None."""
    earlier = _earlier_answers(unpacked, manifest)
    paths = [path for search in manifest.searches for path in (work / RESULTS / search).rglob("*")]
    again = {name for path in paths if _is_computed(name := path.relative_to(work).as_posix())} - earlier
    archived = set(_recomputed(unpacked, manifest))
    for name in sorted(archived | again):
        if name not in again:
            yield name, "no rule of the workflow makes it from the archived records"
        elif name not in archived:
            yield name, "is made from the records, but the archive lacks it"
        else:
            yield name, difference(unpacked / name, work / name)


def _recomputed(unpacked: Path, manifest: Manifest) -> list[str]:
    """Members that follow from raw records: tables and JSON files of the studies, without earlier versions' answers."""
    folders = tuple(f"{RESULTS}/{search}/" for search in manifest.searches)
    found = {name for name in manifest.members if name.startswith(folders) and _is_computed(name)}
    return sorted(found - _earlier_answers(unpacked, manifest))


def _is_computed(name: str) -> bool:
    """Whether a file of a study is a table or JSON; pages and what they show are not compared."""
    parts = name.split("/")
    return name.endswith((".json", ".parquet")) and not any(part in _OF_PAGES or part.startswith(".") for part in parts)


def _earlier_answers(unpacked: Path, manifest: Manifest) -> set[str]:
    """Members that hold a live study's answers under earlier versions of its engines, which nothing recomputes."""
    found = set()
    for search in manifest.searches:
        if search.startswith("studies/"):
            current = _current_answer(unpacked / WORKFLOW, search)
            prefix = f"{RESULTS}/{search}/{_ANSWERS}/"
            found |= {name for name in manifest.members if name.startswith(prefix) and name != f"{prefix}{current}"}
    return found


def other_versions(unpacked: Path, code: Path) -> str:
    """How the code or the lock that recomputes differs from the archive's; empty if they are the same."""
    workflow = unpacked / WORKFLOW
    paths = [path for name in _CODE for path in [workflow / name, *(workflow / name).rglob("*")] if path.is_file()]
    names = [path.relative_to(workflow) for path in [*paths, workflow / "envs/workflow.lock.txt"] if path.is_file()]
    other = [name for name in names if not (code / name).is_file() or _differs(code / name, workflow / name)]
    return f"{len(other)} files of the workflow differ, such as {min(other)}" if other else ""


def _differs(one: Path, other: Path) -> bool:
    return one.read_bytes() != other.read_bytes()


def _current_answer(project: Path, search: str) -> str:
    versions = study_versions(load_project(project / f"config/{search}.yaml", project))
    return f"{versions_id(versions)}.json"


def _prepare(unpacked: Path, manifest: Manifest, code: Path, work: Path) -> None:
    """A project with the code in `code` and the archive's configuration and raw records."""
    for name in _CODE:
        (work / name).symlink_to((code / name).resolve())
    for name in _CONFIGURATION:
        shutil.copytree(unpacked / WORKFLOW / name, work / name)
    shutil.copytree(unpacked / RESULTS, work / RESULTS, ignore=shutil.ignore_patterns("logs"))
    for search in manifest.searches:
        folder = work / RESULTS / search
        for path in folder.iterdir():
            if path.name != _ANSWERS:
                shutil.rmtree(path) if path.is_dir() else path.unlink()
        if search.startswith("studies/"):
            (folder / _ANSWERS / _current_answer(work, search)).unlink(missing_ok=True)


def _environment(work: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("SNAKEMAKE_", "SERVELAB_"))}
    programs = f"{Path(sys.executable).parent}:{os.environ.get('PATH', '')}"
    return kept | {"PATH": programs, "PYTHONPATH": str(work / "scripts"), "HOME": str(work)}


def _error_lines(output: str) -> Iterable[str]:
    """The lines of a failed workflow that explain the failure."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    errors = [line for line in lines if re.match(r"(error|\w*(Error|Exception))\b", line)]
    return (errors or lines)[-_LINES:]


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
        found = Verification(manifest)
        found.faults += member_faults(archive, manifest)
        if found.faults:
            found.faults.append(f"{path}: nothing was recomputed, because its files do not match the manifest")
            return found
        found.holds.append(f"{len(manifest.members)} files by their sha256")
        with (
            tempfile.TemporaryDirectory(prefix="servelab-verify-") as scratch,
            unpacked(archive, Path(scratch)) as folder,
        ):
            work = Path(scratch) / "again"
            work.mkdir()
            try:
                found.faults += _faults_of_records(folder, manifest)
            except _FOREIGN as error:
                found.faults.append(f"{RESULTS}: records not written by this workflow: {type(error).__name__}: {error}")
            found.holds += [] if found.faults else ["runs and logs by the hash that names them"]
            _recompute(folder, manifest, code, work, found)
            for lines in (found.faults, found.incomparable):
                lines[:] = [line.replace(f"{folder}/", "").replace(f"{work}/", "") for line in lines]
    return found


def read_manifest(archive: Archive) -> Manifest:
    """The manifest of an open archive; `ServelabError` if it is missing or broken."""
    return parse_manifest(archive.read(MANIFEST), str(archive.path))


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
            yield f"{name}: {str(error).rpartition(f'{name}: ')[2]}"
            continue
        if (digest.hexdigest(), size) != (listed.sha256, listed.size_bytes):
            yield f"{name}: its sha256 is {digest.hexdigest()}, the manifest says {listed.sha256}"


def _faults_of_records(folder: Path, manifest: Manifest) -> Iterator[str]:
    """One line per raw record that does not match its name, its signature or the study's own files."""
    results = folder / RESULTS
    for search in manifest.searches:
        stages = results / search / "stages"
        names = [path.name for path in stages.iterdir()] if stages.is_dir() else []
        own = [path for path in study_files(results, search, names) if path.suffix in (".json", ".parquet")]
        named = referenced_runs(path for path in own if "charts" not in path.parts)
        if search.startswith(f"{LIVE}/"):
            yield from record_faults(results, named, [])
            continue
        plans = [path for path in own if path.name == "plan.json"]
        for logs in (results / search / "logs", folder / WORKFLOW / "config" / search / "logs"):
            yield from log_faults(plans, logs)
        planned = referenced_runs(plans)
        unplanned = {run_id: file for run_id, file in named.items() if run_id not in planned}
        yield from (f"{file}: names run {run_id}, which is in no plan" for run_id, file in unplanned.items())
    workloads = results / "workloads"
    yield from record_faults(results, [], sorted(path.name for path in workloads.glob("*")))


def _recompute(folder: Path, manifest: Manifest, code: Path, work: Path, found: Verification) -> None:
    """Recomputes tables, decisions and answers in the empty folder `work`, and lists what differs."""
    search = f"{RESULTS}/{manifest.searches[0]}"
    try:
        if why := recompute(folder, manifest, code, work):
            found.faults.append(f"{search}: cannot be recomputed from the raw records: {why}")
            return
        compared = dict(differences(folder, manifest, work))
    except ServelabError as error:
        found.faults.append(f"{search}: cannot be recomputed: {error}")
        return
    except _FOREIGN as error:
        found.faults.append(f"{search}: from records not written by this workflow: {type(error).__name__}: {error}")
        return
    different = {name: differs for name, differs in compared.items() if differs}
    found.holds.append(
        f"{len(compared) - len(different)} tables, decisions and answers recomputed from the raw records"
    )
    why = other_versions(folder, code) if different else ""
    for name, differs in different.items():
        found.faults.append(f"{name}: {differs}{f'; {why}' * bool(why)}")
        found.incomparable += found.faults[-1:] if why else []
