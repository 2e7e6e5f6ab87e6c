"""Reads finished studies, of this configuration or of other results; makes comparisons of two, and the index over all.

Neither makes or measures anything of a study that the default target would not.
"""

from servelab.compare.wanted import wanted_pairs
from servelab.identity import file_sha256

try:
    COMPARED = {
        "--".join(side.name for side in pair): pair
        for pair in wanted_pairs(config.get("compare", []), SEARCHES, RESULTS)
    }
except ServelabError as error:
    raise WorkflowError(str(error))

READ_OF_STAGES = ("plan.json", "table.parquet", "rounds.parquet", "metrics.parquet")


wildcard_constraints:
    comparison=r"[a-z0-9][a-z0-9._-]*",


def compared_sides(wildcards):
    """The two studies of a comparison."""
    if wildcards.comparison not in COMPARED:
        raise WorkflowError(
            f"{wildcards.comparison}: no such comparison; name it in config/config.yaml as `compare: [[first, second]]`"
        )
    return COMPARED[wildcards.comparison]


def compared_here(wildcards):
    """What is read of the studies that this workflow makes; their runs are read too, and are there when these are."""
    files = []
    for side in compared_sides(wildcards):
        if side.search:
            files += expand(
                f"{side.folder}/{{name}}",
                name=["study.json", "recommended.json", "report.html"],
            )
            files += [
                file
                for name in READ_OF_STAGES
                for file in stage_files(side.search, name, all_stages(side.search))
            ]
    return files


def compared_elsewhere(wildcards):
    """Contents of the tables of the other studies: no job makes them, so that they are no input."""
    tables = [
        file
        for side in compared_sides(wildcards)
        if not side.search
        for file in sorted(side.folder.glob("stages/*/*.parquet"))
    ]
    return canonical_json({str(file): file_sha256(file) for file in tables})


def asks_for_all():
    """Whether the default target is asked for, by name or by asking for nothing else."""
    return set(workflow.dag_settings.targets) <= {"all"}


def listed(wildcards):
    """What the index is made from where all is asked for; asked for alone, it shows what is there and makes nothing."""
    if not asks_for_all():
        return []
    names = ("study.json", "recommended.json", "report.html")
    return [
        *expand("results/{search}/{name}", search=SEARCHES, name=names),
        *expand("results/comparisons/{name}/comparison.html", name=COMPARED),
    ]


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
