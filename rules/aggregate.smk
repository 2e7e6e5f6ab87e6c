"""Reads the tables of all stages; makes metrics, improvements, curves, search.parquet and recommended.json of a study."""


rule aggregate:
    input:
        tables=lambda wildcards: FILES.of_stages(wildcards.search, "table.parquet"),
        metrics=lambda wildcards: FILES.of_stages(wildcards.search, "metrics.parquet"),
        rounds=lambda wildcards: FILES.of_stages(wildcards.search, "rounds.parquet"),
        checks=lambda wildcards: FILES.of_stages(wildcards.search, "checks.parquet"),
        code=code_of("aggregate"),
    output:
        metrics="results/{search}/metrics.parquet",
        checks="results/{search}/checks.parquet",
        improvements="results/{search}/improvements.parquet",
    log:
        "results/logs/aggregate/{search}.log",
    conda:
        "../envs/workflow.yaml"
    shell:
        'python "$SERVELAB_SCRIPTS"/aggregate.py --tables {input.tables} --metrics {input.metrics} --rounds {input.rounds}'
        " --checks {input.checks} --output-metrics {output.metrics} --output-checks {output.checks}"
        " --output-improvements {output.improvements} > {log} 2>&1"


rule join_curves:
    input:
        study="results/{search}/study.json",
        tables=lambda wildcards: FILES.of_stages(wildcards.search, "table.parquet"),
        points=lambda wildcards: FILES.of_stages(wildcards.search, "points.parquet"),
        code=code_of("join_curves"),
    output:
        curves="results/{search}/curves.parquet",
    log:
        "results/logs/join_curves/{search}.log",
    conda:
        "../envs/workflow.yaml"
    shell:
        'python "$SERVELAB_SCRIPTS"/join_curves.py --study {input.study} --tables {input.tables} --points {input.points}'
        " --output {output.curves} > {log} 2>&1"


rule recommend:
    input:
        unpack(lambda wildcards: FILES.referred(wildcards.search)),
        curves="results/{search}/curves.parquet",
        plans=lambda wildcards: FILES.of_stages(wildcards.search, "plan.json"),
        tables=lambda wildcards: FILES.of_stages(wildcards.search, "table.parquet"),
        decisions=lambda wildcards: FILES.of_deciding_stages(
            wildcards.search, "decision.json"
        ),
        improvements="results/{search}/improvements.parquet",
        study=lambda wildcards: study_file(wildcards.search),
        code=code_of("recommend"),
    output:
        recommended="results/{search}/recommended.json",
    log:
        "results/logs/recommend/{search}.log",
    conda:
        "../envs/workflow.yaml"
    params:
        content=lambda wildcards: FILES.sha256(wildcards.search),
        study=lambda wildcards: study_path(wildcards.search),
        runs=lambda wildcards: (
            "--runs results/runs" if is_live(wildcards.search) else ""
        ),
    shell:
        'python "$SERVELAB_SCRIPTS"/recommend.py --study {params.study} --plans {input.plans} --tables {input.tables}'
        " --decisions {input.decisions} --improvements {input.improvements} {params.runs} --curves {input.curves}"
        " --output {output.recommended} > {log} 2>&1"


rule list_candidates:
    input:
        unpack(lambda wildcards: FILES.first_pairs(wildcards.search)),
        plans=lambda wildcards: FILES.of_stages(wildcards.search, "plan.json"),
        tables=lambda wildcards: FILES.of_stages(wildcards.search, "table.parquet"),
        decisions=lambda wildcards: FILES.of_deciding_stages(
            wildcards.search, "decision.json"
        ),
        study=lambda wildcards: study_file(wildcards.search),
        code=code_of("list_candidates"),
    output:
        search="results/{search}/search.parquet",
    log:
        "results/logs/list_candidates/{search}.log",
    conda:
        "../envs/workflow.yaml"
    params:
        content=lambda wildcards: FILES.sha256(wildcards.search),
        study=lambda wildcards: study_path(wildcards.search),
        first=lambda wildcards: options(FILES.first_pairs(wildcards.search)),
    shell:
        'python "$SERVELAB_SCRIPTS"/list_candidates.py --study {params.study} --plans {input.plans} --tables {input.tables}'
        " {params.first} --decisions {input.decisions} --output {output.search} > {log} 2>&1"


rule describe_study:
    input:
        unpack(lambda wildcards: FILES.referred(wildcards.search)),
        study=lambda wildcards: study_file(wildcards.search),
        code=code_of("describe_study"),
    output:
        study="results/{search}/study.json",
    log:
        "results/logs/describe_study/{search}.log",
    conda:
        "../envs/workflow.yaml"
    params:
        content=lambda wildcards: FILES.sha256(wildcards.search),
        study=lambda wildcards: study_path(wildcards.search),
    shell:
        'python "$SERVELAB_SCRIPTS"/describe_study.py --study {params.study} --output {output.study} > {log} 2>&1'
