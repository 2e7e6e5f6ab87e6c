"""Reads the tables of all stages; makes metrics.parquet, improvements.parquet and recommended.json of a study."""


rule aggregate:
    input:
        tables=lambda wildcards: stage_files(
            wildcards.search, "table.parquet", all_stages(wildcards.search)
        ),
        metrics=lambda wildcards: stage_files(
            wildcards.search, "metrics.parquet", all_stages(wildcards.search)
        ),
        rounds=lambda wildcards: stage_files(
            wildcards.search, "rounds.parquet", all_stages(wildcards.search)
        ),
        checks=lambda wildcards: stage_files(
            wildcards.search, "checks.parquet", all_stages(wildcards.search)
        ),
        code=code(
            "aggregate.py",
            "servelab/aggregate.py",
            "servelab/objective.py",
            "servelab/statistics.py",
        ),
    output:
        metrics="results/{search}/metrics.parquet",
        checks="results/{search}/checks.parquet",
        improvements="results/{search}/improvements.parquet",
    log:
        "results/logs/aggregate/{search}.log",
    conda:
        "../envs/workflow.yaml"
    shell:
        "python scripts/aggregate.py --tables {input.tables} --metrics {input.metrics} --rounds {input.rounds}"
        " --checks {input.checks} --output-metrics {output.metrics} --output-checks {output.checks}"
        " --output-improvements {output.improvements} > {log} 2>&1"


rule recommend:
    input:
        plan=f"results/{{search}}/stages/{COMPARISON}/plan.json",
        table=f"results/{{search}}/stages/{COMPARISON}/table.parquet",
        improvements="results/{search}/improvements.parquet",
        study=study_file,
        code=code("recommend.py", "servelab/recommend.py"),
    output:
        recommended="results/{search}/recommended.json",
    log:
        "results/logs/recommend/{search}.log",
    conda:
        "../envs/workflow.yaml"
    params:
        study=study_path,
        runs=lambda wildcards: (
            "--runs results/runs" if wildcards.search.startswith("studies/") else ""
        ),
    shell:
        "python scripts/recommend.py --study {params.study} --plan {input.plan} --table {input.table}"
        " --improvements {input.improvements} {params.runs} --output {output.recommended} > {log} 2>&1"


rule describe_study:
    input:
        study=study_file,
        workloads="config/workloads.yaml",
        code=code("describe_study.py", "servelab/describe.py"),
    output:
        study="results/{search}/study.json",
    log:
        "results/logs/describe_study/{search}.log",
    conda:
        "../envs/workflow.yaml"
    params:
        study=study_path,
    shell:
        "python scripts/describe_study.py --study {params.study} --output {output.study} > {log} 2>&1"
