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
        svg="results/{search}/charts/{chart}{of_stage}.svg",
        png="results/{search}/charts/{chart}{of_stage}.png",
        json="results/{search}/charts/{chart}{of_stage}.json",
    log:
        "results/logs/plot_chart/{search}-{chart}{of_stage}.log",
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
        unpack(lambda wildcards: origin_of(wildcards)[0]),
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
        charts=lambda wildcards: charts_of(wildcards.search),
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
    shell:
        "python scripts/render_report.py --study {input.study} --stages {input.stages} --decisions {input.decisions}"
        " --improvements {input.improvements} --metrics {input.metrics} --checks {input.checks}"
        " --recommended {input.recommended}"
        " {params.origin} --charts-dir results/{wildcards.search}/charts"
        " --output-md {output.markdown} --output-html {output.html} > {log} 2>&1"
