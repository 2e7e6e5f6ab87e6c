"""Finds the studies that are compared and listed, and what is read of them. Makes nothing."""

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
