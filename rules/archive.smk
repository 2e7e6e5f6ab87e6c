"""Reads everything that belongs to a finished study; makes its archive, which is kept only if it verifies.

An archive's name holds the day on which the study's last run ended, so the output is a file that names the archive.
"""

from servelab.workflow.made_from import check_checkout, workflow_id


rule archive_study:
    input:
        runs=lambda wildcards: RUNS.of_study(wildcards.search),
        reports=["results/{search}/report.html", "results/{search}/report.md"],
    output:
        name="results/archives/{search}.json",
    log:
        "results/logs/archive_study/{search}.log",
    # verifying makes all tables again, on every core
    threads: workflow.cores or 1
    params:
        workflow=lambda wildcards: workflow_id(),
        sign=CONFIG.sign.model_dump_json() if CONFIG.sign else "",
        files=rule_files,
    shell:
        call("archive.archive_study", "sign", log=SHOWN)


rule archive:
    input:
        lambda wildcards: check_checkout(SCRIPTS)
        or [FILES.archive(search) for search in STUDIES.searches],
