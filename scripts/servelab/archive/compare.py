"""Compares two archives: identity, versions, hardware, and figures with their significance."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from servelab.archive.layout import RESULTS, WORKFLOW, Manifest
from servelab.archive.unpack import open_archive, unpacked
from servelab.archive.untrusted import reading
from servelab.archive.verify import read_manifest
from servelab.core.identity import file_sha256
from servelab.report.compare.comparison_table import SAME, compare_studies
from servelab.report.compare.sides import StudySide, read_side

_PINNED = re.compile(r"^([A-Za-z0-9][\w.-]*)==([^\s;\\]+)", re.MULTILINE)
_SHOWN = 20


@dataclass(frozen=True)
class _Side:
    """An archive, unpacked."""

    sha256: str
    manifest: Manifest
    folder: Path
    study: StudySide

    @property
    def runs(self) -> set[str]:
        """Runs of the study, by their names."""
        return {run.run_id for run in self.study.runs}


def compare_archives(a: Path, b: Path) -> Iterator[str]:
    """Lines for a terminal: what the two archives are, and what changed from `a` to `b`."""
    with reading(f"{a} or {b}"), ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="servelab-compare-")))
        one, other = (_side(path, name, scratch, stack) for path, name in ((a, "A"), (b, "B")))
        for title, lines in (
            ("Identity", _identity(one, other)),
            ("Versions", _versions(one, other)),
            ("Hardware", _hardware(one, other)),
            ("Figures", _figures(one, other)),
        ):
            yield title
            yield from (f"    {line}" for line in lines)


def _side(path: Path, name: str, scratch: Path, stack: ExitStack) -> _Side:
    archive = stack.enter_context(open_archive(path))
    manifest = read_manifest(archive)
    (scratch / name).mkdir()
    folder = stack.enter_context(unpacked(archive, scratch / name))
    return _Side(file_sha256(path), manifest, folder, read_side(folder / RESULTS / manifest.searches[0], name))


def _identity(a: _Side, b: _Side) -> Iterator[str]:
    for name, side in (("A", a), ("B", b)):
        manifest = side.manifest
        yield f"{name}: {manifest.searches[0]} of {manifest.date}, {len(side.runs)} runs, sha256 {side.sha256}"
    if a.sha256 == b.sha256:
        yield "the two are the same file"
        return
    both, alone = len(a.runs & b.runs), [len(a.runs - b.runs), len(b.runs - a.runs)]
    yield f"runs: {both} in both, {alone[0]} only in A, {alone[1]} only in B"
    yield _changed("workflow", _commit(a.manifest), _commit(b.manifest))
    yield _changed("study file", *(side.manifest.members[_study_file(side.manifest)].sha256[:12] for side in (a, b)))


def _commit(manifest: Manifest) -> str:
    return f"{manifest.commit or 'no checkout'}{' with changes' if manifest.dirty else ''}"


def _study_file(manifest: Manifest) -> str:
    return f"{WORKFLOW}/config/{manifest.searches[0]}" + (".yaml" if manifest.is_live else "/study.yaml")


def _versions(a: _Side, b: _Side) -> Iterator[str]:
    """Engines, load client, and the packages of the workflow's own environment."""
    sides = []
    for side in (a, b):
        sides.append({alias: str(engine["version"]) for alias, engine in side.study.study.engines.items()})
    for alias in dict.fromkeys([*sides[0], *sides[1]]):
        yield _changed(f"engine {alias}", *(side.get(alias, "not in the study") for side in sides))
    packages = [_packages(side) for side in (a, b)]
    changed = sorted(
        name for name in packages[0].keys() | packages[1].keys() if packages[0].get(name) != packages[1].get(name)
    )
    if not changed:
        yield f"packages of the workflow's environment: the same {len(packages[0])}"
    for name in changed[:_SHOWN]:
        yield _changed(f"package {name}", *(side.get(name, "none") for side in packages))
    if len(changed) > _SHOWN:
        yield f"and {len(changed) - _SHOWN} more packages"


def _packages(side: _Side) -> dict[str, str]:
    lock = side.folder / WORKFLOW / "envs/workflow.lock.txt"
    return dict(_PINNED.findall(lock.read_text(encoding="utf-8"))) if lock.exists() else {}


def _hardware(a: _Side, b: _Side) -> Iterator[str]:
    hardware = [side.study.study.hardware for side in (a, b)]
    yield _changed("accelerator", *(f"{each.accelerator}, {each.per_node} in a node" for each in hardware))
    machines = [_machines(side) for side in (a, b)]
    for name in dict.fromkeys([*machines[0], *machines[1]]):
        yield _changed(name.replace("_", " "), *(side.get(name, "unknown") for side in machines))


def _machines(side: _Side) -> dict[str, str]:
    """Properties of the machines that could change a measurement, over all runs."""
    found: dict[str, dict[str, None]] = {}
    for run in side.study.runs:
        for name, value in run.machine.items():
            found.setdefault(name, {})[value] = None
    return {name: " / ".join(values) for name, values in found.items()}


def _figures(a: _Side, b: _Side) -> Iterator[str]:
    """The objective of every configuration and of each study's answer, and whether a change is beyond noise."""
    rows = [row for row in compare_studies(a.study, b.study).table.to_pylist() if row["is_objective"]]
    yield f"{a.study.study.objective.metric}, by A's objective; changes are from A to B, with 95 % intervals"
    for row in rows:
        who = row["candidate_a"] or row["candidate_b"]
        if row["candidate_b"] not in (None, who):
            who += f" → {row['candidate_b']}"
        what = "recommended: " if row["kind"] == "answer" else ""
        why = "" if row["verdict"] == SAME else f": {row['why']}"
        yield f"{what}{who} on {row['workload']}: {row['verdict']}{why}"


def _changed(what: str, a: str, b: str) -> str:
    return f"{what}: {a}, the same" if a == b else f"{what}: {a} → {b}"
