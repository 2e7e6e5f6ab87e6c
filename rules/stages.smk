"""Reads a study and the records of its runs; makes each stage's plan, tables and decision."""


checkpoint plan_stage:
    input:
        unpack(FILES.past_stages),
        made_from=MADE_FROM_LIVE,
    output:
        plan="results/studies/{study}/stages/{stage}/plan.json",
    log:
        "results/logs/plan_stage/{study}-{stage}.log",
    params:
        files=rule_files,
    shell:
        call("stages.plan_stage")


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
        made_from=MADE_FROM_LIVE,
    output:
        **stage_tables("studies/{study}"),
    log:
        "results/logs/parse_stage/{study}-{stage}.log",
    params:
        files=rule_files,
    shell:
        call("stages.parse_stage")


rule decide_stage:
    input:
        plan="results/{search}/stages/{stage}/plan.json",
        table="results/{search}/stages/{stage}/table.parquet",
        made_from=MADE_FROM,
    output:
        decision="results/{search}/stages/{stage}/decision.json",
    log:
        "results/logs/decide_stage/{search}-{stage}.log",
    params:
        files=rule_files,
    shell:
        call("stages.decide_stage")
