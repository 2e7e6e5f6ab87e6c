"""Reads the tables and decisions of a study; makes its charts (SVG, PNG, JSON), report (HTML, Markdown), tables, the index.

`snakemake --report` shows reports, charts and tables, by study; the captions lie in rules/captions/.
"""


report: "captions/workflow.rst"


rule render_report:
    input:
        unpack(FILES.of_runs),
        study="results/{search}/study.json",
        stages=FILES.of_stages("table.parquet"),
        decisions=FILES.of_deciding_stages("decision.json"),
        improvements="results/{search}/improvements.parquet",
        metrics="results/{search}/metrics.parquet",
        checks="results/{search}/checks.parquet",
        curves="results/{search}/curves.parquet",
        search="results/{search}/search.parquet",
        recommended="results/{search}/recommended.json",
        made_from=MADE_FROM,
    output:
        charts=report(
            directory("results/{search}/charts"),
            patterns=["{chart}.svg"],
            caption="captions/chart.rst",
            category="{search}",
            subcategory="Charts",
            labels={"chart": "{chart}"},
        ),
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
        call("report.render_report")


rule render_index:
    input:
        # asked for alone, the index shows what is there, and makes nothing
        listed=lambda wildcards: (
            FILES.listed() if set(workflow.dag_settings.targets) <= {"all"} else []
        ),
        made_from=CODE,
    output:
        html="results/index.html",
        markdown="results/index.md",
    log:
        "results/logs/render_index.log",
    localrule: True
    params:
        files=rule_files,
        expected=" ".join(STUDIES.searches),
    shell:
        call("report.render_index", "expected")
