"""Finds what belongs to a finished study, and what its archive is called. Makes nothing."""

import re

from servelab.archive.source import read_source
from servelab.identity import file_sha256


wildcard_constraints:
    archive=r"(recorded/)?[a-z0-9][a-z0-9._-]*-\d{4}-\d{2}-\d{2}",


def finished(search):
    """What a finished study has: its runs, if it measured any, and its report."""
    kind, study = search.split("/")
    measured = [
        run
        for stage in (all_stages(search) if kind == "studies" else [])
        for run in measured_runs(study, stage)
    ]
    reports = [f"results/{search}/report.html", f"results/{search}/report.md"]
    return {"runs": list(dict.fromkeys(measured)), "reports": reports}


def shown_beside(search):
    """The other study of this name, live or recorded, that a report shows where both are asked for."""
    return [
        str(Path(file).parent.relative_to(RESULTS)) for file in beside(search).values()
    ]


def archived_search(archive):
    """The study of an archive, by the archive's name."""
    study = re.sub(r"-\d{4}-\d{2}-\d{2}$", "", archive)
    return study if study.startswith("recorded/") else f"studies/{study}"


def archived_files(wildcards):
    """What goes into an archive, as far as a change of it makes another one."""
    search = archived_search(wildcards.archive)
    others = [
        page for other in shown_beside(search) for page in finished(other)["reports"]
    ]
    return {**finished(search), "others": others}


@cache
def workflow_id():
    """Hash of the workflow's files as they lie here, which an archive holds."""
    source = read_source(Path())
    files = {name: file_sha256(Path(name)) for name in source.files}
    return content_id({"commit": source.commit, "files": files})


def archives_of_all_studies(wildcards):
    """The archive of every study of the configuration, by its name once that is known."""
    named = [
        checkpoints.name_archive.get(search=search).output.name for search in SEARCHES
    ]
    return [
        f"results/archives/{json.loads(Path(file).read_bytes())['archive']}"
        for file in named
    ]
