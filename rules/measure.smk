"""Reads environment, model and requests; makes results/runs/<run_id>: serve, load, stop.

The only rule that holds an accelerator. A run's name is a hash of everything that can change it: what is measured once
is never measured again, so that nothing asks for a complete run, and its inputs and its script are not compared.
"""


rule measure:
    input:
        # of what is there Snakemake need not know: it would look at each file for each of thousands of runs
        unpack(with_signature(lambda wildcards: needs_of(wildcards.run_id).not_there())),
    output:
        # `update`: Snakemake removes an output before its job, and another workflow may have measured the run meanwhile.
        # The folder appears in one step, so that this file stands for all of it.
        manifest=update("results/runs/{run_id}/manifest.json"),
    log:
        "results/logs/measure/{run_id}.log",
    # a job on a cluster fails at once: the workflow tries again, with a job of its own
    retries: 2 if workflow.is_main_process else 0
    conda:
        "../envs/workflow.yaml"
    threads: with_signature(lambda wildcards: run_threads(needs_of(wildcards.run_id).hardware))
    resources:
        **asked_of_cluster(lambda *job: run_request(*job)),
        accelerators=accelerators_of_runs(),
    params:
        options=with_signature(lambda wildcards: run_options(wildcards.run_id)),
    shell:
        "python scripts/measure.py {params.options} --output results/runs/{wildcards.run_id} 2>&1 | tee -i {log}"
