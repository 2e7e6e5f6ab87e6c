"""Describes an archive again, as a build would: which members it must have, and the files that describe it.

It reads the recomputed study and the archived raw records, never the archive's own descriptions.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from servelab.archive.build import json_bytes, readme, recipe
from servelab.archive.contents import LIVE, left_out_again, study_contents
from servelab.archive.crate import crate_metadata
from servelab.archive.job_logs import LOGS, may_be_empty
from servelab.archive.layout import (
    CRATE,
    DIFF,
    MANIFEST,
    PROVENANCE,
    README,
    RECIPE,
    RESULTS,
    WORKFLOW,
    Manifest,
    Member,
)
from servelab.archive.recompute import of_text
from servelab.archive.redaction import MARKS_OF_ARCHIVES, has_mark
from servelab.archive.workflow_source import Source
from servelab.core.errors import ServelabError
from servelab.core.seal import IMPORTED, STATUS
from servelab.report.docs.output_files import FILES
from servelab.study.plan import Plan

_DESCRIBED = {"datasets": "dataset.json", "models": "model.json", "environments": "environment.json"}
_FOLDERS = {"environments": "envs"}
_LOG = "server.log"
"""Every run has one; a server that prints nothing leaves it empty."""
_RAW = (f"{RESULTS}/runs/", f"{RESULTS}/workloads/", f"{PROVENANCE}/")


@dataclass(frozen=True)
class Rebuilt:
    """What a build would make of an archive's raw records."""

    members: set[str]
    """Names of the members that it must have, without the manifest."""
    made: dict[str, bytes]
    """Content of the files that describe it, and of the specifications of planned runs."""
    manifest: Manifest


def rebuild(folder: Path, manifest: Manifest, work: Path, day: str | None) -> Rebuilt:
    """The archive made again from an unpacked one in `folder` and its recomputed results in `work`.

    `day` is that of the workflow's commit, if it is known. `ServelabError` names a record that is missing or changed.
    """
    for name in (README, *(f"{RESULTS}/{search}/report.html" for search in manifest.searches)):
        if name not in manifest.members:
            raise ServelabError(f"{name}: is not in the archive")
    _lay_out(folder, manifest, work)
    workflow = [name.removeprefix(f"{WORKFLOW}/") for name in manifest.members if name.startswith(f"{WORKFLOW}/")]
    source = Source(workflow, manifest.commit, manifest.dirty, b"", day or manifest.date)
    contents = study_contents(work, work / RESULTS, list(manifest.searches), source)
    made = {README: readme(contents, manifest.commit).encode()}
    made |= {f"{RECIPE}/{name}": text.encode() for name, text in recipe(work, contents).items()}
    members = {name: _described(folder, name, member, manifest) for name, member in sorted(manifest.members.items())}
    again = manifest.model_copy(
        update={
            "study": contents.study,
            "title": contents.title,
            "date": contents.date,
            "omitted": left_out_again(manifest.omitted, contents.omitted),
            "members": {name: member for name, member in members.items() if name != CRATE},
        }
    )
    made[CRATE] = json_bytes(crate_metadata(again, contents))
    again = again.model_copy(update={"members": members})
    made |= _specifications(work, manifest)
    return Rebuilt({*contents.files, *made, *({DIFF} & manifest.members.keys())}, made, again)


def member_differences(folder: Path, manifest: Manifest, rebuilt: Rebuilt) -> Iterator[tuple[str, str | None]]:
    """Each member that was described again, and how it differs, or None; members too many or too few."""
    members = manifest.members.keys()
    for name in sorted(rebuilt.members - members):
        yield name, "belongs into the archive, but is not in it"
    for name in sorted(members - rebuilt.members):
        yield name, "belongs to nothing that the archive must have"
    content = {**rebuilt.made, MANIFEST: json_bytes(rebuilt.manifest.model_dump(mode="json"))}
    for name in sorted((members | {MANIFEST}) & content.keys()):
        yield name, _difference((folder / name).read_bytes(), content[name])


def record_differences(folder: Path, manifest: Manifest) -> Iterator[tuple[str, str]]:
    """Raw records that no run leaves, that are missing or empty, or whose JSON is not as the workflow writes it."""
    folders = {"/".join(name.split("/")[:3]) for name in manifest.members if name.startswith(f"{RESULTS}/runs/")}
    for log in sorted(f"{folder}/{_LOG}" for folder in folders):
        if log not in manifest.members:
            yield log, "is not in the archive"
    for name, member in manifest.members.items():
        if name.startswith(f"{RESULTS}/runs/") and not any(
            file.matches(name.removeprefix(f"{RESULTS}/")) for file in FILES
        ):
            yield name, "is no file that a run leaves"
        elif name.startswith((*_RAW, LOGS)) and not (
            member.size_bytes or name.endswith(f"/{_LOG}") or may_be_empty(name)
        ):
            yield name, "is empty"
        elif name.startswith(_RAW) and name.endswith(".json"):
            content = (folder / name).read_bytes()
            try:
                found = _difference(content, json_text(json.loads(content)))
            except (RecursionError, ValueError) as error:
                found = str(error)
            if found:
                yield name, f"is not JSON as the workflow writes it: {found}"


def json_text(value: object) -> bytes:
    """A JSON file as the workflow writes it."""
    return json.dumps(value, indent=2, ensure_ascii=False).encode() + b"\n"


def _difference(content: bytes, again: bytes) -> str | None:
    try:
        return None if content == again else of_text(content.decode(), again.decode()) or "its bytes"
    except UnicodeDecodeError as error:
        return f"cannot be read: {error}"


def _described(folder: Path, name: str, member: Member, manifest: Manifest) -> Member:
    """The manifest's entry of a member, which is called redacted if it is, as far as that shows."""
    if not name.startswith(f"{RESULTS}/runs/"):
        redacted = _may_be_redacted(folder / name, name, said=member.redacted)
    elif _of_run(name, IMPORTED) in manifest.members:  # it was perhaps redacted where it was archived first
        redacted = member.redacted and has_mark(folder / name)
    else:
        redacted = _is_redacted(folder, name, said=member.redacted)
    return member.model_copy(update={"redacted": redacted})


def _is_redacted(folder: Path, name: str, *, said: bool) -> bool:
    """Whether a run's file was redacted: its seal has the digest of each such file as it was measured."""
    status = json.loads((folder / _of_run(name, STATUS)).read_bytes())
    files = (status.get("seal") or {}).get("files", {})
    if (file := name.split("/", 3)[-1]) in files:
        return files[file].get("measured_sha256") is not None
    resealed = file == STATUS and any(each.get("measured_sha256") is not None for each in files.values())
    return resealed or _shows(folder / name, said=said)


def _may_be_redacted(path: Path, name: str, *, said: bool) -> bool:
    """Whether what is said of another member may be true: only a redaction leaves its marks in the log of a job."""
    is_code = name.startswith(WORKFLOW) and not name.startswith(f"{WORKFLOW}/config/")
    if is_code or name in (CRATE, MANIFEST):
        return False
    return _shows(path, said=said) if name.startswith(LOGS) else said and has_mark(path)


def _shows(path: Path, *, said: bool) -> bool:
    """Whether a file that is redacted by its archive only, if at all, shows that; `said` if it is called redacted."""
    return has_mark(path) if said else has_mark(path, MARKS_OF_ARCHIVES)


def _of_run(name: str, file: str) -> str:
    """The file of that name of the run that a member is of."""
    return "/".join([*name.split("/")[:3], file])


def _lay_out(folder: Path, manifest: Manifest, work: Path) -> None:
    """Puts what cannot be recomputed where a build looks for it: descriptions, and the logs of the archive's jobs."""
    for name in manifest.members:
        kind, _, described = name.removeprefix(f"{PROVENANCE}/").partition("/")
        if name.startswith(f"{PROVENANCE}/") and kind in _DESCRIBED:
            place = work / RESULTS / _FOLDERS.get(kind, kind) / described.removesuffix(".json")
            place.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(folder / name, place / _DESCRIBED[kind])
    shutil.rmtree(work / RESULTS / "logs", ignore_errors=True)
    if (folder / RESULTS / "logs").is_dir():
        shutil.copytree(folder / RESULTS / "logs", work / RESULTS / "logs")


def _specifications(work: Path, manifest: Manifest) -> dict[str, bytes]:
    """`spec.json` of each run of the recomputed plans."""
    found = {}
    for search in manifest.searches:
        if not search.startswith(f"{LIVE}/"):
            continue
        for path in sorted((work / RESULTS / search / "stages").glob("*/plan.json")):
            for run in [run for candidate in Plan.read(path).candidates for run in candidate.measured_runs]:
                found[f"{RESULTS}/runs/{run.run_id}/spec.json"] = json_text(run.spec.model_dump(mode="json"))
    return found
