"""What an archive could have and has not: logs of its jobs, requests, descriptions of models and environments.

Nothing contradicts that such a file is missing: it may have been lost before the archive was made, or taken out since.
So it is listed by its name, as what is not proved is.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from servelab.archive.job_logs import missing_logs
from servelab.archive.layout import PROVENANCE, RESULTS, WORKFLOW, Manifest
from servelab.assets.datasets import folder_name, load_datasets
from servelab.core.identity import content_id


def descriptions(spec: Mapping[str, Any]) -> dict[str, str]:
    """Descriptions of a run's models and environments, by name in the archive, and each one's file in `results`.

    `spec` is the content of the run's `spec.json`.
    """
    model = spec["model"]
    source, suffix = content_id(model["source"]), model["quantization"] or model["format"]
    models = {source, content_id(spec["workload"]["tokenizer"])}
    models |= {f"{source}-{suffix}"} if model["conversion"] else set()
    found = {f"{PROVENANCE}/models/{name}.json": f"models/{name}/model.json" for name in sorted(models)}
    for tool in (spec["engine"], spec["client"]):
        if lock := tool.get("environment_sha256"):
            name = f"{tool['name']}-{lock[:12]}"
            found[f"{PROVENANCE}/environments/{name}.json"] = f"envs/{name}/environment.json"
    return found


def absent(folder: Path, manifest: Manifest) -> dict[str, str]:
    """Names of files that the unpacked archive in `folder` could have and has not, each with what it is."""
    found = dict.fromkeys(manifest.omitted, "files that are left out of the archive")
    found |= dict.fromkeys(missing_logs(folder, manifest.members), "logs of jobs that are not in the archive")
    specs = [json.loads((folder / name).read_bytes()) for name in _runs(manifest).values()]
    datasets = load_datasets(folder / WORKFLOW / "config/datasets.yaml") if specs else {}
    names = {dataset.sha256: name for name, dataset in datasets.items()}
    wanted = {name for spec in specs for name in [*descriptions(spec), *_dataset(spec, names)]}
    lost = sorted(wanted - manifest.members.keys())
    return found | dict.fromkeys(lost, "descriptions that are not in the archive")


def _runs(manifest: Manifest) -> dict[str, str]:
    """The specification of each run."""
    return {
        name.split("/")[2]: name
        for name in manifest.members
        if name.startswith(f"{RESULTS}/runs/") and name.endswith("/spec.json")
    }


def _dataset(spec: Mapping[str, Any], names: Mapping[str, str]) -> Iterator[str]:
    """The description of the data set that a workload is from; `names` has each data set's by its sha256."""
    if digest := spec["workload"]["parameters"].get("dataset_sha256"):
        yield f"{PROVENANCE}/datasets/{folder_name(names.get(digest, 'dataset'), digest)}.json"
