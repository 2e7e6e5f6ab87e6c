"""Reads everything that belongs to a finished study; makes its archive, which is kept only if it verifies.

An archive's name holds the day on which the study's last run ended, which is known when it has ended.
"""

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
        for run in planned_runs(study, stage)
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
    return study if "/" in study else f"studies/{study}"


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


checkpoint name_archive:
    input:
        unpack(lambda wildcards: finished(wildcards.search)),
        code=code("name_archive.py"),
    output:
        name="results/archives/{search}.json",
    log:
        "results/logs/name_archive/{search}.log",
    conda:
        "../envs/workflow.yaml"
    shell:
        "python scripts/name_archive.py --search {wildcards.search} --output {output.name} > {log} 2>&1"


rule archive_study:
    input:
        unpack(archived_files),
    output:
        archive="results/archives/{archive}.zip",
    log:
        "results/logs/archive_study/{archive}.log",
    conda:
        "../envs/workflow.yaml"
    # verifying makes all tables again, on every core
    threads: workflow.cores or 1
    params:
        search=lambda wildcards: archived_search(wildcards.archive),
        beside=lambda wildcards: [
            f"--beside={search}"
            for search in shown_beside(archived_search(wildcards.archive))
        ],
        workflow=lambda wildcards: workflow_id(),
    shell:
        "(python scripts/archive_study.py --search {params.search} {params.beside}"
        " && python scripts/verify_archive.py {output.archive}) 2>&1 | tee -i {log}"


rule archive:
    input:
        archives_of_all_studies,
