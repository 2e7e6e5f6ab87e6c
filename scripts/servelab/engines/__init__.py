"""Engines: the programs that serve a model. Each is one file that registers itself.

An engine says how it is started, when it is ready, how its caches are emptied, and how its log tells a failure.
It starts nothing itself: `servelab.server` does.
"""

from __future__ import annotations

import json
import re
import shlex
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from packaging.version import Version

from servelab.engines.evidence import Checked
from servelab.engines.layout import PARALLEL_OPTIONS, Parallel, argument
from servelab.engines.options import OPTIONS, check_option_names
from servelab.errors import ConfigError
from servelab.registry import Registry, nearest
from servelab.spec import ArgumentValue, ModelFormat

Options = Mapping[str, ArgumentValue]
FlagsOf = Callable[[Any, Options], list[str]]
"""(an option's value, all options) → the engine's flags for it."""
VariablesOf = Callable[[Any], dict[str, str]]
"""An option's value → the environment variables that set it."""
SettingsOf = Callable[[Any, Options], dict[str, Any]]
"""(an option's value, all options) → what it sets in the file the engine reads, by dotted name."""


@dataclass(frozen=True)
class Serve:
    """One server to start."""

    python: Path
    """Interpreter of the engine's environment; for an engine that is no Python program, its program."""
    model_path: Path
    model_name: str
    """The name requests ask for."""
    port: int
    options: Options
    arguments: Mapping[str, ArgumentValue]
    count: int = 1
    """Accelerators it may use."""
    host: str = "127.0.0.1"
    more_ports: tuple[int, ...] = ()
    """As many as `Engine.more_ports` says, or none: the engine then finds its own."""
    folder: Path = Path()
    """Where the engine's files for this server are written."""


@dataclass(frozen=True)
class Sign:
    """A pattern that, in a line of the engine's log, tells why it failed."""

    reason: str
    pattern: re.Pattern[str]


def signs(reason: str, *patterns: str) -> list[Sign]:
    """Signs of one reason; case does not matter."""
    return [Sign(reason, re.compile(pattern, re.IGNORECASE)) for pattern in patterns]


class Engine(ABC):
    """One engine. Subclasses give the class variables and the abstract methods."""

    name: ClassVar[str]
    """Its name in a study and of its lock, `envs/<name>.lock.txt`."""
    packages: ClassVar[tuple[str, ...]]
    """Python packages whose pinned version in the lock is the engine's version; the first found counts."""
    model_formats: ClassVar[tuple[ModelFormat, ...]]
    """Formats it serves, the preferred first."""
    option_flags: ClassVar[Mapping[str, FlagsOf]]
    """Options of the shared vocabulary that are flags."""
    option_variables: ClassVar[Mapping[str, VariablesOf]] = {}
    """Options of the shared vocabulary that are environment variables."""
    option_settings: ClassVar[Mapping[str, SettingsOf]] = {}
    """Options that stand in a file which it reads; what `option_flags` has for them is for reading."""
    option_since: ClassVar[Mapping[str, str]] = {}
    """First release that has an option, where an older one is still in use."""
    option_values: ClassVar[Mapping[str, tuple[ArgumentValue, ...]]] = {}
    """Values of an option, where every release takes these few only."""
    checked: ClassVar[tuple[Checked, ...]] = ()
    """Releases whose options these are, and how that was found out."""
    parallel_flags: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    """Every spelling of the flags that say how it uses several accelerators, by option."""
    checks_arguments: ClassVar[bool] = False
    """Whether `command` refuses every argument that the engine does not have, so that nobody need be asked."""
    reserves_context: ClassVar[bool] = False
    """Whether it takes memory for `max_num_seqs` sequences of `context_length` tokens as it starts."""
    more_ports: ClassVar[int] = 0
    """Ports that it takes beside the one it serves on and that it can be told."""
    ready_path: ClassVar[str] = "/health"
    """Answers 200 once requests can be served."""
    metrics_path: ClassVar[str | None] = None
    """Where its server gives metrics in Prometheus' format; None where it gives none."""
    metric_names: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    """Metric of docs/telemetry.md → the server's samples whose sum it is."""
    request_body: ClassVar[Mapping[str, Any]]
    """Fields every request carries so that exactly `max_tokens` tokens come out."""
    failure_signs: ClassVar[list[Sign]]
    """The most telling first."""
    worker_names: ClassVar[re.Pattern[str] | None] = None
    """In their command lines, the processes whose death its main process outlives unmoved; see `servelab.workers`."""
    log_prefix: ClassVar[re.Pattern[str]]
    """What stands before the text in a line of its log: time, process, level."""

    @abstractmethod
    def command(self, serve: Serve) -> list[str]:
        """Command that serves on `serve.host` and `serve.port`; `ConfigError` where it cannot serve that way."""

    @abstractmethod
    def version_command(self, python: Path) -> list[str]:
        """Command that prints the engine's own word for its version."""

    @abstractmethod
    def reset_caches(self, base_url: str) -> bool:
        """Empties what one round could leave for the next; False if only a restart does."""

    @abstractmethod
    def display_base(self, model_id: str) -> list[str]:
        """The command a reader would type to serve a model with defaults."""

    def help_commands(self, python: Path) -> list[list[str]]:
        """Commands that print all its flags without an accelerator: the first that succeeds counts."""
        return []

    def knows(self, given: str, flags: Set[str]) -> bool:
        """Whether a release with these flags takes one that is given."""
        return given in flags

    def setting(self, option: str, options: Options, arguments: Mapping[str, ArgumentValue]) -> ArgumentValue:
        """The value of an option, set by its own name or by an argument that is its flag; None if it is not set."""
        if options.get(option) is not None or option not in self.option_flags:
            return options.get(option)
        flags = self.option_flags[option](OPTIONS[option].kind(1), options)
        return argument(arguments, *self.parallel_flags.get(option, ()), flags[0].partition("=")[0]) if flags else None

    def parallel(self, options: Options, arguments: Mapping[str, ArgumentValue], count: int) -> Parallel:
        """How it lays a model out over `count` accelerators, which it may exceed or leave idle."""
        sizes = [self.setting(option, options, arguments) for option in PARALLEL_OPTIONS]
        return Parallel(*(size if isinstance(size, int) else 1 for size in sizes))

    def files(self, serve: Serve) -> dict[str, str]:
        """Files the server reads, by their name in `serve.folder`: written anew before each start."""
        return {}

    def served_name(self, model_id: str) -> str:
        """The name that requests must ask for."""
        return model_id

    def environment(self, serve: Serve) -> dict[str, str]:
        """Environment variables of the server beside those of the study; none of them changes a measurement."""
        return self._option_variables(serve.options)

    @property
    def options(self) -> list[str]:
        """The options of the shared vocabulary that this engine has."""
        return sorted([*self.option_flags, *self.option_variables])

    def check_options(self, options: Options, version: str | None = None) -> None:
        """`ConfigError` naming engine, option and the nearest it has, the release it lacks, or the type that is wrong.

        Without `version` an option of any release is allowed.
        """
        check_option_names(options)
        for name, value in options.items():
            if value is None:
                continue
            release = f" {version}" if version else ""
            if name not in self.options:
                raise ConfigError(f"engine {self.name}{release} has no option `{name}`{nearest(name, self.options)}")
            since = self.option_since.get(name)
            if since and version and Version(version) < Version(since):
                raise ConfigError(f"engine {self.name} {version} has no option `{name}`; {since} is the first that has")
            if value not in self.option_values.get(name, (value,)):
                values = " or ".join(map(str, self.option_values[name]))
                raise ConfigError(f"engine {self.name}{release}: option `{name}` takes {values}, not {value}")

    def flags(self, options: Options, arguments: Mapping[str, ArgumentValue], *, joined: bool = False) -> list[str]:
        """Flags of arguments and options, in this order; `joined` writes `--flag=value` as one.

        `ConfigError` on an argument that is the flag of an option which is set: one of them would be lost unseen.
        """
        self.check_options(options)
        parts = [
            flags_of(options[name], options)
            for name, flags_of in self.option_flags.items()
            if options.get(name) is not None
        ]
        given = [_argument(name, value) for name, value in arguments.items()]
        taken = {part for flags in parts for part in flags if part.startswith("-")}
        for flags in given:
            if flags and flags[0].partition("=")[0] in taken:
                raise ConfigError(f"engine {self.name}: the argument `{flags[0]}` is set by an option too; drop one")
        return [part for flags in [*given, *parts] for part in (_joined(flags) if joined else flags)]

    def display_command(
        self,
        model_id: str,
        options: Options,
        arguments: Mapping[str, ArgumentValue],
        environment_variables: Mapping[str, str],
        *,
        joined: bool = False,
    ) -> str:
        """Serving command for reading: no host or port, the model by its name, variables in front."""
        variables = {**self._option_variables(options), **environment_variables}
        assignments = [f"{name}={shlex.quote(value)}" for name, value in variables.items()]
        command = self.display_base(model_id) + self.flags(options, arguments, joined=joined)
        return " ".join([*assignments, shlex.join(command)])

    def _option_variables(self, options: Options) -> dict[str, str]:
        variables: dict[str, str] = {}
        for name, variables_of in self.option_variables.items():
            if options.get(name) is not None:
                variables |= variables_of(options[name])
        return variables


def flag(*names: str) -> FlagsOf:
    """An option whose value follows each of these flags."""
    return lambda value, options: [part for name in names for part in (name, str(value))]


def switch(on: str, off: str | None = None) -> FlagsOf:
    """A true-or-false option: one flag for each, none where `off` is the default."""
    return lambda value, options: [on] if value else [off] if off else []


def shown(settings_of: SettingsOf) -> FlagsOf:
    """An option that is no flag, in the notation `name=value`."""

    def texts(value: Any, options: Options) -> list[str]:
        settings = settings_of(value, options).items()
        return [f"{name}={text if isinstance(text, str) else json.dumps(text)}" for name, text in settings]

    return texts


def telling_lines(engine: Engine, log: Iterable[str]) -> tuple[str | None, list[str]]:
    """Why an engine failed by its log: the reason, None if no sign is found, and at most 12 telling lines, unprefixed.

    The most telling line comes first. Without a sign these are the last lines that speak of an error, or the last.
    """
    lines, telling = [], []
    for line in log:
        text = engine.log_prefix.sub("", line).rstrip()
        lines.append(text)
        if not _HARMLESS.search(line[: len(line.rstrip()) - len(text)]):
            telling.append(text)
    for sign in engine.failure_signs:
        if found := [text for text in telling if sign.pattern.search(text)]:
            return sign.reason, _first(found)
    errors = [text for text in telling if _ERROR.search(text)]
    return None, _first((errors or [line for line in lines if line])[::-1])


def _first(lines: list[str]) -> list[str]:
    return list(dict.fromkeys(line.strip() for line in lines))[:_TELLING_LINES]


_TELLING_LINES = 12
_ERROR = re.compile(r"error\b|exception\b|fatal|failed", re.IGNORECASE)
_HARMLESS = re.compile(r"\b(DEBUG|INFO|WARN(ING)?|[DIW])\b")
"""Levels, in a line's prefix, at which no engine says why it fails."""


def _argument(name: str, value: ArgumentValue) -> list[str]:
    name = name if name.startswith("-") else f"--{name}"
    if value is False:
        return []
    if value is None or value is True:
        return [name]
    return [name, str(value)]


def _joined(flags: list[str]) -> list[str]:
    """Each long flag with the value that follows it."""
    parts: list[str] = []
    for part in flags:
        if parts and parts[-1].startswith("--") and "=" not in parts[-1] and not part.startswith("--"):
            parts[-1] += f"={part}"
        else:
            parts.append(part)
    return parts


ENGINES: Registry[Engine] = Registry("engine")
ENGINES.load(__name__)
