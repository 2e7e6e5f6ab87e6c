"""Reads the tables of all stages; makes study.json, metrics, improvements, curves, search.parquet and recommended.json of a study."""


rule aggregate:
    input:
        unpack(lambda wildcards: FILES.referred(wildcards.search)),
        study=lambda wildcards: study_file(wildcards.search),
        tables=lambda wildcards: FILES.of_stages(wildcards.search, "table.parquet"),
        points=lambda wildcards: FILES.of_stages(wildcards.search, "points.parquet"),
        metrics=lambda wildcards: FILES.of_stages(wildcards.search, "metrics.parquet"),
        rounds=lambda wildcards: FILES.of_stages(wildcards.search, "rounds.parquet"),
        checks=lambda wildcards: FILES.of_stages(wildcards.search, "checks.parquet"),
        code=CODE,
    output:
        study="results/{search}/study.json",
        curves="results/{search}/curves.parquet",
        metrics="results/{search}/metrics.parquet",
        checks="results/{search}/checks.parquet",
        improvements="results/{search}/improvements.parquet",
    log:
        "results/logs/aggregate/{search}.log",
    params:
        files=rule_files,
        content=lambda wildcards: FILES.sha256(wildcards.search),
    shell:
        call("aggregate", "files")


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
        code=CODE,
    output:
        recommended="results/{search}/recommended.json",
    log:
        "results/logs/recommend/{search}.log",
    params:
        files=rule_files,
        content=lambda wildcards: FILES.sha256(wildcards.search),
    shell:
        call("recommend", "files")


rule list_candidates:
    input:
        unpack(lambda wildcards: FILES.first_pairs(wildcards.search)),
        plans=lambda wildcards: FILES.of_stages(wildcards.search, "plan.json"),
        tables=lambda wildcards: FILES.of_stages(wildcards.search, "table.parquet"),
        decisions=lambda wildcards: FILES.of_deciding_stages(
            wildcards.search, "decision.json"
        ),
        study=lambda wildcards: study_file(wildcards.search),
        code=CODE,
    output:
        search="results/{search}/search.parquet",
    log:
        "results/logs/list_candidates/{search}.log",
    params:
        files=rule_files,
        content=lambda wildcards: FILES.sha256(wildcards.search),
    shell:
        call("list_candidates", "files")
