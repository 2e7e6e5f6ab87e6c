"""Every file that a study leaves below `results/`: its content, and its table or model."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from servelab.assets.pinned_file import StoredDataset, StoredModel, StoredWorkload
from servelab.core.files import JsonFile
from servelab.core.run_spec import RunSpec
from servelab.core.yaml_file import read_yaml
from servelab.engines.runtimes import Environment
from servelab.measure.environment_gate import CheckedEnvironment
from servelab.measure.run_files import ImportedRun, RunManifest, RunStatus
from servelab.search.decision import Decision
from servelab.search.recommended import Recommended
from servelab.search.versions import StudyAnswer
from servelab.study.plan import Plan
from servelab.study.project import StudySummary
from servelab.study.recorded.plan import RecordedPlan


@dataclass(frozen=True)
class OutputFile:
    """A file, or all files below a folder where the name ends with `/`."""

    name: str
    """Below `results/`; `<…>` stands for one name, `{a,b}` for either."""
    text: str
    table: str | None = None
    """Its columns: a name of schemas.TABLES."""
    models: tuple[type[JsonFile], ...] = ()
    """What a JSON file holds; several if a live and a recorded study differ."""

    def matches(self, path: str) -> bool:
        """Whether a path below `results/` is this file, or lies in this folder."""
        parts = re.split(r"(<[^>]+>|\{[^}]+\})", self.name)
        pattern = "".join(_pattern(part) for part in parts)
        return re.fullmatch(pattern + (".*" if self.name.endswith("/") else ""), path) is not None


def _pattern(part: str) -> str:
    if part.startswith("<"):
        return "[^/]+"
    if part.startswith("{"):
        return f"(?:{'|'.join(re.escape(each) for each in part[1:-1].split(','))})"
    return re.escape(part)


_MODELS: dict[str, type[JsonFile]] = {
    model.__name__: model
    for model in (
        *(CheckedEnvironment, Decision, Environment, ImportedRun, Plan, Recommended, RecordedPlan, RunManifest),
        *(RunSpec, RunStatus, StoredDataset, StoredModel, StoredWorkload, StudyAnswer, StudySummary),
    )
}

FILES = tuple(
    OutputFile(**row | {"models": tuple(_MODELS[name] for name in row.get("models", ()))})
    for row in read_yaml(Path(__file__).with_name("files.yaml"))
)
"""All of them, in the order of the page; a recorded study leaves in `recorded/` what a live one does in `studies/`."""


def named(path: str) -> OutputFile | None:
    """The entry of a path below `results/`; None for one that the page does not name."""
    if path.startswith("recorded/"):
        own = next((file for file in FILES if file.matches(path)), None)
        return own or named(path.replace("recorded/", "studies/", 1))
    return next((file for file in FILES if file.matches(path)), None)
