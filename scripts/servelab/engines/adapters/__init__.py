"""Engines: the programs that serve a model. Each is one file that registers itself."""

from __future__ import annotations

import re
import shlex
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Set
from contextlib import suppress
from dataclasses import replace
from fnmatch import fnmatchcase
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, get_args, get_type_hints

from packaging.version import Version
from pydantic import TypeAdapter

from servelab.core.errors import ConfigError
from servelab.core.registry import Registry, nearest
from servelab.core.run_spec import ArgumentValue, ModelFormat
from servelab.core.yaml_file import read_shipped
from servelab.engines.accelerator_boards import AcceleratorBoard
from servelab.engines.endpoint import Address
from servelab.engines.failure_explanation import Explanation, explain
from servelab.engines.failure_signs import Sign
from servelab.engines.options import (
    ALL_ENGINES,
    OPTIONS,
    PARALLEL_OPTIONS,
    WHY,
    Checked,
    FlagsOf,
    Names,
    Owned,
    Parallel,
    SettingsOf,
    Typed,
    VariablesOf,
    argument,
    bare,
    check_option_names,
    is_off,
    refused_arguments,
    refused_variables,
    rendered,
)
from servelab.engines.server_to_start import EnvironmentFacts, Options, Serve, Span
from servelab.engines.start_rules import Rule
from servelab.engines.traits import Settings, Traits

PLANNED_MODEL = Path("model")
"""Stands for the model's path in what is planned: there is no file to read."""


class Engine(ABC):
    """One engine. Subclasses define the class variables and the abstract methods."""

    name: ClassVar[str]
    """Its name in a study and in its lock, `envs/<name>.lock.txt`."""
    packages: ClassVar[tuple[str, ...]]
    """Python packages whose pinned version in the lock is the engine's version; the first found counts."""
    model_formats: ClassVar[tuple[ModelFormat, ...]]
    """Formats it serves, the preferred one first."""
    option_flags: ClassVar[Mapping[str, FlagsOf]]
    """Options of the shared vocabulary that are flags."""
    option_variables: ClassVar[Mapping[str, VariablesOf]] = {}
    """Options of the shared vocabulary that are environment variables."""
    option_settings: ClassVar[Mapping[str, SettingsOf]] = {}
    """Options in its configuration file; their `option_flags` are only displayed."""
    option_since: ClassVar[Mapping[str, str]] = {}
    """First release with an option, if an older release is still in use."""
    option_values: ClassVar[Mapping[str, tuple[ArgumentValue, ...]]] = {}
    """Values of an option, if every release accepts only these."""
    checked: ClassVar[tuple[Checked, ...]] = ()
    """Releases that the options were compared with, and how."""
    parallel_flags: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    """Every spelling of the flags that set how it uses several accelerators, by option."""
    owned: ClassVar[tuple[Owned, ...]] = ()
    """Flags and variables that Servelab sets, so that a study may not; those of `environment` count too."""
    aliases: ClassVar[tuple[tuple[str, ...], ...]] = ()
    """Names of one flag each, for flags with several; those of `parallel_flags` count too."""
    typed: ClassVar[Typed | None] = None
    """How users start it; None if they do not by a command."""
    gone: ClassVar[Mapping[str, str]] = {}
    """Flags and variables of older releases → what took their place."""
    abbreviates: ClassVar[bool] = False
    """Whether its parser takes the beginning of a flag's name for the flag, as argparse does."""
    variables_of_options: ClassVar[Mapping[str, str]] = {}
    """Environment variable → the option that sets the same."""
    setting_prefix: ClassVar[str] = ""
    """Begins the names of arguments that are settings of its configuration file, which may be flags too."""
    checks_arguments: ClassVar[bool] = False
    """Whether `command` refuses every argument that the engine does not have, so that its help is not needed."""
    already_runs: ClassVar[bool] = False
    """Whether it is reached by its address (`address`), with `runtime: none`, and never started."""
    reserves_context: ClassVar[bool] = False
    """Whether it reserves memory for `max_num_seqs` sequences of `context_length` tokens when it starts."""
    start_rules: ClassVar[tuple[Rule, ...]] = ()
    """Settings that it refuses when it starts, besides options that it does not have."""
    aiter_share: ClassVar[float] = 1.0
    """Part of the share that it takes with AMD's kernels and contexts above 8192 tokens."""
    works_inside_share: ClassVar[bool] = True
    """Whether `memory_share` includes what a step takes besides weights and KV cache."""
    graphs_inside_since: ClassVar[str | None] = None
    """First release that counts captured graphs inside `memory_share` too; None if none does."""
    fits_context_since: ClassVar[str | None] = None
    """First release whose `--max-model-len auto` is the longest context that fits; None if it needs no such value."""
    kv_room_line: ClassVar[re.Pattern[str] | None] = None
    """A line of its log with GiB for the KV cache, as groups that add up; None if no release prints one."""
    sorting_releases: ClassVar[str] = "<0"
    """Releases that sort all logits to draw tokens, as in a requirement of pip."""
    nodes_since: ClassVar[str | None] = None
    """First release that serves a model over several nodes as `command` starts it; None if none does."""
    display: ClassVar[tuple[str, ...]] = ()  # the words in front of the model in the command that a user types
    port_flag: ClassVar[str | None] = "--port"
    """Flag of the port in a command that a user types; None if it is not set by one."""
    more_ports: ClassVar[int] = 0
    """Number of further ports that it uses and that can be set."""
    ready_path: ClassVar[str] = "/health"
    """Answers 200 once requests can be served."""
    cache_reset: ClassVar[str | None] = None
    """Path of the POST that empties what a round leaves in caches (200 if so); None if only a restart does."""
    metrics_path: ClassVar[str | None] = None
    """Path of its metrics in Prometheus format; None if it has none."""
    metric_names: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    """Metric of docs/reference/files.md → the server's samples that add up to it."""
    answer_settings: ClassVar[tuple[str, ...]] = ("attention_backend", "kv_cache_dtype", "speculative_*")
    """Options, flags (without dashes, any of their names) and variables that may change greedy answers; `*` stands for
    any characters. Batch sizes and caches are not among them: they should change nothing beyond rounding."""
    request_body: ClassVar[Mapping[str, Any]] = {"ignore_eos": True}
    """Fields of every request that make it generate exactly `max_tokens` tokens."""
    failure_signs: ClassVar[list[Sign]] = []
    """Signs that no other engine has, the most specific first; `servelab.engines.failure_signs` has the others."""
    traits: ClassVar[Traits] = Traits()
    """What decides which levers are tried on it, and how long it takes to start."""
    facts: ClassVar[EnvironmentFacts | None] = None
    """How its environments are checked before they serve; None if they cannot be looked into."""
    worker_names: ClassVar[re.Pattern[str] | None] = None
    """Command lines of workers whose death the main process does not notice (`servelab.measure.server`)."""
    variable_prefixes: ClassVar[tuple[str, ...]] = ()
    """How names of environment variables begin that change it; the shell's do not reach it, and a run lists them."""
    host_variables: ClassVar[tuple[str, ...]] = ()
    """Variables that name the places of its parts; an installation on the host passes those that are set."""
    log_prefix: ClassVar[re.Pattern[str]]
    """The part of a log line before the text: time, process, level."""

    def __init_subclass__(cls) -> None:
        """Facts of an engine are data: `<its module>.yaml` has those of the class variables above that are."""
        file = Path(sys.modules[cls.__module__].__file__ or "").with_suffix(".yaml")
        hints = get_type_hints(Engine)
        for name, value in (read_shipped(file) if file.exists() else {}).items():
            more = Engine.answer_settings if name == "answer_settings" else ()
            setattr(
                cls, name, TypeAdapter(get_args(hints[name])[0]).validate_python([*more, *value] if more else value)
            )
        cls.owned = tuple(replace(each, why=WHY.get(each.why, each.why)) for each in cls.owned)

    @abstractmethod
    def command(self, serve: Serve) -> list[str]:
        """Command that serves (one node's part with `serve.span`); `ConfigError` if it cannot with these options."""

    def version_command(self, python: Path) -> list[str]:
        """Command that prints the engine's version; importing the package may look for a GPU."""
        return [str(python), "-c", f"from importlib.metadata import version; print(version('{self.packages[0]}'))"]

    def has_reset(self, answer: bytes) -> bool:
        """Whether an answer with status 200 to `cache_reset` says that the caches are empty."""
        return True

    def keeps_prompts(self, options: Options, arguments: Mapping[str, ArgumentValue]) -> bool:
        """Whether a server with these settings keeps prompts of a round, which the next one would find."""
        return options.get("prefix_caching") is not False

    def cache_reset_with(self, options: Options, arguments: Mapping[str, ArgumentValue]) -> str | None:
        """`cache_reset` of a server with these settings; empty if there is nothing to empty."""
        return self.cache_reset if self.cache_reset or self.keeps_prompts(options, arguments) else ""

    def display_base(self, model_id: str) -> list[str]:
        """The command that a user types to serve a model with defaults; empty if nothing starts it."""
        return [*self.display, model_id] if self.display else []

    def own_flags(self) -> frozenset[str] | None:
        """Its flags if Servelab's own program parses them; None for all other engines."""
        return None

    def knows(self, given: str, flags: Set[str]) -> bool:
        """Whether a release with these flags accepts a given flag."""
        return given in flags

    def setting(self, option: str, options: Options, arguments: Mapping[str, ArgumentValue]) -> ArgumentValue:
        """The value of an option, set by its name or by an argument with its flag; None if it is not set."""
        if options.get(option) is not None or option not in self.option_flags:
            return options.get(option)
        flags = self.option_flags[option](OPTIONS[option].kind(1), options)
        return argument(arguments, *self.parallel_flags.get(option, ()), flags[0].partition("=")[0]) if flags else None

    def defaults(
        self, version: str, board: AcceleratorBoard, options: Options, arguments: Mapping[str, ArgumentValue]
    ) -> dict[str, ArgumentValue]:
        """The known defaults of a release on a board beside these settings, by option or argument."""
        return {}

    def effective(
        self, version: str, board: AcceleratorBoard, options: Options, arguments: Mapping[str, ArgumentValue]
    ) -> dict[str, ArgumentValue]:
        """Every setting that is known, as a release serves on a board: given ones, its defaults, and what they undo."""
        found: dict[str, ArgumentValue] = {option: 1 for option in PARALLEL_OPTIONS if option in self.options}
        found |= self.defaults(version, board, options, arguments)
        for given, value in arguments.items():
            if value is False:  # not given
                continue
            option = self.option_of(given)
            is_on = is_off(given) == is_off(self.option_flags[option](True, {})[0] if option else self.names.of(given))
            found[option or self.names.of(given)] = is_on if value is None or value is True else value
        for option in self.options:
            with suppress(ConfigError):  # an option that needs another one
                value = self.setting(option, options, arguments)
                found |= {option: value} if value is not None and value is not True else {}
        return self.resolved({**found, **{name: value for name, value in options.items() if value is not None}})

    def resolved(self, settings: dict[str, ArgumentValue]) -> dict[str, ArgumentValue]:
        """Settings without those that other ones switch off: one accelerator has nothing to split."""
        sizes = [settings.get(option) or 1 for option in PARALLEL_OPTIONS]
        if settings.get("expert_parallel") and all(size == 1 for size in sizes):
            settings["expert_parallel"] = False
        return settings

    def parallel(self, options: Options, arguments: Mapping[str, ArgumentValue], count: int) -> Parallel:
        """How it splits a model over accelerators; this may need more than `count` of them, or fewer."""
        sizes = [self.setting(option, options, arguments) for option in PARALLEL_OPTIONS]
        return Parallel(*(size if isinstance(size, int) else 1 for size in sizes))

    def check_all_used(self, serve: Serve, flags: list[str]) -> None:
        """`ConfigError` if it may use several accelerators and no flag says how to split the model over them."""
        named = [name for names in self.parallel_flags.values() for name in names]
        if serve.count > 1 and not any(part.partition("=")[0] in named for part in flags):
            wrong = f"engine {self.name} would use 1 of {serve.count} accelerators"
            raise ConfigError(f"{wrong}; set {' or '.join(self.parallel_flags)}")

    def check_nodes(self, version: str) -> None:
        """`ConfigError` if a release does not serve a model over several nodes."""
        if self.nodes_since is None:
            able = [engine.name for engine in ENGINES if engine.nodes_since is not None]
            raise ConfigError(f"engine {self.name} serves on one node only here; {', '.join(able)} can take several")
        if Version(version) < Version(self.nodes_since):
            wrong = f"engine {self.name} {version} serves on one node only here"
            raise ConfigError(f"{wrong}; {self.nodes_since} is the first that takes several")

    def node_environment(self, span: Span) -> dict[str, str]:
        """Variables of one node's part that tell it which of the node's addresses to use; a study's own come first."""
        return {}

    def address(self, arguments: Mapping[str, ArgumentValue]) -> Address:
        """Where it is, if it already runs; `ConfigError` if the arguments do not say so."""
        raise NotImplementedError

    def body(self, arguments: Mapping[str, ArgumentValue]) -> dict[str, Any]:
        """Fields of every request to a server with these arguments."""
        return dict(self.request_body)

    def files(self, serve: Serve) -> dict[str, str]:
        """Files that the server reads, name in `serve.folder` → content; written before each start."""
        return {}

    def served_name(self, model_id: str) -> str:
        """The model name for requests."""
        return model_id

    def environment(self, serve: Serve) -> dict[str, str]:
        """Environment variables of the server besides those of the study; none of them changes a measurement."""
        return self._option_variables(serve.options)

    @property
    def options(self) -> list[str]:
        """The options of the shared vocabulary that this engine has, sorted."""
        return sorted([*self.option_flags, *self.option_variables])

    def explain_failure(self, log: Iterable[str]) -> Explanation:
        """The reason of a failure from the server's log, whose fault it is, and the lines that show it."""
        return explain(log, self.failure_signs, self.log_prefix)

    def check_options(self, options: Options, version: str | None = None) -> None:
        """`ConfigError` if the engine, or its release if given, lacks an option, or if a value is wrong."""
        for name in options.keys() - OPTIONS.keys():
            if option := self.option_of(name):
                raise ConfigError(f"unknown option `{name}`; the option of that flag is `{option}`")
        check_option_names(options)
        for name, value in options.items():
            if value is None:
                continue
            release = f" {version}" if version else ""
            if name not in self.options:
                raise ConfigError(f"engine {self.name}{release} has no option `{name}`{nearest(name, self.options)}")
            since = self.option_since.get(name)
            if since and version and Version(version) < Version(since):
                raise ConfigError(f"engine {self.name} {version} has no option `{name}`; {since} is the first with it")
            if value not in self.option_values.get(name, (value,)):
                values = " or ".join(map(str, self.option_values[name]))
                raise ConfigError(f"engine {self.name}{release}: option `{name}` takes {values}, not {value}")

    def option_of(self, flag: str) -> str | None:
        """The option that a flag of this engine sets."""
        for option, flags_of in self.option_flags.items():
            with suppress(ConfigError):  # an option that needs another one
                parts = flags_of(OPTIONS[option].kind(1), {})
                if any(part.startswith("-") and self.names.of(part) == self.names.of(flag) for part in parts):
                    return option
        return None

    @cached_property
    def names(self) -> Names:
        """The names of its flags."""
        groups = [*self.parallel_flags.values(), *self.aliases]
        return Names(groups, abbreviates=self.abbreviates, prefix=self.setting_prefix)

    def changes_answers(self, setting: str) -> bool:
        """Whether an option, an argument or an environment variable may change greedy answers."""
        names = (setting, self.names.of(setting))
        known = {*self.answer_settings, *map(bare, self.answer_settings)}
        return any(fnmatchcase(name, pattern) for name in names for pattern in known)

    def refused_arguments(self, options: Options, arguments: Mapping[str, ArgumentValue]) -> dict[str, str]:
        """Arguments that Servelab, an option or another argument sets too → why, with the fix."""
        names = self.names
        taken: dict[str, str] = {}
        for option, flags_of in self.option_flags.items():
            value = options.get(option)
            if value is not None:  # a switch takes its flag for either value
                values = (True, False) if isinstance(value, bool) else (value,)
                parts = [part for each in values for part in flags_of(each, options)]
                is_flag = option not in self.option_settings
                taken |= {names.of(part): option for part in parts if part.startswith("-") or not is_flag}
        own = {names.of(flag): part.why for part in self.owned for flag in part.flags}
        return refused_arguments(own, names, taken, {k: value for k, value in arguments.items() if value is not False})

    def check_arguments(self, options: Options, arguments: Mapping[str, ArgumentValue]) -> None:
        """`ConfigError` for an argument that may not be given (`refused_arguments`)."""
        for name, why in self.refused_arguments(options, arguments).items():
            raise ConfigError(f"engine {self.name}: the argument `{name}` {why}")

    def refused_variables(self, options: Options, variables: Mapping[str, str]) -> dict[str, str]:
        """Environment variables that may not be set with these options → why, with the fix."""
        own = self.environment(Serve(Path("python"), PLANNED_MODEL, "model", 0, {}, {}))
        ours = Owned("Servelab sets it for every server of this engine", variables=tuple(own))
        taken = {name: option for name, option in self.variables_of_options.items() if options.get(option) is not None}
        return refused_variables((*self.owned, *ALL_ENGINES, ours), taken, variables)

    def flags(self, options: Options, arguments: Mapping[str, ArgumentValue]) -> list[str]:
        """Flags of arguments and options; `ConfigError` for a refused argument."""
        self.check_options(options)
        self.check_arguments(options, arguments)
        parts = [
            flags_of(options[name], options)
            for name, flags_of in self.option_flags.items()
            if options.get(name) is not None
        ]
        given = [rendered(name, value) for name, value in arguments.items()]
        return [part for flags in [*given, *parts] for part in flags]

    def display_command(
        self,
        model_id: str,
        options: Options,
        arguments: Mapping[str, ArgumentValue],
        environment_variables: Mapping[str, str],
        *,
        nodes: int = 1,
    ) -> str:
        """Serving command for display, without host and port; on several nodes with RANK and ADDRESS to fill in."""
        variables = {**self._option_variables(options), **environment_variables}
        assignments = [f"{name}={shlex.quote(value)}" for name, value in variables.items()]
        command = self.display_base(model_id) + self.flags(options, arguments)
        if nodes > 1:
            command = self.display_nodes(command, nodes)
        return " ".join([*assignments, shlex.join(command), *self.display_file(options, arguments)])

    def draft(self, method: str | None, model: str | None, steps: int, branches: int) -> Settings | None:
        """Settings that draft so many tokens ahead, in a tree with several branches; None if it cannot so."""
        return None

    def display_nodes(self, command: list[str], nodes: int) -> list[str]:
        """A displayed command as it is typed on each of several nodes."""
        return command

    def display_file(self, options: Options, arguments: Mapping[str, ArgumentValue]) -> list[str]:
        """The end of the displayed command, for an engine with a settings file: the file's flag and content."""
        return []

    def _option_variables(self, options: Options) -> dict[str, str]:
        variables: dict[str, str] = {}
        for name, variables_of in self.option_variables.items():
            if options.get(name) is not None:
                variables |= variables_of(options[name])
        return variables


ENGINES: Registry[Engine] = Registry("engine")
ENGINES.load(__name__)
