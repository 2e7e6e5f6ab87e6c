"""Files that describe an archive to its readers: README and RO-Crate, made from its manifest and answer."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path
from textwrap import indent
from typing import Any

from rocrate.model.contextentity import ContextEntity
from rocrate.rocrate import ROCrate

from servelab.archive.layout import MANIFEST, README, RESULTS, WORKFLOW, Manifest
from servelab.search.recommendation_text import answer_text
from servelab.search.recommended import Recommended

SHOWS = (
    "An archive shows that tables, decisions, the answer and its pages are complete and follow from its raw records. "
    "Only a signature shows who measured, and that records, drawings, logs, earlier answers and code are as they were "
    "then."
)
TEXT = Path(__file__).with_name("readme.txt").read_text(encoding="utf-8")
DESCRIPTION = (
    "Archive of the study {study}: raw records, tables, charts and report, with the workflow that made them. "
    "The licence is the workflow's; prompts are under the licence of their data set."
)
_LICENSE = "https://spdx.org/licenses/Apache-2.0"
_PROFILES = {
    "https://w3id.org/ro/wfrun/process/0.5": ("Process Run Crate", "0.5"),
    "https://w3id.org/ro/wfrun/workflow/0.5": ("Workflow Run Crate", "0.5"),
    "https://w3id.org/workflowhub/workflow-ro-crate/1.0": ("Workflow RO-Crate", "1.0"),
}


def readme(manifest: Manifest, answer: Path) -> str:
    """Says what was found, by the study's `recommended.json`, and which files to open."""
    result = "It has no recommendation."
    if answer.exists():
        found = Recommended.read(answer)
        result = f"{answer_text(found).text}\n\n{indent(found.command, '    ')}"
    commit = f", commit {manifest.commit}" if manifest.commit else ""
    return TEXT.format(manifest=manifest, result=result, commit=commit, shows=SHOWS)


def crate_metadata(manifest: Manifest) -> dict[str, Any]:
    """The content of `ro-crate-metadata.json`: RO-Crate 1.1, with the profiles Process and Workflow Run Crate.

    Folders are described; `manifest.json` has each file.
    """
    crate = ROCrate(version="1.1")
    root = crate.root_dataset
    root["name"] = f"{manifest.title} (study {manifest.study})"
    root["description"] = DESCRIPTION.format(study=manifest.study)
    root["datePublished"] = manifest.date
    root["license"] = crate.add(ContextEntity(crate, _LICENSE, {"@type": "CreativeWork", "name": "Apache License 2.0"}))
    root["conformsTo"] = [
        crate.add(ContextEntity(crate, profile, {"@type": "CreativeWork", "name": name, "version": number}))
        for profile, (name, number) in _PROFILES.items()
    ]
    workflow = crate.add_workflow(
        dest_path=f"{WORKFLOW}/Snakefile",
        properties={"name": "Servelab", "version": manifest.commit or version("servelab")},
        main=True,
        lang="snakemake",
        lang_version=version("snakemake"),
    )
    for name, what, kind in (
        (README, "What was found", "text/markdown"),
        (MANIFEST, "Every file with its sha256 and size", "application/json"),
    ):
        crate.add_file(dest_path=name, properties={"name": what, "encodingFormat": kind})
    study_file = crate.add_file(
        dest_path=manifest.study_file, properties={"name": "The study", "encodingFormat": "application/yaml"}
    )
    folders = sorted({"/".join(name.split("/")[:3]) for name in manifest.members if name.startswith(f"{RESULTS}/")})
    made = [crate.add_dataset(dest_path=f"{each}/", properties={"name": each}) for each in (*folders, WORKFLOW)]
    action = {"@type": "CreateAction", "name": f"The study {manifest.study}", "instrument": workflow}
    action |= {"endTime": manifest.date, "object": [study_file], "result": made}
    root["mentions"] = [crate.add(ContextEntity(crate, "#study", action))]
    metadata: dict[str, Any] = crate.metadata.generate()
    return metadata
