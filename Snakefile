"""Servelab: finds the fastest way to serve a language model on given hardware, and proves it."""

from snakemake.utils import min_version

min_version("9.27.0")


configfile: "config/config.yaml"


include: "rules/common.smk"
include: "rules/models.smk"
include: "rules/workloads.smk"
include: "rules/environments.smk"
include: "rules/stages.smk"
include: "rules/measure.smk"
include: "rules/recorded.smk"
include: "rules/answer.smk"
include: "rules/report.smk"
include: "rules/archive.smk"
include: "rules/coordinate.smk"


rule all:
    default_target: True
    input:
        # what was deleted is made again: a table of a stage, or a run, also where the report is still there
        made=[file for search in STUDIES.searches for file in FILES.made(search)],
        runs=lambda wildcards: RUNS.all_to_wait_for(),
        # `--until` counts jobs that are known, and runs are known only once their stage is planned
        fetched=lambda wildcards: (
            SOURCES.missing(RESULTS) if workflow.dag_settings.until else []
        ),
        index=["results/index.html", "results/index.md"],
