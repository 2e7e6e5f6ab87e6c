"""Reads the sources named in the configuration; makes results/datasets, results/models and results/envs.

Nothing here is keyed by time: a folder's name says what is in it, so it is made once. `update` keeps Snakemake from
removing what another workflow has made, and may be using, before the job that would make it again.
"""


rule download_dataset:
    output:
        dataset=update("results/datasets/{dataset}-{content}/dataset.json"),
    log:
        "results/logs/download_dataset/{dataset}-{content}.log",
    retries: 1
    params:
        files=rule_files,
    shell:
        call("download_dataset", "files", log=SHOWN)


rule download_model:
    output:
        model=update("results/models/{model_key}/model.json"),
    log:
        "results/logs/download_model/{model_key}.log",
    retries: 1
    params:
        files=rule_files,
        source=lambda wildcards: spec_json(SOURCES.model(wildcards.model_key)),
    shell:
        call("download_model", "files", "source", log=SHOWN)


rule build_environment:
    input:
        lock=lambda wildcards: ancient(
            str(SOURCES.environment(wildcards.tool, wildcards.lock_hash).lock)
        ),
    output:
        environment=update("results/envs/{tool}-{lock_hash}/environment.json"),
    log:
        "results/logs/build_environment/{tool}-{lock_hash}.log",
    retries: 1
    params:
        files=rule_files,
        runtime=lambda wildcards: (
            SOURCES.environment(wildcards.tool, wildcards.lock_hash).runtime
        ),
    shell:
        call("build_environment", "files", "runtime", log=SHOWN)
