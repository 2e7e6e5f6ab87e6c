"""Every file that a study leaves below `results/`: its content, and its table or model."""

from __future__ import annotations

import re
from dataclasses import dataclass

from servelab.assets.pinned_file import StoredDataset, StoredModel, StoredWorkload
from servelab.core.files import JsonFile
from servelab.core.run_spec import RunSpec
from servelab.engines.runtimes import Environment
from servelab.measure.environment_gate import CheckedEnvironment
from servelab.measure.run_files import ImportedRun, RunManifest, RunStatus, SignedRun
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


_STAGE = "studies/<study>/stages/<stage>/"

FILES: tuple[OutputFile, ...] = (
    OutputFile("index.{html,md}", "all studies: what each found, and its report"),
    OutputFile(
        "runs/<run_id>/spec.json",
        "everything that can change the measurement; its hash is the run's name",
        models=(RunSpec,),
    ),
    OutputFile(
        "runs/<run_id>/status.json",
        "outcome; for a failure its reason and the log lines that explain it; the run's seal",
        models=(RunStatus,),
    ),
    OutputFile(
        "runs/<run_id>/requests.parquet",
        "a row a request, the raw records every figure is computed from",
        "run_requests",
    ),
    OutputFile(
        "runs/<run_id>/steps.parquet",
        "of a run that searched for its capacity: the requests of all its steps, each as a round",
        "run_requests",
    ),
    OutputFile(
        "runs/<run_id>/answers.parquet",
        "of a run that was asked questions: what was asked and answered, a row a question",
        "run_answers",
    ),
    OutputFile(
        "runs/<run_id>/telemetry.parquet", "what machine, accelerators and server did in each round", "telemetry"
    ),
    OutputFile(
        "runs/<run_id>/manifest.json",
        "the machine and the devices it had, the command, versions and hashes",
        models=(RunManifest,),
    ),
    OutputFile(
        "runs/<run_id>/server.log",
        "what the server printed, without credentials; of more than 8 MiB the first and the last half of that",
    ),
    OutputFile(
        "runs/<run_id>/signed.json",
        "what was measured, if a key signs runs (archive.md); its signature is `signed.json.sig`",
        models=(SignedRun,),
    ),
    OutputFile("runs/<run_id>/signed.json.sig", "its signature"),
    OutputFile(
        "runs/<run_id>/imported.json",
        "from which archive the run was restored; a run that was measured here has none",
        models=(ImportedRun,),
    ),
    OutputFile("runs/set-aside/", "runs whose files were not those of their seal; may be deleted at any time"),
    OutputFile(
        "studies/<study>/preflight.json",
        "what could be told before it was measured: a list, a row a check and candidate",
    ),
    OutputFile("studies/<study>/study.json", "the study, with titles of its workloads", models=(StudySummary,)),
    OutputFile(f"{_STAGE}plan.json", "candidates of a stage and their runs", models=(Plan, RecordedPlan)),
    OutputFile(f"{_STAGE}table.parquet", "a row a candidate and workload", "stage_table"),
    OutputFile(
        f"{_STAGE}points.parquet",
        "a row a candidate and point at which nothing is decided: of the curve that decides; if recorded, of all",
        "stage_table",
    ),
    OutputFile(f"{_STAGE}metrics.parquet", "metrics of its runs", "metrics"),
    OutputFile(f"{_STAGE}rounds.parquet", "their values in each round", "rounds"),
    OutputFile(f"{_STAGE}checks.parquet", "what the checks made of its runs", "checks"),
    OutputFile(f"{_STAGE}timeline.parquet", "requests in flight and tokens over the time of each round", "timeline"),
    OutputFile(
        f"{_STAGE}answers.parquet",
        "answers of its candidates beside the baseline's; empty if nothing was asked",
        "stage_answers",
    ),
    OutputFile(f"{_STAGE}decision.json", "who won the stage, and why", models=(Decision,)),
    OutputFile("studies/<study>/metrics.parquet", "every metric of every run of the study", "metrics"),
    OutputFile("studies/<study>/checks.parquet", "every check of every run of the study", "checks"),
    OutputFile("studies/<study>/improvements.parquet", "percentages against the baseline", "improvements"),
    OutputFile(
        "studies/<study>/recommended.json",
        "the serving command to use, and its gain on every workload",
        models=(Recommended,),
    ),
    OutputFile(
        "studies/<study>/answers/<versions_id>.json",
        "that answer under each set of versions of the engines",
        models=(StudyAnswer,),
    ),
    OutputFile("studies/<study>/answers.parquet", "these answers, a row each", "answers"),
    OutputFile("studies/<study>/history.parquet", "each configuration at two versions of its engine", "history"),
    OutputFile("studies/<study>/curves.parquet", "each configuration at each point of each curve", "curves"),
    OutputFile("studies/<study>/report.html", "the report"),
    OutputFile("studies/<study>/report.md", "its answer, to paste into a pull request or a chat"),
    OutputFile("studies/<study>/charts/", "its charts, each as SVG, PNG and Vega-Lite JSON"),
    OutputFile("studies/<study>/tables/", "the tables behind the report, as CSV and as Parquet"),
    OutputFile(
        "studies/<study>/search.parquet", "every candidate: tried, failed or not run, why, and what it took", "search"
    ),
    OutputFile("studies/<study>/device_series.parquet", "telemetry of the accelerators over time", "device_series"),
    OutputFile("recorded/<study>/claims.parquet", "what was published, computed again from the logs", "claims"),
    OutputFile("recorded/<study>/logs/", "a copy of the logs"),
    OutputFile(
        "comparisons/<a>--<b>/comparison.parquet",
        "two studies side by side, a row a pair of runs and metric",
        "comparison",
    ),
    OutputFile("comparisons/<a>--<b>/comparison.{html,md}", "the same to read"),
    OutputFile("archives/", "archives of studies (archive.md)"),
    OutputFile(
        "workloads/<workload_id>/requests.parquet",
        "the exact requests, for every engine; questions have `question`, `expected`, `grader` and `stop` besides",
        "workload_requests",
    ),
    OutputFile("workloads/<workload_id>/workload.json", "what they are", models=(StoredWorkload,)),
    OutputFile("datasets/<dataset>-<sha256>/dataset.json", "a dataset: source, hash, licence", models=(StoredDataset,)),
    OutputFile("datasets/<dataset>-<sha256>/", "the dataset itself; 12 characters of its sha256"),
    OutputFile("models/<model>/model.json", "a model's files", models=(StoredModel,)),
    OutputFile("models/<model>/", "weights and tokenizer"),
    OutputFile(
        "envs/<tool>-<lock>/environment.json", "an engine's or a load client's environment", models=(Environment,)
    ),
    OutputFile(
        "envs/<tool>-<lock>/checked-<model>-<settings>.json",
        "that it can serve a model with what studies set (engines.md)",
        models=(CheckedEnvironment,),
    ),
    OutputFile("envs/<tool>-<lock>/", "the environment itself"),
    OutputFile("logs/", "what each job printed"),
    OutputFile("bench/", "figures of `make bench` (evidence.md)"),
)
"""All of them, in the order of the page; a recorded study leaves in `recorded/` what a live one does in `studies/`."""


def named(path: str) -> OutputFile | None:
    """The entry of a path below `results/`; None for one that the page does not name."""
    if path.startswith("recorded/"):
        own = next((file for file in FILES if file.matches(path)), None)
        return own or named(path.replace("recorded/", "studies/", 1))
    return next((file for file in FILES if file.matches(path)), None)
