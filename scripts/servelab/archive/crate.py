"""RO-Crate metadata of an archive: what its files are and which action made them, for tools that do not know Servelab.

RO-Crate 1.1 with the profiles Process Run Crate, Workflow Run Crate and Workflow RO-Crate. The crate describes folders
of raw records as a whole and the study's own files one by one; `manifest.json` lists every file.
"""

from __future__ import annotations

from importlib.metadata import version
from pathlib import PurePosixPath
from typing import Any

from rocrate.model.contextentity import ContextEntity
from rocrate.rocrate import ROCrate

from servelab.archive.contents import Contents
from servelab.archive.layout import DIFF, MANIFEST, README, RECIPE, RESULTS, WORKFLOW, Manifest, media_type

PROFILES = {
    "https://w3id.org/ro/wfrun/process/0.5": ("Process Run Crate", "0.5"),
    "https://w3id.org/ro/wfrun/workflow/0.5": ("Workflow Run Crate", "0.5"),
    "https://w3id.org/workflowhub/workflow-ro-crate/1.0": ("Workflow RO-Crate", "1.0"),
}
LICENSE = "https://spdx.org/licenses/Apache-2.0"
BIOSCHEMAS = "https://bioschemas.org/profiles/{}/1.0-RELEASE"
_TERMS = "https://w3id.org/ro/terms/workflow-run#"
TERMS = {name: f"{_TERMS}{name}" for name in ("ContainerImage", "containerImage", "sha256")}
"""Terms missing from the context of RO-Crate 1.1; the crate defines them itself, so no network is needed to read it."""
WRITTEN = {
    MANIFEST: "Every file with its sha256, size and media type",
    DIFF: "Differences of the workflow's files from its commit",
}


def crate_metadata(manifest: Manifest, contents: Contents) -> dict[str, Any]:
    """The content of `ro-crate-metadata.json` as JSON-LD; the same contents give the same metadata."""
    crate = ROCrate(version="1.1")
    crate.metadata.extra_terms.update(TERMS)
    study = manifest.study
    root = crate.root_dataset
    root["name"] = f"{manifest.title} (study {study})"
    root["description"] = (
        f"Archive of the study {study}: raw records, tables, charts and report, with the workflow that made them. "
        "The licence is the workflow's; prompts are under the licence of their data set."
    )
    root["datePublished"] = manifest.date
    root["license"] = crate.add(ContextEntity(crate, LICENSE, {"@type": "CreativeWork", "name": "Apache License 2.0"}))
    root["conformsTo"] = [
        crate.add(ContextEntity(crate, profile, {"@type": "CreativeWork", "name": name, "version": number}))
        for profile, (name, number) in PROFILES.items()
    ]
    workflow = _workflow(crate, manifest)
    files = {name: _file(crate, manifest, contents, name) for name in _described(manifest)}
    files[MANIFEST] = crate.add_file(
        dest_path=MANIFEST, properties={"name": WRITTEN[MANIFEST], "encodingFormat": media_type(MANIFEST)}
    )
    files[README]["about"] = root
    folders = {
        name: crate.add_dataset(dest_path=name, properties={"name": what}) for name, what in _folders(manifest).items()
    }
    configuration = files[_study_file(manifest)]
    report = files[f"{RESULTS}/{manifest.searches[0]}/report.html"]
    workflow["input"] = [_parameter(crate, "study-file", "The study, as its author wrote it", configuration)]
    workflow["output"] = [_parameter(crate, "report", "The report", report)]
    action = {
        "@type": "CreateAction",
        "name": f"The study {study}",
        "description": "Measures candidates stage by stage, or reads logs, and makes tables, decisions and report",
        "instrument": workflow,
        "endTime": manifest.date,
        "object": [configuration],
        "result": [*(entity for name, entity in files.items() if name.startswith(f"{RESULTS}/")), *folders.values()],
    }
    root["mentions"] = [crate.add(ContextEntity(crate, "#study", action)), *_runs(crate, contents, folders)]
    metadata: dict[str, Any] = crate.metadata.generate()
    return metadata


def _workflow(crate: ROCrate, manifest: Manifest) -> Any:
    name = f"{WORKFLOW}/Snakefile"
    properties: dict[str, Any] = {
        "name": "Servelab",
        "description": "Finds the fastest way to serve a language model on given hardware, and proves it",
        "version": manifest.commit or version("servelab"),
        "conformsTo": {"@id": BIOSCHEMAS.format("ComputationalWorkflow")},
        "encodingFormat": "text/plain",
        "sha256": manifest.members[name].sha256,
        "contentSize": str(manifest.members[name].size_bytes),
    }
    return crate.add_workflow(
        dest_path=name, properties=properties, main=True, lang="snakemake", lang_version=version("snakemake")
    )


def _described(manifest: Manifest) -> list[str]:
    """Members that are described one by one: the study's own files and what explains the rest."""
    own = tuple(f"{RESULTS}/{search}/" for search in manifest.searches)
    return [
        name
        for name in manifest.members
        if name.startswith((*own, f"{RECIPE}/")) or name in (README, DIFF, _study_file(manifest))
    ]


def _study_file(manifest: Manifest) -> str:
    search = manifest.searches[0]
    return f"{WORKFLOW}/config/{search}.yaml" if manifest.is_live else f"{WORKFLOW}/config/{search}/study.yaml"


def _file(crate: ROCrate, manifest: Manifest, contents: Contents, name: str) -> Any:
    member = manifest.members[name]
    properties: dict[str, Any] = {
        "name": WRITTEN.get(name, PurePosixPath(name).name),
        "encodingFormat": member.media_type,
        "contentSize": str(member.size_bytes),
        "sha256": member.sha256,
    }
    if name in contents.licenses:
        properties["license"] = contents.licenses[name]
    return crate.add_file(dest_path=name, properties=properties)


def _folders(manifest: Manifest) -> dict[str, str]:
    """Folders that are described as a whole, and what they are."""
    kinds = {
        f"{RESULTS}/runs": "Raw records of a run",
        f"{RESULTS}/workloads": "Requests of a workload",
    }
    found = {f"{WORKFLOW}/": "The workflow's source, the study's configuration and its locks"}
    for name in manifest.members:
        parent, _, rest = name.removeprefix(f"{RESULTS}/").partition("/")
        if f"{RESULTS}/{parent}" in kinds and name.startswith(f"{RESULTS}/"):
            entry = rest.partition("/")[0]
            found[f"{RESULTS}/{parent}/{entry}/"] = f"{kinds[f'{RESULTS}/{parent}']}, {entry}"
    return found


def _parameter(crate: ROCrate, name: str, description: str, example: Any) -> Any:
    properties = {
        "@type": "FormalParameter",
        "name": name,
        "description": description,
        "additionalType": "File",
        "conformsTo": {"@id": BIOSCHEMAS.format("FormalParameter")},
        "workExample": example,
    }
    parameter = crate.add(ContextEntity(crate, f"#{name}", properties))
    example["exampleOfWork"] = parameter
    return parameter


def _runs(crate: ROCrate, contents: Contents, folders: dict[str, Any]) -> list[Any]:
    """An action for each run: its engine, image, times, and whether it completed."""
    tools: dict[str, Any] = {}

    def tool(kind: str, name: str, properties: dict[str, str]) -> Any:
        if name not in tools:
            tools[name] = crate.add(ContextEntity(crate, f"#tool-{len(tools) + 1}", {"@type": kind, **properties}))
        return tools[name]

    actions = []
    for run in contents.runs:
        name = f"{run.engine} {run.engine_version}"
        properties = {
            "@type": "CreateAction",
            "name": f"Run {run.run_id}",
            "description": f"{name} serves {run.model} on {run.accelerator} under load",
            "instrument": tool(
                "SoftwareApplication", name, {"name": run.engine, "softwareVersion": run.engine_version}
            ),
            "startTime": run.started_at,
            "endTime": run.finished_at,
            "actionStatus": {"@id": f"http://schema.org/{'Completed' if run.is_ok else 'Failed'}ActionStatus"},
            "result": folders[f"{RESULTS}/runs/{run.run_id}/"],
        }
        if run.image:
            properties["containerImage"] = tool("ContainerImage", run.image, {"name": run.image})
        actions.append(crate.add(ContextEntity(crate, f"#run-{run.run_id}", properties)))
    return actions
