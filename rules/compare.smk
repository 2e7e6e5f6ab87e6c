"""Reads finished studies, of this configuration or of other results; makes comparisons of two, and the index over all.

Neither makes or measures anything of a study that the default target would not.
"""


rule compare_studies:
    input:
        studies=compared_here,
        code=code(
            "compare_studies.py",
            "servelab/compare/*.py",
            "servelab/decide.py",
            "servelab/figures.py",
            "servelab/page/*.py",
            "servelab/page/templates/*",
            "servelab/report/table.py",
            "servelab/report/templates/report.css",
            "servelab/report/templates/report.js",
            "servelab/statistics.py",
        ),
    output:
        table="results/comparisons/{comparison}/comparison.parquet",
        html="results/comparisons/{comparison}/comparison.html",
        markdown="results/comparisons/{comparison}/comparison.md",
    log:
        "results/logs/compare_studies/{comparison}.log",
    conda:
        "../envs/workflow.yaml"
    params:
        folders=lambda wildcards: [
            str(side.folder) for side in compared_sides(wildcards)
        ],
        names=lambda wildcards: [side.name for side in compared_sides(wildcards)],
        elsewhere=compared_elsewhere,
    shell:
        "python scripts/compare_studies.py {params.folders:q} --names {params.names:q}"
        " --output $(dirname {output.table}) > {log} 2>&1"


rule render_index:
    input:
        listed=listed,
        code=code(
            "render_index.py",
            "servelab/figures.py",
            "servelab/index_page.py",
            "servelab/page/*.py",
            "servelab/page/templates/*",
            "servelab/report/table.py",
            "servelab/report/templates/report.css",
            "servelab/report/templates/report.js",
        ),
    output:
        html="results/index.html",
        markdown="results/index.md",
    log:
        "results/logs/render_index.log",
    localrule: True
    conda:
        "../envs/workflow.yaml"
    params:
        searches=list(SEARCHES),
    shell:
        "python scripts/render_index.py --results results --expected {params.searches:q}"
        " --output-html {output.html} --output-md {output.markdown} > {log} 2>&1"
