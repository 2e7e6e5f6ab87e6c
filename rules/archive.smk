"""Reads everything that belongs to a finished study; makes its archive, which is kept only if it verifies.

An archive's name holds the day on which the study's last run ended, which is known when it has ended.
"""


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
        "(trap 'rm -f {output.archive}' EXIT;"
        " python scripts/archive_study.py --search {params.search} {params.beside}"
        " && python scripts/verify_archive.py {output.archive} && trap - EXIT) 2>&1 | tee -i {log}"


rule archive:
    input:
        archives_of_all_studies,
