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
    conda:
        "../envs/workflow.yaml"
    shell:
        'python "$SERVELAB_SCRIPTS"/download_dataset.py --datasets config/datasets.yaml --name {wildcards.dataset}'
        " --content {wildcards.content} --output {output.dataset} 2>&1 | tee -i {log}"


rule download_model:
    output:
        model=update("results/models/{model_key}/model.json"),
    log:
        "results/logs/download_model/{model_key}.log",
    retries: 1
    conda:
        "../envs/workflow.yaml"
    params:
        source=lambda wildcards: spec_json(SOURCES.model(wildcards.model_key)),
    shell:
        'python "$SERVELAB_SCRIPTS"/download_model.py --source {params.source:q}'
        " --output {output.model} 2>&1 | tee -i {log}"


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
    conda:
        "../envs/workflow.yaml"
    params:
        runtime=lambda wildcards: (
            SOURCES.environment(wildcards.tool, wildcards.lock_hash).runtime
        ),
    shell:
        'python "$SERVELAB_SCRIPTS"/build_environment.py --tool {wildcards.tool} --runtime {params.runtime}'
        " --lock {input.lock:q} --output {output.environment} 2>&1 | tee -i {log}"
