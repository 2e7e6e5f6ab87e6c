"""Recomputes a study's tables, decisions and report from its raw records, with the workflow's own rules.

It works in its own folder, without a network and without rules that measure or download, whose outputs must exist.
"""

from __future__ import annotations

import base64
import json
import math
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator
from decimal import Decimal
from importlib.metadata import PackageNotFoundError, version
from itertools import zip_longest
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from servelab.archive.layout import RESULTS, WORKFLOW, Manifest
from servelab.metrics.tables.io import read_arrow
from servelab.search.kept_answers import study_versions, versions_id
from servelab.search.project import load_project

TOLERANCE = 1e-9
"""Relative."""
_FRACTION = re.compile(r"(?<![\w.+-])[+-]?\d+(?:\.\d+(?:[eE][+-]?\d{1,2})?|[eE][+-]?\d{1,2})(?![\w.])")
"""A number with a fraction or an exponent in a text."""
_UNROUNDED = 14
"""Characters of a number that was not rounded for a reader, at least."""
_LAST_BITS = 1e-14
"""Relative: a number that happens to be short is a few units in the last place from its neighbour, as 0.3 is."""
_SHOWN = 100


def difference(archived: Path, again: Path) -> str | None:
    """The first difference of a file of an archive from the one made again; None if they are the same.

    Tables are compared value by value, text character by character except for the last digits of fractions. Pictures
    must have the same bytes.
    """
    before, after = archived.read_bytes(), again.read_bytes()
    if before == after:
        return None
    match archived.suffix:
        case ".parquet":
            try:
                return _of_tables(archived, again)
            except pa.ArrowException as error:
                return f"cannot be read: {_cut(str(error))}"
        case ".png":
            return "is not the picture that is drawn from its data"
    try:
        if archived.suffix == ".json" and (found := _of_json(json.loads(before), json.loads(after))):
            return found
        return of_text(before.decode(), after.decode())
    except (RecursionError, ValueError) as error:  # not UTF-8, or no JSON
        return f"cannot be read: {_cut(str(error))}"


def _of_tables(archived: Path, again: Path) -> str | None:
    tables = [read_arrow(path) for path in (archived, again)]
    names = [table.column_names for table in tables]
    if names[0] != names[1]:
        other = [name for name in [*names[0], *names[1]] if (name in names[0]) != (name in names[1])]
        return f"columns {', '.join(other) or 'are in another order'}"
    if not tables[0].schema.equals(tables[1].schema, check_metadata=True):
        return "the types or the metadata of its columns"
    if tables[0].num_rows != tables[1].num_rows:
        return f"{tables[0].num_rows} rows; recomputed, {tables[1].num_rows}"
    for name in names[0]:
        columns = [table.column(name) for table in tables]
        if columns[0].equals(columns[1]):
            continue
        for row, (value, other_value) in enumerate(zip(*(column.to_pylist() for column in columns), strict=True)):
            if found := _of_json(value, other_value):
                return f"row {row}, column {name}: {found}"
    if not tables[0].equals(tables[1]) and archived.read_bytes() == _written(tables[0], again):
        return None
    return "its values are those recomputed, but its bytes are not"


def _written(table: pa.Table, like: Path) -> bytes:
    """The bytes that the workflow writes for a table whose columns are those of the Parquet file `like`."""
    # reading gives the parts of lists another name than they were written with
    schema = pa.ipc.read_schema(pa.BufferReader(base64.b64decode(pq.read_metadata(like).metadata[b"ARROW:schema"])))
    content = pa.BufferOutputStream()
    pq.write_table(table.cast(schema), content)
    return bytes(content.getvalue())


def _of_json(value: Any, again: Any, path: str = "") -> str | None:
    at = f"{path}: " if path else ""
    if isinstance(value, dict) and isinstance(again, dict):
        if set(value) != set(again):
            other = sorted(set(value) ^ set(again))
            return f"{at}{', '.join(map(str, other))} is in one of the two"
        return next(
            (found for key in value if (found := _of_json(value[key], again[key], f"{path}.{key}".lstrip(".")))), None
        )
    if isinstance(value, list) and isinstance(again, list):
        if len(value) != len(again):
            return f"{at}{len(value)} entries; recomputed, {len(again)}"
        pairs = enumerate(zip(value, again, strict=True))
        return next(
            (found for number, (one, other) in pairs if (found := _of_json(one, other, f"{path}[{number}]"))), None
        )
    if isinstance(value, float) and isinstance(again, float):
        same = _is_close(value, again) or (math.isnan(value) and math.isnan(again))
        return None if same else f"{at}{value}; recomputed, {again}"
    same = value == again and type(value) is type(again)
    return None if same else f"{at}{_cut(value)}; recomputed, {_cut(again)}"


def of_text(text: str, again: str) -> str | None:
    """The first difference of a text from the one made again; None if only last digits of fractions differ."""
    numbers = [_FRACTION.findall(each) for each in (text, again)]
    if _FRACTION.split(text) == _FRACTION.split(again) and all(map(_is_last_digit, *numbers)):
        return None
    lines = zip_longest(text.split("\n"), again.split("\n"), fillvalue="(no line)")
    for number, (one, other) in enumerate(lines, 1):
        if one != other:
            start = next(
                (at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other))
            )
            start = max(0, start - 20)
            return f"line {number}: {_cut(one[start:])}; recomputed, {_cut(other[start:])}"
    return None


def _is_last_digit(number: str, again: str) -> bool:
    """Whether two written numbers are the same but for the last digits of a figure that was not rounded."""
    if number == again:
        return True
    if not (_is_as_written(number) and _is_as_written(again)):
        return False
    tolerance = TOLERANCE if min(len(number), len(again)) >= _UNROUNDED else _LAST_BITS
    return math.isclose(float(number), float(again), rel_tol=tolerance)


def _is_as_written(number: str) -> bool:
    """Whether a number is written as Python or JavaScript write it, which leaves no choice of sign, zeros or digits."""
    text = repr(float(number))
    return number in (text, text.replace("e-0", "e-"), f"{Decimal(text):f}")


def _is_close(value: float, again: float) -> bool:
    return math.isclose(value, again, rel_tol=TOLERANCE)


def _cut(value: Any) -> str:
    text = repr(value) if not isinstance(value, str) else value
    text = "".join(c if c.isprintable() else f"\\x{ord(c):02x}" for c in text)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


CODE = ("Snakefile", "rules", "scripts", "profiles")
CONFIGURATION = ("config", "envs")
NEVER = (
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
KEPT = "answers"
"""Part of a study's folder that cannot be recomputed as a whole: it also has the answers under earlier versions."""
_LINES, _REASONS = 12, 3
_PINNED = re.compile(r"^([A-Za-z0-9][\w.-]*)==([^\s;\\]+)", re.MULTILINE)


def recompute(unpacked: Path, manifest: Manifest, code: Path, work: Path) -> str | None:
    """Recomputes everything in `work/results`; returns the reason of a failure, or None.

    `unpacked` is the archive's content, `code` the project's folder whose workflow computes. A study file that cannot
    be used is a `ServelabError`.
    """
    _prepare(unpacked, manifest, code, work)
    kinds = {
        kind: [search.split("/")[1] for search in manifest.searches if search.startswith(f"{kind}/")]
        for kind in ("studies", "recorded")
    }
    (work / "config/config.yaml").write_text(json.dumps(kinds) + "\n")  # JSON is YAML
    targets = [
        f"{RESULTS}/{search}/{name}" for search in manifest.searches for name in ("report.html", "recommended.json")
    ]
    rules = sorted(set(re.findall(r"^(?:rule|checkpoint) (\w+):", _rules_text(code), re.MULTILINE)) - set(NEVER))
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "snakemake",
            "--profile",
            "profiles/default",
            "--quiet",
            "--nolock",
            *targets,
            "--allowed-rules",
            *rules,
        ],
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
    """Each file that is in the archive or was recomputed, by its name in the archive, and how it differs, or None.

    Answers under earlier versions are left out.
    """
    earlier = earlier_answers(unpacked, manifest)
    for search in manifest.searches:
        prefix = f"{RESULTS}/{search}/"
        archived = {name for name in manifest.members if name.startswith(prefix)} - earlier
        again = {
            path.relative_to(work).as_posix()
            for path in (work / prefix).rglob("*")
            if path.is_file() and not _hidden(path, work)
        }
        for name in sorted(archived | (again - earlier)):
            if name not in again:
                yield name, "no rule of the workflow makes it from the archived records"
            elif name not in archived:
                yield name, "is made from the records, but the archive lacks it"
            else:
                yield name, difference(unpacked / name, work / name)


def earlier_answers(unpacked: Path, manifest: Manifest) -> set[str]:
    """Members that hold a live study's answers under earlier versions of its engines, which nothing recomputes."""
    found = set()
    for search in manifest.searches:
        if search.startswith("studies/"):
            current = _current_answer(unpacked / WORKFLOW, search)
            prefix = f"{RESULTS}/{search}/{KEPT}/"
            found |= {name for name in manifest.members if name.startswith(prefix) and name != f"{prefix}{current}"}
    return found


def other_versions(unpacked: Path, code: Path) -> str:
    """How the code or the packages that recompute differ from the archive's; empty if they are the same."""
    workflow, why = unpacked / WORKFLOW, []
    files = {path.relative_to(workflow) for name in CODE for path in _files(workflow / name)}
    other = sorted(
        str(name)
        for name in files
        if not (code / name).is_file() or (code / name).read_bytes() != (workflow / name).read_bytes()
    )
    if other:
        why.append(f"{len(other)} files of the workflow differ, such as {other[0]}")
    lock = workflow / "envs/workflow.lock.txt"
    pinned: dict[str, list[str]] = {}  # a package may have several, for other releases of Python
    for name, wanted in _PINNED.findall(lock.read_text(encoding="utf-8")) if lock.is_file() else ():
        pinned.setdefault(name, []).append(wanted)
    for name, versions in sorted(pinned.items()):
        try:
            found = version(name)
        except PackageNotFoundError:  # not needed here
            continue
        if found not in versions:
            why.append(f"{name} {found} is installed, the archive's lock has {' or '.join(versions)}")
    return "; ".join(why[:_REASONS])


def _current_answer(project: Path, search: str) -> str:
    versions = study_versions(load_project(project / f"config/{search}.yaml", project))
    return f"{versions_id(versions)}.json"


def _prepare(unpacked: Path, manifest: Manifest, code: Path, work: Path) -> None:
    """A project with the code in `code` and the archive's configuration and raw records."""
    for name in CODE:
        (work / name).symlink_to((code / name).resolve())
    for name in CONFIGURATION:
        shutil.copytree(unpacked / WORKFLOW / name, work / name)
    shutil.copytree(unpacked / RESULTS, work / RESULTS, ignore=shutil.ignore_patterns("logs"))
    for search in manifest.searches:
        folder = work / RESULTS / search
        for path in folder.iterdir():
            if path.name != KEPT:
                shutil.rmtree(path) if path.is_dir() else path.unlink()
        if search.startswith("studies/"):
            (folder / KEPT / _current_answer(work, search)).unlink(missing_ok=True)


def _rules_text(code: Path) -> str:
    return "\n".join(path.read_text(encoding="utf-8") for path in sorted((code / "rules").glob("*.smk")))


def _environment(work: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("SNAKEMAKE_", "SERVELAB_"))}
    programs = f"{Path(sys.executable).parent}:{os.environ.get('PATH', '')}"
    return kept | {"PATH": programs, "PYTHONPATH": str(work / "scripts"), "HOME": str(work)}


def _error_lines(output: str) -> Iterable[str]:
    """The lines of a failed workflow that explain the failure."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    errors = [line for line in lines if re.match(r"(error|\w*(Error|Exception))\b", line)]
    return (errors or lines)[-_LINES:]


def _files(path: Path) -> list[Path]:
    return [path] if path.is_file() else [file for file in path.rglob("*") if file.is_file()]


def _hidden(path: Path, work: Path) -> bool:
    return any(part.startswith(".") for part in path.relative_to(work).parts)
