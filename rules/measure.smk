"""Reads environments, models and requests; makes results/runs/<run_id>: serve, load, stop.

The only rule that reserves an accelerator. A job is a server start that serves every run still missing of it, or of a
proof, a pair of them. It is named by the last of these runs. A run's name is a hash of everything that can
change it: what was measured is never measured again. No rule asks for a complete run, so its inputs and its script are
not compared.
"""


rule measure:
    input:
        lambda wildcards: JOBS.files(wildcards.run_id),
    output:
        # `update`: Snakemake removes an output before its job, and another workflow may have measured the run meanwhile.
        # The folder appears in one step and is the job's last, so this file implies all of its runs.
        manifest=update("results/runs/{run_id}/manifest.json"),
    log:
        "results/logs/measure/{run_id}.log",
    # a job on a cluster fails at once: the workflow tries again, with a job of its own
    retries: 2 if workflow.is_main_process else 0
    threads: lambda wildcards: PLACEMENTS.threads(JOBS.hardware(wildcards.run_id))
    resources:
        **PLACEMENTS.resources(
            lambda wildcards, attempt: PLACEMENTS.job(wildcards.run_id, attempt)
        ),
        accelerators=PLACEMENTS.accelerators(),
    params:
        files=rule_files,
        job=lambda wildcards: JOBS.json(wildcards.run_id),
        names=NAMES,
    shell:
        call("measure.measure", "job", "names", log=SHOWN)
