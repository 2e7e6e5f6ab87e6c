"""Makes the index over all studies, from what is in the results folder."""


rule render_index:
    input:
        # asked for alone, the index shows what is there, and makes nothing
        listed=lambda wildcards: (
            FILES.listed() if set(workflow.dag_settings.targets) <= {"all"} else []
        ),
        code=CODE,
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
        call("render_index", "files", "expected")
