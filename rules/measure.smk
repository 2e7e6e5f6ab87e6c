"""Reads environment, model and requests; makes results/runs/<run_id>: serve, load, stop.

The only rule that holds an accelerator. A run's name is a hash of everything that can change it, so its inputs are
`ancient` and its script is not an input: what is measured once is never measured again.
"""


rule measure:
    input:
        environment=lambda wildcards: engine_environment(spec_of(wildcards.run_id)),
        client_environment=lambda wildcards: client_environment(
            spec_of(wildcards.run_id)
        ),
        model=lambda wildcards: ancient(model_file(spec_of(wildcards.run_id).model)),
        requests=lambda wildcards: requests_file(spec_of(wildcards.run_id)),
    output:
        status="results/runs/{run_id}/status.json",
        spec="results/runs/{run_id}/spec.json",
        requests="results/runs/{run_id}/requests.parquet",
        telemetry="results/runs/{run_id}/telemetry.parquet",
        manifest="results/runs/{run_id}/manifest.json",
        server_log="results/runs/{run_id}/server.log",
    log:
        "results/logs/measure/{run_id}.log",
    retries: 2
    conda:
        "../envs/workflow.yaml"
    threads: lambda wildcards: serving_threads(spec_of(wildcards.run_id))
    resources:
        accelerators=lambda wildcards: spec_of(wildcards.run_id).hardware.count,
    params:
        spec=lambda wildcards: spec_json(spec_of(wildcards.run_id)),
    shell:
        "python scripts/measure.py --spec {params.spec:q} --environment {input.environment}"
        " --client-environment {input.client_environment} --model {input.model}"
        " --requests {input.requests} --output results/runs/{wildcards.run_id} 2>&1 | tee -i {log}"
