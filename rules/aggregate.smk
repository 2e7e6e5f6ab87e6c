"""Reads the tables of all stages; makes metrics.parquet, improvements.parquet and recommended.json of a study."""


rule aggregate:
    input:
        tables=lambda wildcards: stage_files(
            wildcards.study, "table.parquet", PROJECTS[wildcards.study].stage_names
        ),
        metrics=lambda wildcards: stage_files(
            wildcards.study, "metrics.parquet", PROJECTS[wildcards.study].stage_names
        ),
        rounds=lambda wildcards: stage_files(
            wildcards.study, "rounds.parquet", PROJECTS[wildcards.study].stage_names
        ),
        checks=lambda wildcards: stage_files(
            wildcards.study, "checks.parquet", PROJECTS[wildcards.study].stage_names
        ),
        code=code(
            "aggregate.py",
            "servelab/aggregate.py",
            "servelab/objective.py",
            "servelab/statistics.py",
        ),
    output:
        metrics="results/studies/{study}/metrics.parquet",
        checks="results/studies/{study}/checks.parquet",
        improvements="results/studies/{study}/improvements.parquet",
    log:
        "results/logs/aggregate/{study}.log",
    conda:
        "../envs/workflow.yaml"
    shell:
        "python scripts/aggregate.py --tables {input.tables} --metrics {input.metrics} --rounds {input.rounds}"
        " --checks {input.checks} --output-metrics {output.metrics} --output-checks {output.checks}"
        " --output-improvements {output.improvements} > {log} 2>&1"


rule recommend:
    input:
        plan=f"results/studies/{{study}}/stages/{COMPARISON}/plan.json",
        table=f"results/studies/{{study}}/stages/{COMPARISON}/table.parquet",
        improvements="results/studies/{study}/improvements.parquet",
        study="config/studies/{study}.yaml",
        code=code("recommend.py", "servelab/recommend.py"),
    output:
        recommended="results/studies/{study}/recommended.json",
    log:
        "results/logs/recommend/{study}.log",
    conda:
        "../envs/workflow.yaml"
    shell:
        "python scripts/recommend.py --study {input.study} --plan {input.plan} --table {input.table}"
        " --improvements {input.improvements} --runs results/runs --output {output.recommended} > {log} 2>&1"


rule describe_study:
    input:
        study="config/studies/{study}.yaml",
        workloads="config/workloads.yaml",
        code=code("describe_study.py"),
    output:
        study="results/studies/{study}/study.json",
    log:
        "results/logs/describe_study/{study}.log",
    conda:
        "../envs/workflow.yaml"
    shell:
        "python scripts/describe_study.py --study {input.study} --output {output.study} > {log} 2>&1"
