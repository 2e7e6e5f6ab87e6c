"""Reads the tables and decisions of a study; makes its charts (SVG, PNG, JSON) and its report (HTML, Markdown)."""


rule plot_chart:
    input:
        unpack(chart_tables),
        code=code(
            "plot_chart.py",
            "servelab/chart_files.py",
            "servelab/figures.py",
            "servelab/charts/*.py",
        ),
    output:
        svg="results/studies/{study}/charts/{chart}{of_stage}.svg",
        png="results/studies/{study}/charts/{chart}{of_stage}.png",
        json="results/studies/{study}/charts/{chart}{of_stage}.json",
    log:
        "results/logs/plot_chart/{study}-{chart}{of_stage}.log",
    wildcard_constraints:
        chart="|".join(CHARTS.names()),
        of_stage=r"|-[a-z0-9][a-z0-9._-]*",
    conda:
        "../envs/workflow.yaml"
    params:
        decision=chart_decisions,
        rows=chart_rows,
    shell:
        "python scripts/plot_chart.py --chart {wildcards.chart} --table {input.table} {params.decision} {params.rows}"
        " --output-svg {output.svg} --output-png {output.png} --output-json {output.json} > {log} 2>&1"


rule render_report:
    input:
        study="results/studies/{study}/study.json",
        stages=lambda wildcards: stage_files(
            wildcards.study, "table.parquet", PROJECTS[wildcards.study].stage_names
        ),
        decisions=lambda wildcards: stage_files(
            wildcards.study, "decision.json", search_stages(wildcards.study)
        ),
        improvements="results/studies/{study}/improvements.parquet",
        metrics="results/studies/{study}/metrics.parquet",
        checks="results/studies/{study}/checks.parquet",
        recommended="results/studies/{study}/recommended.json",
        charts=lambda wildcards: charts_of(wildcards.study),
        code=code(
            "render_report.py",
            "servelab/figures.py",
            "servelab/report/*.py",
            "servelab/report/templates/*",
        ),
    output:
        html="results/studies/{study}/report.html",
        markdown="results/studies/{study}/report.md",
    log:
        "results/logs/render_report/{study}.log",
    conda:
        "../envs/workflow.yaml"
    shell:
        "python scripts/render_report.py --study {input.study} --stages {input.stages} --decisions {input.decisions}"
        " --improvements {input.improvements} --metrics {input.metrics} --checks {input.checks}"
        " --recommended {input.recommended}"
        " --runs results/runs --charts-dir results/studies/{wildcards.study}/charts"
        " --output-md {output.markdown} --output-html {output.html} > {log} 2>&1"
