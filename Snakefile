"""Servelab: finds the fastest way to serve a language model on given hardware, and proves it."""

from snakemake.utils import min_version

min_version("9.27.0")


configfile: "config/config.yaml"


include: "rules/common.smk"
include: "rules/planned.smk"
include: "rules/coordinate.smk"
include: "rules/download.smk"
include: "rules/prepare.smk"
include: "rules/preflight.smk"
include: "rules/plan.smk"
include: "rules/measure.smk"
include: "rules/pair.smk"
include: "rules/decide.smk"
include: "rules/recorded.smk"
include: "rules/aggregate.smk"
include: "rules/history.smk"
include: "rules/report.smk"
include: "rules/compared.smk"
include: "rules/compare.smk"
include: "rules/archived.smk"
include: "rules/archive.smk"
include: "rules/publish.smk"
include: "rules/cluster.smk"


rule all:
    default_target: True
    input:
        plans=plans_of_all_studies,
        # for a run that is missing while the report stands would otherwise not be measured again
        runs=runs_of_all_studies,
        reports=expand("results/{search}/report.html", search=SEARCHES),
        answers=expand("results/{search}/recommended.json", search=SEARCHES),
        comparisons=expand(
            "results/comparisons/{comparison}/comparison.html", comparison=COMPARED
        ),
        index="results/index.html",
