"""Reads the archives of all studies; hands them over to where they are published, a bucket of S3 or a deposit of Zenodo.

Asked for by name, `snakemake publish`, in an environment that has the storage plugins (envs/publish.lock.txt), with the
place as `--config publish=s3://bucket/folder` or `publish=zenodo://deposition/<id>`. The plugins read credentials, from
the environment alone (docs/publish.md).
"""

if "publish" in config:
    PLACE = config["publish"].rstrip("/")

    rule publish_archive:
        input:
            archive="results/archives/{archive}.zip",
        output:
            published=storage(f"{PLACE}/{{archive}}.zip"),
        log:
            "results/logs/publish_archive/{archive}.log",
        conda:
            "../envs/workflow.yaml"
        shell:
            "cp {input.archive} {output.published} 2> {log}"

    rule publish:
        input:
            lambda wildcards: [
                storage(
                    f"{PLACE}/{Path(archive).relative_to('results/archives')}",
                    retrieve=False,
                )
                for archive in archives_of_all_studies(wildcards)
            ],
