"""Reads finished studies, of this configuration or of other results; makes comparisons of two, and the index over all.

Neither makes or measures anything of a study that the default target would not.
"""


rule compare_studies:
    input:
        studies=lambda wildcards: COMPARISONS.inputs(wildcards.comparison),
        code=CODE,
    output:
        table="results/comparisons/{comparison}/comparison.parquet",
        html="results/comparisons/{comparison}/comparison.html",
        markdown="results/comparisons/{comparison}/comparison.md",
    log:
        "results/logs/compare_studies/{comparison}.log",
    conda:
        "../envs/workflow.yaml"
    params:
        folders=lambda wildcards: COMPARISONS.folders(wildcards.comparison),
        names=lambda wildcards: COMPARISONS.names(wildcards.comparison),
        elsewhere=lambda wildcards: COMPARISONS.elsewhere(wildcards.comparison),
    shell:
        'python "$SERVELAB_SCRIPTS"/compare_studies.py {params.folders:q} --names {params.names:q}'
        " --output $(dirname {output.table}) > {log} 2>&1"


rule render_index:
    input:
        # asked for alone, the index shows what is there, and makes nothing
        listed=lambda wildcards: (
            COMPARISONS.listed()
            if set(workflow.dag_settings.targets) <= {"all"}
            else []
        ),
        code=CODE,
    output:
        html="results/index.html",
        markdown="results/index.md",
    log:
        "results/logs/render_index.log",
    localrule: True
    conda:
        "../envs/workflow.yaml"
    params:
        files=rule_files,
        expected=" ".join(STUDIES.searches),
    shell:
        call("render_index", "files", "expected")
