"""Reads everything that belongs to a finished study; makes its archive, which is kept only if it verifies.

An archive's name holds the day on which the study's last run ended, which is known when it has ended.
"""

from servelab.workflow.imports import (
    archive_name,
    archived_search,
    check_checkout,
    workflow_id,
)


checkpoint name_archive:
    input:
        runs=lambda wildcards: RUNS.of_study(wildcards.search),
        reports=lambda wildcards: FILES.reports(wildcards.search),
        made_from=CODE,
    output:
        name="results/archives/{search}.json",
    log:
        "results/logs/name_archive/{search}.log",
    params:
        files=rule_files,
    shell:
        call("archive.name_archive")


rule archive_study:
    input:
        runs=lambda wildcards: RUNS.of_study(archived_search(wildcards.archive)),
        reports=lambda wildcards: FILES.reports(archived_search(wildcards.archive)),
    output:
        **({"signature": "results/archives/{archive}.zip.sig"} if SIGNING.key else {}),
        archive="results/archives/{archive}.zip",
    log:
        "results/logs/archive_study/{archive}.log",
    # verifying makes all tables again, on every core
    threads: workflow.cores or 1
    params:
        search=lambda wildcards: archived_search(wildcards.archive),
        workflow=lambda wildcards: workflow_id(),
        sign=SIGNING.json,
        files=rule_files,
    shell:
        "(trap 'rm -f {output}' EXIT;"
        ' python "$SERVELAB_SCRIPTS"/archive.py archive_study files={params.files:q} search={params.search}'
        " sign={params.sign:q}"
        ' && python "$SERVELAB_SCRIPTS"/verify_archive.py --accept-unsigned {output.archive} && trap - EXIT) 2>&1 | tee -i {log}'


rule archive:
    input:
        lambda wildcards: check_checkout(SCRIPTS)
        or [
            f"results/archives/{archive_name(checkpoints.name_archive.get(search=search).output.name)}"
            for search in STUDIES.searches
        ],
