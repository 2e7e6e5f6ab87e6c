"""Files of a study: what a rule reads of its stages, and everything that the workflow makes of it."""

from __future__ import annotations

from pathlib import Path

from servelab.archive.contents import made_of
from servelab.core.files import own_or_shipped
from servelab.core.identity import file_sha256
from servelab.results.parse import TABLES
from servelab.search.versions import study_versions, versions_id
from servelab.study.project import LIVE, RECORDED, is_live, name_of, study_file, study_path
from servelab.study.study import CONFIRM_FIRST, PROOF_STAGES
from servelab.workflow.studies import Studies

Files = dict[str, str | list[str]]
"""Files by the names that a rule gives its inputs."""


def stage_tables(search: str) -> dict[str, str]:
    """The tables of each stage by name, as outputs of the rule that parses the stages of a study."""
    names = [name for name in TABLES if name != "answers" or is_live(search)]  # nothing was asked where logs are read
    return {name: stage_file(search, "{stage}", f"{name}.parquet") for name in names}


class StudyFiles:
    """Paths as Snakemake takes them, from the folder of the project."""

    def __init__(self, studies: Studies) -> None:
        self._studies = studies

    def of_stages(self, search: str, name: str) -> list[str]:
        """The file of that name of each of a study's stages, without those before `confirm`."""
        return [stage_file(search, stage, name) for stage in self._studies.stages(search)]

    def of_deciding_stages(self, search: str, name: str) -> list[str]:
        """The file of that name of each stage of the search."""
        return [stage_file(search, stage, name) for stage in self._studies.deciding_stages(search)]

    def of_last_stage(self, search: str, name: str) -> str:
        """The file of that name of the reserved last stage, which has baseline and winner."""
        return stage_file(search, self._studies.last_stage(search), name)

    def previous_stage(self, search: str, stage: str) -> Files:
        """Plan and decision of the stage before, whose winner this one starts from."""
        stages = self._studies.stages(search)
        position = stages.index(stage)
        if position == 0:
            return {}
        names = {"previous_plan": "plan.json", "previous_decision": "decision.json"}
        return {option: stage_file(search, stages[position - 1], name) for option, name in names.items()}

    def past_stages(self, study: str, stage: str) -> Files:
        """Plans, decisions and tables of a live study's stages of the search before this one.

        For a stage of the proof, plan and table of the one before it as well.
        """
        search = f"{LIVE}/{study}"
        deciding = self._studies.deciding_stages(search)
        past = deciding[: deciding.index(stage)] if stage in deciding else deciding
        names = {"past_plans": "plan.json", "past_decisions": "decision.json", "past_tables": "table.parquet"}
        files: Files = {
            option: [stage_file(search, each, name) for each in past] for option, name in names.items() if past
        }
        if stage in PROOF_STAGES[1:]:
            files |= self._proof_stage(search, PROOF_STAGES[PROOF_STAGES.index(stage) - 1])
        return files

    def first_pairs(self, search: str) -> Files:
        """Plan and table of `confirm-first`; a recorded study has none."""
        return self._proof_stage(search, CONFIRM_FIRST) if is_live(search) else {}

    @staticmethod
    def _proof_stage(search: str, stage: str) -> Files:
        return {
            "before_plan": stage_file(search, stage, "plan.json"),
            "before_table": stage_file(search, stage, "table.parquet"),
        }

    def referred(self, search: str) -> Files:
        """Files that a live study's file refers to; a recorded study's file refers to none that the script reads.

        The locks are those of its engines and its client: their content is part of every run's identity.
        """
        if not is_live(search):
            return {}
        project = self._studies.live[name_of(search)]
        locks = {project.client_lock, *(project.lock(alias) for alias in project.study.engines)}
        return {
            "workloads": str(own_or_shipped(Path(), "config/workloads.yaml")),
            "datasets": str(own_or_shipped(Path(), "config/datasets.yaml")),
            "locks": sorted(str(lock) for lock in locks if lock),
        }

    def sha256(self, search: str) -> str:
        """sha256 of a study's file, as a parameter of each rule that reads it.

        Of an input, Snakemake compares the time only. A file that was copied with its old time, or edited after the
        clock was set back, is older than what was made of it.
        """
        return file_sha256(Path(study_file(search)))

    def answer(self, study: str) -> str:
        """Where a live study's answer is kept under the versions that its engines have now."""
        return f"results/{LIVE}/{study}/answers/{versions_id(study_versions(self._studies.live[study]))}.json"

    def logs(self, study: str) -> list[str]:
        """The logs of a recorded study that are there; the audit lists the others."""
        folder = study_path(f"{RECORDED}/{study}")
        files = dict.fromkeys(file for _, _, file in self._studies.recorded[study].log_files())
        named = [f"{folder}/logs/{file}" for file in files]
        return [path for path in named if Path(path).is_file()]

    def siblings(self, study: str) -> list[str]:
        """Files of the recorded studies beside one: its audit looks in them for figures that are not its own."""
        folders = sorted(study_path(f"{RECORDED}/{study}").parent.glob("*/study.yaml"))
        others = [file.parent for file in folders if file.parent.name != study]
        return [str(file) for folder in others for file in (folder / "study.yaml", *sorted(folder.glob("logs/*")))]

    def reports(self, search: str) -> list[str]:
        """A study's report, as a page and as text."""
        return [f"results/{search}/report.html", f"results/{search}/report.md"]

    def listed(self) -> list[str]:
        """Inputs of the index over all studies."""
        names = ("study.json", "recommended.json", "report.html")
        return [f"results/{search}/{name}" for search in self._studies.searches for name in names]

    def made(self, search: str) -> list[str]:
        """Every file and folder that the workflow makes of a study: one that was deleted is made again."""
        per_stage = [stage_file(search, "{stage}", "plan.json"), *stage_tables(search).values()]
        stages = self._studies.planned_stages(search)
        files = [file.format(stage=stage) for file in per_stage for stage in stages]
        files += self.of_deciding_stages(search, "decision.json")
        files += [f"results/{search}/{name}" for name in made_of(search)]
        return files + ([self.answer(name_of(search))] if is_live(search) else [])


def stage_file(search: str, stage: str, name: str) -> str:
    """A file of a stage."""
    return f"results/{search}/stages/{stage}/{name}"


def tables_of_runs(search: str, *names: str) -> Files:
    """Tables of a live study that are made from records of runs; a recorded study has none."""
    return {name: f"results/{search}/{name}.parquet" for name in names} if is_live(search) else {}


def answers_of_stages(files: StudyFiles, search: str) -> list[str]:
    """The answers that each stage of a live study got; a recorded study has none."""
    return files.of_stages(search, "answers.parquet") if is_live(search) else []


def origin(search: str) -> Files:
    """Audit and logs of a recorded study, for its report."""
    folder = f"results/{search}"
    return {} if is_live(search) else {"claims": f"{folder}/claims.parquet", "logs": f"{folder}/logs"}
