"""The inputs of runs: environments, models, datasets and workloads, and where each comes from."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import NamedTuple

from servelab.core.errors import ConfigError
from servelab.core.identity import canonical_json, content_id, lock_sha256, workload_id
from servelab.core.run_spec import ModelSource, ModelSpec, RunSpec, Strict, WorkloadSpec
from servelab.engines.adapters import ENGINES
from servelab.measure.environment_gate import settings_id
from servelab.search.preflight.place import known_candidates
from servelab.study.predictions import KERNEL_TIMINGS
from servelab.study.project import Project
from servelab.study.spec_builder import served_settings


class LockedEnvironment(NamedTuple):
    """An environment that a rule builds from a lock."""

    tool: str
    runtime: str
    lock: Path


class Sources:
    """Sources of all live studies."""

    def __init__(self, projects: Mapping[str, Project]) -> None:
        self._engines = {
            environment_file(project.engine(alias).name, project.environment_sha256(alias)): LockedEnvironment(
                project.engine(alias).name, project.study.engines[alias].runtime, project.lock(alias)
            )
            for project in projects.values()
            for alias in project.study.engines
        }
        clients = {
            environment_file(client.name, client.environment_sha256): LockedEnvironment(client.name, "venv", lock)
            for client, lock in ((project.client_spec(), project.client_lock) for project in projects.values())
            if lock and client.environment_sha256
        }
        self._environments = self._engines | clients
        for lock in filter(None, (project.timings_lock for project in projects.values())):
            self._environments[timings_file(lock)] = LockedEnvironment(KERNEL_TIMINGS, "venv", lock)
        self._projects = projects
        self._settings_ids = cache(self._settings_id)
        self.models: dict[str, ModelSource] = {
            source_id(source): source
            for study in (project.study for project in projects.values())
            for source in (
                *map(study.model.variant_source, ["base", *study.model.variants]),
                *study.model.second_sources.values(),
            )
        }
        self.workloads: dict[str, tuple[WorkloadSpec, str | None]] = {
            workload_id(spec): (spec, project.workloads[name].dataset)
            for project in projects.values()
            for name in project.study.workloads
            for spec in [project.workload_spec(name)]
        } | {
            workload_id(spec): (spec, project.questions_dataset)
            for project in projects.values()
            if project.study.answers is not None
            for spec in [project.questions_spec()]
        }

    def environment(self, tool: str, lock_hash: str) -> LockedEnvironment:
        """An environment by the tool and the hash in its folder's name."""
        return self._environments[environment_file(tool, lock_hash)]

    def check_of(self, spec: RunSpec, files: Mapping[str, str]) -> list[str]:
        """The check that a run's environment must pass first, with the run's model; see `MeasuringJobs`."""
        if files["environment"] not in self._engines:
            return []
        folder, facts = Path(files["environment"]).parent, ENGINES.get(spec.engine.name).facts
        # converted weights are another model only to a check that reads them
        is_read = facts is not None and (facts.tokenizer or facts.configuration)
        model = Path(files["model"]).parent.name if is_read else source_id(spec.model.source)
        return [f"{folder}/checked-{model}-{self._settings_ids(files['environment'])}.json"]

    def checked_for(self, tool: str, lock_hash: str) -> list[str]:
        """Files of the studies that serve from an environment."""
        used = self._served_from(environment_file(tool, lock_hash))
        return list(dict.fromkeys(str(project.file) for project, _ in used))

    def _served_from(self, environment: str) -> list[tuple[Project, str]]:
        return [
            (project, alias)
            for project in self._projects.values()
            for alias in project.study.engines
            if environment_file(project.engine(alias).name, project.environment_sha256(alias)) == environment
        ]

    def _settings_id(self, environment: str) -> str:
        (project, alias), *_ = used = self._served_from(environment)
        return settings_id(project.engine(alias), project.study.hardware.device, served_settings(used))

    def missing(self, results: Path) -> list[str]:
        """Environments, models and requests of all studies, whatever they find, that are not there yet."""
        candidates = (known for each in self._projects.values() for known in known_candidates(each, results))
        files = [
            file for known in candidates for run in known.planned.measured_runs for file in run_files(run.spec).values()
        ]
        files += [*self._environments, *(f"results/workloads/{each}/requests.parquet" for each in self.workloads)]
        return sorted({file for file in files if not Path(file).exists()})

    def datasets(self, workload: str) -> list[str]:
        """The dataset that a workload draws from, if it draws from one; edited under its name it is another one."""
        spec, dataset = self.workloads[workload]
        if dataset is None:
            return []
        return [f"results/datasets/{dataset}-{spec.parameters['dataset_sha256'][:12]}/dataset.json"]

    def tokenizer(self, workload: str) -> str:
        """The model whose tokenizer counts a workload's tokens."""
        return fetched_file(self.workloads[workload][0].tokenizer)

    def converter(self, model_format: str) -> str:
        """The environment of an engine that serves a format: it has the libraries that write it.

        One that was built from a lock, as the Python of a container or of the host cannot be run from here.
        """
        for file, environment in self._engines.items():
            if environment.runtime == "venv" and model_format in ENGINES.get(environment.tool).model_formats:
                return file
        raise ConfigError(
            f"no engine of the studies serves {model_format} from an environment that is built from a lock, so nothing"
            " here can convert to it"
        )


def timings_file(lock: Path) -> str:
    """The environment of kernel timings that is built from a lock."""
    return environment_file(KERNEL_TIMINGS, lock_sha256(lock))


def environment_file(tool: str, sha256: str) -> str:
    """The marker of an engine's or a load client's environment, named by its lock's content."""
    return f"results/envs/{tool}-{sha256[:12]}/environment.json"


def model_file(model: ModelSpec) -> str:
    """The description of a model's files, in the format that its engine wants."""
    suffix = f"-{model.quantization or model.format}" if model.conversion else ""
    return f"results/models/{source_id(model.source)}{suffix}/model.json"


def fetched_file(source: ModelSource) -> str:
    """The description of a model as it is at its source."""
    return f"results/models/{source_id(source)}/model.json"


@cache
def source_id(source: ModelSource) -> str:
    """The name of a model's folder."""
    return content_id(source.model_dump(mode="json"))


def run_files(spec: RunSpec) -> dict[str, str]:
    """Files that a run is made from, by their names in a job."""
    engine, client = spec.engine, spec.client
    files = {
        "environment": environment_file(engine.name, engine.environment_sha256),
        "model": model_file(spec.model),
        "requests": f"results/workloads/{workload_id(spec.workload)}/requests.parquet",
    }
    files |= {name: fetched_file(source) for name, source in spec.model.second_models.items()}
    if client.environment_sha256 is not None:
        files["client_environment"] = environment_file(client.name, client.environment_sha256)
    return files


def spec_json(spec: Strict) -> str:
    """A specification as one line of sorted JSON: equal content is an equal parameter."""
    return canonical_json(spec.model_dump(mode="json"))
