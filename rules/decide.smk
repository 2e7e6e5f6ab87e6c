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
        code=code_of("parse_stage"),
    output:
        table="results/studies/{study}/stages/{stage}/table.parquet",
        points="results/studies/{study}/stages/{stage}/points.parquet",
        metrics="results/studies/{study}/stages/{stage}/metrics.parquet",
        rounds="results/studies/{study}/stages/{stage}/rounds.parquet",
        checks="results/studies/{study}/stages/{stage}/checks.parquet",
        timeline="results/studies/{study}/stages/{stage}/timeline.parquet",
        answers="results/studies/{study}/stages/{stage}/answers.parquet",
    log:
        "results/logs/parse_stage/{study}-{stage}.log",
    conda:
        "../envs/workflow.yaml"
    threads: min(workflow.cores or 1, 8)
    params:
        content=lambda wildcards: FILES.sha256(f"studies/{wildcards.study}"),
    shell:
        'python "$SERVELAB_SCRIPTS"/parse_stage.py --study {input.study} --plan {input.plan} --runs results/runs'
        " --kept results/parsed/{wildcards.study} --processes {threads}"
        " --output-table {output.table} --output-points {output.points} --output-metrics {output.metrics} --output-rounds {output.rounds}"
        " --output-checks {output.checks} --output-timeline {output.timeline} --output-answers {output.answers}"
        " > {log} 2>&1"


rule decide_stage:
    input:
        plan="results/{search}/stages/{stage}/plan.json",
        table="results/{search}/stages/{stage}/table.parquet",
        study=lambda wildcards: study_file(wildcards.search),
        code=code_of("decide_stage"),
    output:
        decision="results/{search}/stages/{stage}/decision.json",
    log:
        "results/logs/decide_stage/{search}-{stage}.log",
    conda:
        "../envs/workflow.yaml"
    params:
        content=lambda wildcards: FILES.sha256(wildcards.search),
        study=lambda wildcards: study_path(wildcards.search),
    shell:
        'python "$SERVELAB_SCRIPTS"/decide_stage.py --study {params.study} --plan {input.plan} --table {input.table}'
        " --output {output.decision} > {log} 2>&1"
