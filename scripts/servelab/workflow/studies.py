"""The studies that the configuration of a workflow names, live and recorded, and the stages of each."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from pydantic import BeforeValidator, Field, ValidationError

from servelab.core.credentials import refuse_credentials
from servelab.core.errors import ConfigError, Outage
from servelab.core.registry import nearest
from servelab.core.run_spec import HardwareSpec, Strict
from servelab.core.ssh_signature import SigningKey
from servelab.core.yaml_file import describe_validation_error
from servelab.machine import allocations
from servelab.machine.device_names import WantedDevices
from servelab.machine.devices import DEVICES
from servelab.search.course import Step, follow
from servelab.search.forecast import forecast
from servelab.search.preflight import preflight, troubles
from servelab.search.preflight.environment import look_at
from servelab.search.preflight.place import Place
from servelab.search.project import load_project
from servelab.search.strategies import stage_names
from servelab.study.configuration import accelerator_counts
from servelab.study.project import LIVE, RECORDED, Project, SearchedStudy
from servelab.study.recorded.study import RecordedStudy, load_recorded
from servelab.study.study import AFTER_SEARCH, LAST_STAGES, Study

if TYPE_CHECKING:
    from servelab.archive.restore import SharedRuns

SOURCE = "config/config.yaml or --config"


def _listed(value: Any) -> Any:
    """`--config studies=name` is one study."""
    return [value] if isinstance(value, str) else value


Name = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9._-]*$")]
Names = Annotated[list[Name], BeforeValidator(_listed)]


class WorkflowConfig(Strict):
    """Every key that the workflow reads; an unknown one is an error."""

    studies: Names = Field(description="Names of files in config/studies/, without `.yaml`.")
    recorded: Names = Field([], description="Names of folders in config/recorded/.")
    site: Name | None = Field(None, description="Name of a file in config/sites/, without `.yaml`.")
    site_file: str | None = Field(None, description="The site's file, if a profile names one elsewhere.")
    again: Names = Field(
        [], description="Runs to measure again: `disturbed`, `failed`, `nothing`, or beginnings of ids."
    )
    runs_from: Annotated[list[str], BeforeValidator(_listed)] = Field(
        [], description="Results folders in which missing runs are looked for before they are measured."
    )
    sign: SigningKey | None = Field(None, description="Key that signs; default: none.")


def read_configuration(config: Mapping[str, Any]) -> WorkflowConfig:
    """The typed configuration; `ConfigError` names the key, and the nearest one if it is unknown."""
    refuse_credentials(config, SOURCE)
    try:
        return WorkflowConfig.model_validate(dict(config))
    except ValidationError as error:
        raise ConfigError(describe_validation_error(error, SOURCE, WorkflowConfig)) from None


def shared_runs(config: WorkflowConfig, results: Path, report: Callable[[str], None]) -> SharedRuns | None:
    """The runs of the places in `runs_from`; None if it is empty.

    `report` gets one line per run that cannot be used.
    """
    if not config.runs_from:
        return None
    from servelab.archive.restore import SharedRuns  # takes a second, and few studies have such a place

    return SharedRuns(config.runs_from, results, report)


Entry = TypeVar("Entry")


class _Named(dict[str, Entry]):
    """Studies by name; a file that is asked for may be of a study that the configuration does not name."""

    def __missing__(self, name: str) -> Entry:
        fix = "name it in config/config.yaml, or for once: --config 'studies=[…]' (or 'recorded=[…]')"
        raise ConfigError(f"{name}: no study of this configuration{nearest(name, list(self))}; {fix}")


@dataclass(frozen=True)
class Studies:
    """Checked studies by their names. A live and a recorded study may have the same name."""

    live: Mapping[str, Project]
    recorded: Mapping[str, RecordedStudy]

    @cached_property
    def searches(self) -> dict[str, SearchedStudy]:
        """Every study by its search, live ones first."""
        live = {f"{LIVE}/{name}": project.study for name, project in self.live.items()}
        return _Named({**live, **{f"{RECORDED}/{name}": study for name, study in self.recorded.items()}})

    def stages(self, search: str) -> list[str]:
        """Names of a study's stages in order, the reserved last one included.

        A proof is one of them, `confirm`; the stages before it only say how many pairs it needs, or that its winner
        changes answers.
        """
        return [stage for stage in self.planned_stages(search) if stage in LAST_STAGES or stage not in AFTER_SEARCH]

    def planned_stages(self, search: str) -> list[str]:
        """All stages that have a plan: the same with `confirm-first` and `confirm-more`."""
        return self._stages[search]

    @cached_property
    def _stages(self) -> dict[str, list[str]]:
        # every rule asks, and listing them goes through all candidates
        return _Named(
            {
                search: stage_names(study) if isinstance(study, Study) else study.stage_names
                for search, study in self.searches.items()
            }
        )

    def hardware(self) -> list[HardwareSpec]:
        """All hardware that runs of the live studies may take, each once."""
        found = [
            HardwareSpec(
                accelerator=study.hardware.accelerator,
                device=study.hardware.device,
                count=count,
                nodes=study.hardware.nodes,
            )
            for study in (project.study for project in self.live.values())
            for count in sorted(accelerator_counts(study))
        ]
        return list(dict.fromkeys(found))

    def found_as(self) -> dict[str, list[str]]:
        """Further names of the live studies' accelerators, by accelerator.

        Runs are shared by studies that name an accelerator alike, so what one of them states is true for all.
        """
        found: dict[str, list[str]] = {}
        for project in self.live.values():
            found.setdefault(project.study.hardware.accelerator, []).extend(project.study.hardware.found_as)
        return found

    def unmeasured(
        self, results: Path, courses: Mapping[str, Iterable[Step]], is_complete: Callable[[str], bool]
    ) -> list[str]:
        """The live studies that will measure: a certain run is missing, or a stage was never planned.

        `courses` are the stages of each, decided ones as on disk, the others as assumed. Plans that lie in the results
        folder may be those of the study before it was edited.
        """
        return [
            name
            for name, steps in courses.items()
            if not all(
                (results / LIVE / name / "stages" / stage / "plan.json").exists()
                for stage in self.planned_stages(f"{LIVE}/{name}")
            )
            or not all(is_complete(run) for step in steps if step.is_known for run in step.plan.run_ids())
        ]

    def check_accelerators(self, names: Iterable[str]) -> None:
        """`ConfigError` if this machine has other accelerators than those of one of these studies.

        Nothing is said of a machine whose devices cannot be listed: the measuring job does so.
        """
        for name in names:
            hardware = self.live[name].study.hardware
            kind, allocation = DEVICES.get(hardware.device), allocations.current()
            try:
                found = allocation.given(kind, kind.find())
                WantedDevices(kind, [hardware.accelerator], self.found_as()).among(found, allocation.giver())
            except ConfigError as error:
                raise ConfigError(f"config/studies/{name}.yaml: {error}") from None
            except Outage:
                continue

    def check_environments(self, results: Path, names: Iterable[str]) -> None:
        """`ConfigError` if this machine cannot build an engine's environment that one of these studies still needs."""
        for name in names:
            project = self.live[name]
            place = Place(project, results, ask=True)
            for alias in project.study.engines:
                if place.environment_file(alias).exists():
                    continue
                found = look_at(place, alias)
                if found.verdict == "error":
                    raise ConfigError(f"config/studies/{name}.yaml: engines.{alias}: {found.saw}; {found.action}")

    def outlook(self, results: Path, is_complete: Callable[[str], bool]) -> tuple[list[str], list[str]]:
        """A text for each study on the runs that it will measure, and the studies that will measure.

        A text is a table of the stages. `is_complete` says of a run whether it was measured.
        """
        courses = {name: list(follow(project, results)) for name, project in self.live.items()}
        texts = []
        for name, project in self.live.items():
            found = forecast(project, results, is_complete, steps=courses[name])
            texts.append("\n".join(found.lines()))
        for name, study in self.recorded.items():
            count = len({file for _, _, file in study.log_files()})
            texts.append(f"{name}: {count} recorded logs, nothing to measure")
        return texts, self.unmeasured(results, courses, is_complete)

    def troubles(self, results: Path) -> list[str]:
        """Errors and warnings of the preflight checks that need no waiting, a line for each."""
        return [line for each in self.live.values() for line in troubles(preflight(each, results, ask=False))]


def read_studies(config: WorkflowConfig) -> Studies:
    """The studies of a configuration, from `config/` in the current folder; a mistake is a `ConfigError`."""
    return Studies(
        live=_Named({name: load_project(Path(f"config/studies/{name}.yaml"), Path()) for name in config.studies}),
        recorded=_Named({name: load_recorded(Path(f"config/recorded/{name}")) for name in config.recorded}),
    )
