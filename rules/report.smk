"""Reads the tables and decisions of a study; makes its charts (SVG, PNG, JSON) and its report (HTML, Markdown)."""


rule plot_charts:
    input:
        unpack(lambda wildcards: history_files(wildcards.search, "history")),
        study="results/{search}/study.json",
        stages=lambda wildcards: stage_files(
            wildcards.search, "table.parquet", all_stages(wildcards.search)
        ),
        decisions=lambda wildcards: stage_files(
            wildcards.search, "decision.json", search_stages(wildcards.search)
        ),
        improvements="results/{search}/improvements.parquet",
        code=code(
            "plot_charts.py",
            "servelab/chart_files.py",
            "servelab/figures.py",
            "servelab/charts/*.py",
        ),
    output:
        charts=directory("results/{search}/charts"),
    log:
        "results/logs/plot_charts/{search}.log",
    conda:
        "../envs/workflow.yaml"
    params:
        history=lambda wildcards: options(history_files(wildcards.search, "history")),
    shell:
        "python scripts/plot_charts.py --study {input.study} --stages {input.stages} --decisions {input.decisions}"
        " --improvements {input.improvements} {params.history} --output {output.charts} > {log} 2>&1"


rule render_report:
    input:
        unpack(lambda wildcards: origin_of(wildcards)[0]),
        unpack(lambda wildcards: beside(wildcards.search)),
        unpack(lambda wildcards: history_files(wildcards.search, "history", "answers")),
        study="results/{search}/study.json",
        stages=lambda wildcards: stage_files(
            wildcards.search, "table.parquet", all_stages(wildcards.search)
        ),
        decisions=lambda wildcards: stage_files(
            wildcards.search, "decision.json", search_stages(wildcards.search)
        ),
        improvements="results/{search}/improvements.parquet",
        metrics="results/{search}/metrics.parquet",
        checks="results/{search}/checks.parquet",
        recommended="results/{search}/recommended.json",
        charts="results/{search}/charts",
        code=code(
            "render_report.py",
            "servelab/figures.py",
            "servelab/report/*.py",
            "servelab/report/templates/*",
        ),
    output:
        html="results/{search}/report.html",
        markdown="results/{search}/report.md",
    log:
        "results/logs/render_report/{search}.log",
    conda:
        "../envs/workflow.yaml"
    params:
        origin=lambda wildcards: origin_of(wildcards)[1],
        beside=lambda wildcards: " ".join(
            f"--{name} {path}" for name, path in beside(wildcards.search).items()
        ),
        history=lambda wildcards: options(
            history_files(wildcards.search, "history", "answers")
        ),
    shell:
        "python scripts/render_report.py --study {input.study} --stages {input.stages} --decisions {input.decisions}"
        " --improvements {input.improvements} --metrics {input.metrics} --checks {input.checks}"
        " --recommended {input.recommended}"
        " {params.origin} {params.beside} {params.history} --charts-dir {input.charts}"
        " --output-md {output.markdown} --output-html {output.html} > {log} 2>&1"
