"""Which runs of elsewhere a workflow uses: those that were restored, and those of the places in `runs_from`."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from servelab.archive.contents import read_source
from servelab.archive.layout import KEY as PLACES
from servelab.core.errors import ConfigError
from servelab.core.identity import content_id, file_sha256
from servelab.study.project import LIVE, RECORDED
from servelab.workflow.studies import WorkflowConfig

if TYPE_CHECKING:
    from servelab.archive.shared_runs import SharedRuns


def shared_runs(config: WorkflowConfig, results: Path, report: Callable[[str], None]) -> SharedRuns | None:
    """The runs of the places in `runs_from`; None if it is empty.

    `report` gets one line per run that cannot be used. Imported runs that are not to be used are a `ConfigError`.
    """
    if not config.runs_from:
        return None
    if not config.use_imported_runs:
        raise ConfigError(f"config/config.yaml: {PLACES}: needs use_imported_runs: true, which is the default")
    from servelab.archive.shared_runs import SharedRuns  # takes half a second, and few studies have such a place

    return SharedRuns(config.runs_from, results, Path(".snakemake/shared"), report)


def archived_search(archive: str) -> str:
    """The study of an archive, by the archive's name."""
    study = re.sub(r"-\d{4}-\d{2}-\d{2}$", "", archive)
    return study if study.startswith(f"{RECORDED}/") else f"{LIVE}/{study}"


def archive_name(named: str) -> str:
    """The archive below results/archives/ whose name `name_archive` wrote in a file."""
    return str(json.loads(Path(named).read_bytes())["archive"])


def check_checkout(scripts: Path) -> None:
    """`ConfigError` if the current folder is not the checkout with these scripts: an archive holds both as one."""
    if (checkout := scripts.resolve().parent) != Path.cwd():
        raise ConfigError(f"{Path.cwd()}: archives are made in the checkout of Servelab, {checkout}, of its studies")


@cache
def workflow_id(root: Path = Path()) -> str:
    """Hash of the workflow's files as they are now, which an archive holds."""
    source = read_source(root)
    return content_id({"commit": source.commit, "files": {name: file_sha256(root / name) for name in source.files}})
