"""Archives of finished studies: what each is called, and what a change of makes another one."""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path

from servelab.archive.workflow_source import read_source
from servelab.core.errors import ConfigError
from servelab.core.identity import content_id, file_sha256
from servelab.workflow.studies import LIVE, RECORDED


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
