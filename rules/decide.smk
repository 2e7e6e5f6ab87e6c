"""Reads a stage's plan and the records of its runs; makes its tables and its decision."""


checkpoint collect_runs:
    input:
        plan="results/studies/{study}/stages/{stage}/plan.json",
        runs=lambda wildcards: RUNS.missing(wildcards.study, wildcards.stage),
    output:
        mark=touch(MEASURED),


rule parse_stage:
    input:
        plan="results/studies/{study}/stages/{stage}/plan.json",
        runs=lambda wildcards: RUNS.measured(wildcards.study, wildcards.stage),
        study="config/studies/{study}.yaml",
        code=CODE,
    output:
        **stage_tables("studies/{study}"),
    log:
        "results/logs/parse_stage/{study}-{stage}.log",
    params:
        files=rule_files,
        content=lambda wildcards: FILES.sha256(f"studies/{wildcards.study}"),
    shell:
        call("parse_stage", "files")


rule decide_stage:
    input:
        plan="results/{search}/stages/{stage}/plan.json",
        table="results/{search}/stages/{stage}/table.parquet",
        study=lambda wildcards: study_file(wildcards.search),
        code=CODE,
    output:
        decision="results/{search}/stages/{stage}/decision.json",
    log:
        "results/logs/decide_stage/{search}-{stage}.log",
    params:
        files=rule_files,
        content=lambda wildcards: FILES.sha256(wildcards.search),
    shell:
        call("decide_stage", "files")
