"""Reads the tables and decisions of a study; makes its charts (SVG, PNG, JSON), report (HTML, Markdown) and tables.

`snakemake --report` shows reports, charts and tables, by study; the captions lie in rules/captions/.
"""


report: "captions/workflow.rst"


OF_LIVE = ("history", "answers", "device_series")


rule condense_records:
    input:
        # made again whenever a run is
        table=lambda wildcards: FILES.of_last_stage(
            f"studies/{wildcards.study}", "table.parquet"
        ),
        code=CODE,
    output:
        device_series="results/studies/{study}/device_series.parquet",
    log:
        "results/logs/condense_records/{study}.log",
    params:
        files=rule_files,
    shell:
        call("condense_records", "files")


rule plot_charts:
    input:
        unpack(lambda wildcards: tables_of_runs(wildcards.search, "device_series")),
        study="results/{search}/study.json",
        curves="results/{search}/curves.parquet",
        stages=lambda wildcards: FILES.of_stages(wildcards.search, "table.parquet"),
        decisions=lambda wildcards: FILES.of_deciding_stages(
            wildcards.search, "decision.json"
        ),
        improvements="results/{search}/improvements.parquet",
        recommended="results/{search}/recommended.json",
        timeline=lambda wildcards: FILES.of_last_stage(
            wildcards.search, "timeline.parquet"
        ),
        code=CODE,
    output:
        charts=report(
            directory("results/{search}/charts"),
            patterns=["{chart}.svg"],
            caption="captions/chart.rst",
            category="{search}",
            subcategory="Charts",
            labels={"chart": "{chart}"},
        ),
    log:
        "results/logs/plot_charts/{search}.log",
    params:
        files=rule_files,
    shell:
        call("plot_charts", "files")


rule render_report:
    input:
        unpack(lambda wildcards: origin(wildcards.search)),
        unpack(lambda wildcards: tables_of_runs(wildcards.search, *OF_LIVE)),
        study="results/{search}/study.json",
        stages=lambda wildcards: FILES.of_stages(wildcards.search, "table.parquet"),
        decisions=lambda wildcards: FILES.of_deciding_stages(
            wildcards.search, "decision.json"
        ),
        improvements="results/{search}/improvements.parquet",
        metrics="results/{search}/metrics.parquet",
        checks="results/{search}/checks.parquet",
        curves="results/{search}/curves.parquet",
        search="results/{search}/search.parquet",
        recommended="results/{search}/recommended.json",
        asked=lambda wildcards: answers_of_stages(FILES, wildcards.search),
        charts="results/{search}/charts",
        code=CODE,
    output:
        html=report(
            "results/{search}/report.html",
            caption="captions/report.rst",
            category="{search}",
            subcategory="Report",
            labels={"report": "The whole report"},
        ),
        markdown="results/{search}/report.md",
        tables=report(
            directory("results/{search}/tables"),
            patterns=["{table}.csv"],
            caption="captions/table.rst",
            category="{search}",
            subcategory="Tables",
            labels={"table": "{table}"},
        ),
    log:
        "results/logs/render_report/{search}.log",
    params:
        files=rule_files,
    shell:
        call("render_report", "files")
