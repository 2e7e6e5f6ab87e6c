"""Reads the archives of all studies; hands them over to where they are published, a bucket of S3 or a deposit of Zenodo.

Asked for by name, `snakemake publish`, in an environment that has the storage plugins (envs/publish.lock.txt), with the
place as `--config publish=s3://bucket/folder` or `publish=zenodo://deposition/<id>`. The plugins read credentials, from
the environment alone (docs/archive.md).
"""

if "publish" in config:
    PLACE = config["publish"].rstrip("/")

    rule publish_archive:
        input:
            file="results/archives/{file}",
        output:
            published=storage(f"{PLACE}/{{file}}"),
        log:
            "results/logs/publish_archive/{file}.log",
        wildcard_constraints:
            file=r".+\.zip(\.sig)?",
        shell:
            "cp {input.file} {output.published} 2> {log}"

    rule publish:
        input:
            lambda wildcards: [
                storage(f"{PLACE}/{archive_name(named)}{suffix}", retrieve=False)
                for suffix in ("", *([".sig"] if SIGNING.key else []))
                for named in (
                    checkpoints.name_archive.get(search=search).output.name
                    for search in STUDIES.searches
                )
            ],
