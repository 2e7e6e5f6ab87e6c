"""The keys of a workflow's configuration: config/config.yaml, `--configfile` and `--config`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, ValidationError

from servelab.archive.run_source import RunPlace
from servelab.core.errors import ConfigError
from servelab.core.run_spec import Strict
from servelab.core.yaml_file import describe_validation_error

SOURCE = "config/config.yaml or --config"


def _listed(value: Any) -> Any:
    """`--config studies=name` is one study."""
    return [value] if isinstance(value, str) else value


def _places(value: Any) -> Any:
    """A place alone is an entry without keys, and one entry a list."""
    return [
        {"place": entry} if isinstance(entry, str) else entry
        for entry in (value if isinstance(value, list) else [value])
    ]


Name = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9._-]*$")]
Names = Annotated[list[Name], BeforeValidator(_listed)]


class Configuration(Strict):
    """Every key that the workflow reads; an unknown one is an error."""

    studies: Names = Field(description="Names of files in config/studies/, without `.yaml`.")
    recorded: Names = Field([], description="Names of folders in config/recorded/.")
    compare: Any = Field([], description="Pairs of studies to compare; `servelab.report.compare.wanted` checks them.")
    site: Name | None = Field(None, description="Name of a file in config/sites/, without `.yaml`.")
    site_file: str | None = Field(None, description="The site's file, if a profile names one elsewhere.")
    use_imported_runs: Any = Field(True, description="`servelab.workflow.imports` checks it.")
    runs_from: Annotated[list[RunPlace], BeforeValidator(_places)] = Field(
        [], description="Where missing runs are looked for before they are measured."
    )
    sign: Any = Field(None, description="Key that signs; `servelab.workflow.signing` checks it.")
    publish: str | None = Field(None, description="Where archives are published, `s3://…` or `zenodo://…`.")


class PodsConfiguration(Configuration):
    """The same for profiles/kubernetes."""

    results: str = Field("/servelab/results", description="Folder of results on the volume.")


def read_configuration(config: Mapping[str, Any], model: type[Configuration] = Configuration) -> Configuration:
    """The typed configuration; `ConfigError` names the key, and the nearest one if it is unknown."""
    try:
        return model.model_validate(dict(config))
    except ValidationError as error:
        raise ConfigError(describe_validation_error(error, SOURCE, model)) from None
