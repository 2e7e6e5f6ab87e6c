"""Reads the tables of all stages; makes metrics.parquet, improvements.parquet, search.parquet and recommended.json of a study."""


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
        tables=lambda wildcards: stage_files(
            wildcards.search, "table.parquet", all_stages(wildcards.search)
        ),
        rounds=lambda wildcards: stage_files(
            wildcards.search, "rounds.parquet", all_stages(wildcards.search)
        ),
        improvements="results/{search}/improvements.parquet",
        study=study_file,
        code=code(
            "recommend.py",
            "servelab/decide.py",
            "servelab/guards.py",
            "servelab/recommend.py",
            "servelab/statistics.py",
        ),
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
        "python scripts/recommend.py --study {params.study} --plan {input.plan} --tables {input.tables}"
        " --rounds {input.rounds} --improvements {input.improvements} {params.runs}"
        " --output {output.recommended} > {log} 2>&1"


rule audit_search:
    input:
        plans=lambda wildcards: stage_files(
            wildcards.search, "plan.json", all_stages(wildcards.search)
        ),
        tables=lambda wildcards: stage_files(
            wildcards.search, "table.parquet", all_stages(wildcards.search)
        ),
        decisions=lambda wildcards: stage_files(
            wildcards.search, "decision.json", search_stages(wildcards.search)
        ),
        study=study_file,
        code=code(
            "audit_search.py",
            "servelab/decide.py",
            "servelab/describe.py",
            "servelab/search_audit.py",
        ),
    output:
        search="results/{search}/search.parquet",
    log:
        "results/logs/audit_search/{search}.log",
    conda:
        "../envs/workflow.yaml"
    params:
        study=study_path,
        # the plans of other studies and the pairs behind decisions, as they stand
        results=lambda wildcards: (
            "--results results" if wildcards.search.startswith("studies/") else ""
        ),
    shell:
        "python scripts/audit_search.py --study {params.study} --plans {input.plans} --tables {input.tables}"
        " --decisions {input.decisions} {params.results} --output {output.search} > {log} 2>&1"


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
