"""Parts of rules: files of a study by name, and the command line of a function, which `servelab.core.cli` reads."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from servelab.archive.contents import made_of
from servelab.core.files import read_json
from servelab.results.parse import TABLES
from servelab.search.versions import study_versions, versions_id
from servelab.study.project import LIVE, RECORDED, is_live, name_of
from servelab.study.study import AFTER_SEARCH, CONFIRM_FIRST, PROOF_STAGES, SECOND_PROOF
from servelab.workflow.needs import timings_file
from servelab.workflow.studies import Studies

Files = dict[str, str | list[str]]
"""Files by the names that a rule gives its inputs."""
_OF_RUNS = ("history", "answers", "device_series")
"""Tables of a live study that are made from records of runs."""
SHOWN = "2>&1 | tee -i {log}"
UNREAD = ("made_from", "runs")
"""Inputs that no script reads by name: digests, and runs, which are found by the ids in a plan."""


def stage_file(search: str, stage: str, name: str) -> str:
    """A file of a stage."""
    return f"results/{search}/stages/{stage}/{name}"


def stage_tables(search: str) -> dict[str, str]:
    """The tables of each stage by name, as outputs of the rule that parses the stages of a study."""
    names = [name for name in TABLES if name != "answers" or is_live(search)]  # nothing was asked where logs are read
    return {name: stage_file(search, "{stage}", f"{name}.parquet") for name in names}


class StudyFiles:
    """Inputs of rules, as functions of a rule's wildcards: a `search`, or a `study` of one `kind`."""

    def __init__(self, studies: Studies) -> None:
        self._studies = studies

    def of_stages(self, name: str) -> Callable[[Any], list[str]]:
        """The file of that name of each of a study's stages, without those before `confirm`."""
        return lambda wildcards: self._of_stages(_search(wildcards), name)

    def of_deciding_stages(self, name: str, kind: str = LIVE) -> Callable[[Any], list[str]]:
        """The file of that name of each stage of the search."""
        return lambda wildcards: self._of_stages(_search(wildcards, kind), name)[:-1]

    def of_last_stage(self, name: str) -> Callable[[Any], str]:
        """The file of that name of the reserved last stage, which has baseline and winner."""
        return lambda wildcards: self._of_stages(_search(wildcards), name)[-1]

    def _of_stages(self, search: str, name: str) -> list[str]:
        return [stage_file(search, stage, name) for stage in self._studies.stages(search)]

    def previous_stage(self, wildcards: Any) -> Files:
        """Plan and decision of a recorded study's stage before, whose winner this one starts from."""
        search = _search(wildcards, RECORDED)
        position = self._studies.stages(search).index(wildcards.stage)
        names = {"previous_plan": "plan.json", "previous_decision": "decision.json"} if position else {}
        return {option: self._of_stages(search, name)[position - 1] for option, name in names.items()}

    def past_stages(self, wildcards: Any) -> Files:
        """Plans, decisions and tables of a live study's stages of the search before this one.

        For a stage of the proof, plan and table of the one before it as well.
        """
        search, stage = _search(wildcards), wildcards.stage
        stages = self._studies.stages(search)
        past = stages.index(stage) if stage in stages[:-1] else len(stages) - 1
        names = {"past_plans": "plan.json", "past_decisions": "decision.json", "past_tables": "table.parquet"}
        files: Files = {option: self._of_stages(search, name)[:past] for option, name in names.items() if past}
        if self._studies.live[wildcards.study].study.search.prior and stage not in AFTER_SEARCH:
            files["predicted"] = f"results/{search}/predicted.json"
        for proof in (SECOND_PROOF, PROOF_STAGES):
            if stage in proof[1:]:
                files |= _proof_stage(search, proof[proof.index(stage) - 1])
        return files

    def timings(self, wildcards: Any) -> Files:
        """The environment that predicts a study's speeds."""
        lock = self._studies.live[wildcards.study].timings_lock
        return {"environment": timings_file(lock)} if lock else {}

    def first_pairs(self, wildcards: Any) -> Files:
        """Plan and table of `confirm-first`, and the second proof of two objectives; a recorded study has none."""
        search = _search(wildcards)
        if not is_live(search):
            return {}
        names = {"second_plan": "plan.json", "second_table": "table.parquet", "second_metrics": "metrics.parquet"}
        has_two = self._studies.searches[search].objective.pareto
        second = {key: stage_file(search, SECOND_PROOF[-1], name) for key, name in names.items() if has_two}
        return _proof_stage(search, CONFIRM_FIRST) | second

    def of_runs(self, wildcards: Any) -> Files:
        """For the report: tables and answers from a live study's runs, or audit and logs of a recorded one."""
        search = _search(wildcards)
        folder = f"results/{search}"
        if not is_live(search):
            return {"claims": f"{folder}/claims.parquet", "logs": f"{folder}/logs"}
        tables: Files = {name: f"{folder}/{name}.parquet" for name in _OF_RUNS}
        return {**tables, "asked": self._of_stages(search, "answers.parquet")}

    def answer(self, study: str) -> str:
        """Where a live study's answer is kept under the versions that its engines have now."""
        return f"results/{LIVE}/{study}/answers/{versions_id(study_versions(self._studies.live[study]))}.json"

    def archive(self, search: str) -> str:
        """The file that names a study's archive; it is removed if the archive was, which is then made again."""
        named = Path(f"results/archives/{search}.json")
        if named.exists() and not ("results/archives" / Path(read_json(named)["archive"])).exists():
            named.unlink()
        return str(named)

    def listed(self) -> list[str]:
        """Inputs of the index over all studies."""
        names = ("study.json", "recommended.json", "report.html")
        return [f"results/{search}/{name}" for search in self._studies.searches for name in names]

    def made(self, search: str) -> list[str]:
        """Every file and folder that the workflow makes of a study: one that was deleted is made again."""
        per_stage = [stage_file(search, "{stage}", "plan.json"), *stage_tables(search).values()]
        stages = self._studies.planned_stages(search)
        files = [file.format(stage=stage) for file in per_stage for stage in stages]
        files += self._of_stages(search, "decision.json")[:-1]
        files += [f"results/{search}/{name}" for name in made_of(search)]
        return files + ([self.answer(name_of(search))] if is_live(search) else [])


def _search(wildcards: Any, kind: str = LIVE) -> str:
    return str(wildcards.get("search") or f"{kind}/{wildcards.study}")


def _proof_stage(search: str, stage: str) -> Files:
    return {
        "before_plan": stage_file(search, stage, "plan.json"),
        "before_table": stage_file(search, stage, "table.parquet"),
    }


def rule_files(wildcards: Any, input: Any, output: Any) -> str:
    """The parameter `files` of a rule: its files and wildcards by name, as JSON.

    Snakemake compares a rule's inputs by themselves, and not a parameter that is computed from them.
    """
    found = {
        "input": {name: _plain(files) for name, files in input.items() if name not in UNREAD},
        "output": {name: _plain(files) for name, files in output.items()},
        "wildcards": dict(wildcards.items()),
    }
    return json.dumps(found)


def call(function: str, *params: str, log: str = "> {log} 2>&1", python: str = "python") -> str:
    """The shell command of a rule: `<script>.<function>` with the rule's files and these of its parameters.

    `log` says where what the script prints goes; `SHOWN` shows it as well.
    """
    script, _, name = function.partition(".")
    words = " ".join(f"{param}={{params.{param}:q}}" for param in ("files", *params))
    return f'{python} "$SERVELAB_SCRIPTS"/{script}.py {name} {words} {log}'


def _plain(files: Any) -> str | list[str]:
    return str(files) if isinstance(files, str) else [str(each) for each in files]
