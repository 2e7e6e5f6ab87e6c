"""Begins a study from a typed command: engine and version, model, load, baseline, candidates."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from packaging.version import Version

from servelab.assets import workloads
from servelab.assets.model_shape import shape_of_config
from servelab.assets.model_work import ModelFacts, read_facts, safetensors_bytes
from servelab.assets.sources import MODEL_PROBES
from servelab.cli.first_study import AskedHardware, closest_study, known_engines
from servelab.core.errors import ConfigError, ServelabError
from servelab.core.files import CHECKOUT, own_or_shipped
from servelab.core.registry import nearest
from servelab.core.run_spec import (
    ClientSpec,
    EngineSpec,
    HardwareSpec,
    ModelSource,
    ModelSpec,
    PathSource,
    ProtocolSpec,
    RunSpec,
    WorkloadSpec,
)
from servelab.core.yaml_file import read_yaml
from servelab.engines.accelerator_boards import GIB, board_of
from servelab.engines.adapters import ENGINES
from servelab.engines.options import rendered
from servelab.engines.start_rules import hub_models
from servelab.metrics.definitions import METRICS
from servelab.results.expected_times import served_s, start_s
from servelab.study.predictions import KERNEL_TIMINGS
from servelab.study.study import Model as ModelKeys
from servelab.tune.own_load import WORKLOADS, of_lengths, of_trace
from servelab.tune.proposals import Proposed, effective_differences, idle_settings, propose
from servelab.tune.situation import ExpectedLoad, Situation, known_model, start_sizes, started
from servelab.tune.study_text import candidate, explained, study_text
from servelab.tune.typed_command import TypedCommand, unknown_flags

_PROBE_S = 10.0
_USERS, _CHAT = 256, (220, 200)
"""Requests in flight, and tokens of prompt and answer, where nothing says them."""
_CAPACITIES = {"capacity_per_s": "request_rate", "capacity_in_flight": "max_concurrency"}
"""Metric that a search for capacity finds → what it raises."""
_EACH, _FEWEST = 2, 8
"""Starts of the search for each candidate, and at least. Candidates multiply to hundreds of combinations: by default 16
simulated studies took 42 starts on average, and with 24 each found 0.4 % less."""
_SLOWER = 8
"""A start or a round may take this many times its forecast."""

AskModel = Callable[[str, str | None], dict[str, Any]]
"""(name or path, revision) → the study's `model`; asks the hub for a commit where none is given."""


@dataclass(frozen=True)
class TuneRequest:
    """The user's input."""

    name: str
    command: TypedCommand
    hardware: AskedHardware
    metric: str
    users: int | None = None
    rate: float | None = None
    prompt_tokens: int | None = None
    answer_tokens: int | None = None
    workload: str | None = None
    limits: Sequence[str] = ()
    engines: Sequence[str] = ()
    all_engines: bool = False
    most: int = 12
    revision: str | None = None
    trace: Path | None = None
    budget_hours: float | None = None
    """Of the node, for the search."""
    is_predicted: bool = False
    """Whether predicted speeds order the search."""
    makes_start: bool = False
    """Whether the baseline may be changed so that it starts: nobody typed it."""


@dataclass(frozen=True)
class Begun:
    """A study that is not written yet."""

    head: dict[str, Any]
    now: Situation
    proposed: Proposed
    variants: Mapping[str, str]
    """Model with other weights → its name in the study."""
    notes: list[str] = field(default_factory=list)
    added: Mapping[str, dict[str, Any]] = field(default_factory=dict)
    """File of the configuration → entries that it gets besides what it has."""

    def text(self) -> str:
        """The study's file."""
        return study_text(self.head, self.proposed, self.variants, self.notes)

    def as_json(self) -> dict[str, Any]:
        """Study, candidates with effective configuration and reasons, what is left out, and what does nothing."""
        candidates = [
            {
                **candidate(proposal, self.variants),
                "weights": proposal.model,
                "lever": lever.name,
                "on": proposal.on,
                "reason": explained(lever, proposal),
                "is_sure": proposal.is_sure,
                "effective": {name: pair[1] for name, pair in effective_differences(self.now, proposal).items()},
            }
            for lever, proposal in self.proposed.candidates
        ]
        return {
            "study": self.head,
            "effective_baseline": self.now.effective,
            "candidates": candidates,
            "left_out": self.proposed.left_out,
            "idle": idle_settings(self.now),
            "notes": self.notes,
            "load": asdict(self.now.load),
        }


def begin(asked: TuneRequest, root: Path, ask_model: AskModel | None) -> Begun:
    """The study of a command; without `ask_model` no network is used, and the model's revision stays open."""
    if asked.metric not in METRICS.names():
        raise ConfigError(f"--question {asked.metric}: unknown metric{nearest(asked.metric, METRICS.names())}")
    command, device = asked.command, asked.hardware.device
    if "://" in command.model:  # which may hold a password
        raise ConfigError("the model is an address, which cannot be pinned; give its name on the hub, or a path")
    known = known_engines(root, device)
    entries = {name: _at_release(entry, name, root, None) for name, entry in known.items()}
    entries |= _installed(command.engine, root) if command.engine not in entries else {}
    command = replace(command, engine=_here(command.engine, entries, device))
    entry = entries[command.engine]
    if tag := re.search(r":v?(\d+\.\d+\.\d+[\w.]*)", command.image or ""):
        entry = entries[command.engine] = _at_release(entry, command.engine, root, tag[1])
    others = [each for each in entries if each != command.engine and not command.model.endswith(".gguf")]
    names = others if asked.all_engines else asked.engines
    if unknown := [each for each in names if each not in entries]:
        raise ConfigError(f"--engines {unknown[0]}: not known on {device}{nearest(unknown[0], list(entries))}")
    revision = asked.revision or command.revision
    ask = ask_model or (lambda name, at: {"id": name, "revision": at})
    model_keys = ask(command.model, revision)
    example = closest_study(root, device, [command.engine])
    workload, shape, added = _workload(asked, root, example.objective.on)
    share = asked.hardware.per_node / example.hardware.per_node if example.objective.load_per == "node" else 1
    users = asked.users or round(share * (example.protocol.max_concurrency or 0)) or _USERS
    engine = ENGINES.get(command.engine)
    now = Situation(
        engine=engine,
        version=str(entry["version"]),
        options=command.options,
        arguments=command.arguments,
        variables=command.variables,
        model=known_model(command.model, _facts(command.model, model_keys, is_online=ask_model is not None)),
        board=board_of(asked.hardware.accelerator, is_cpu=device.startswith("cpu")),
        per_node=asked.hardware.per_node,
        accelerators=engine.parallel(command.options, command.arguments, 1).accelerators,
        load=_load(users, asked, shape),
        other_engines={name: str(entries[name]["version"]) for name in names},
    )
    why_changed = None
    if asked.makes_start:
        smaller = now.model.others.get("fp8" if now.board.has_fp8 else next(iter(now.smaller_formats), ""))
        if smaller and start_sizes(now) == []:
            found = begin(replace(asked, command=replace(command, model=smaller), revision=None), root, ask_model)
            why = f"{command.model} does not fit this node by an estimate, so {smaller} is served: its answers differ."
            return replace(found, notes=[why, *found.notes])
        now, why_changed = started(now)
        command = replace(command, options=dict(now.options), arguments=dict(now.arguments))
    proposed = propose(now, asked.most)
    variants = _named_models(command, proposed, model_keys, ask)
    if not proposed.candidates:
        raise ConfigError("no lever applies to this command and load; write its stages by hand: docs/studies.md")
    objective, deciding = _objective(asked, workload)
    visits = max(_FEWEST, _EACH * len(proposed.candidates))
    head = {
        "study": asked.name,
        "title": f"{model_keys['id']} on {asked.hardware.accelerator}",
        "model": model_keys,
        "hardware": asdict(asked.hardware),
        "engines": {command.engine: entry, **{name: entries[name] for name in names}},
        "objective": objective,
        "protocol": _protocol(asked, example.protocol, now, shape.get("parameters", {})),
        "answers": {},
        "search": {"visits": visits} | ({"prior": KERNEL_TIMINGS} if asked.is_predicted else {}),
        "budget": {"accelerator_hours": asked.budget_hours * asked.hardware.per_node} if asked.budget_hours else None,
        "baseline": _baseline(command, now.accelerators),
        "workloads": [deciding],
    }
    notes = [*([why_changed] if why_changed else []), *_notes(command, now)]
    if tag and tag[1] != now.version:
        notes.append(f"The image has {command.engine} {tag[1]}, which has no lock here: the study has {now.version}.")
    notes += [f"{workload} has {now.load.users:,} requests: no more are in flight."] * (now.load.users < users)
    hosts = [each for each in (command.engine, *names) if entries[each].get("runtime") == "host"]
    notes += [f"{each} is the one that is installed on the node: {entries[each]['lock']} names it." for each in hosts]
    notes += [f"{file} gets {' and '.join(entries)}." for file, entries in added.items()]
    return Begun({key: each for key, each in head.items() if each is not None}, now, proposed, variants, notes, added)


def _objective(asked: TuneRequest, workload: str) -> tuple[dict[str, Any], str | dict[str, Any]]:
    """The objective, and the workload that decides: limits are a part of one or the other, by the metric."""
    metric, limits = METRICS.get(asked.metric), _limits(asked.limits)
    found = {"metric": asked.metric, "on": workload}
    if asked.hardware.per_node > 1:
        found |= {"per": "accelerator"} if asked.trace else {"per": "accelerator", "load_per": "node"}
    capacity_of = _CAPACITIES.get(asked.metric)
    if not limits and (metric.needs_slos or capacity_of):
        raise ConfigError(f"--question {asked.metric}: give its limits too, as --slo 'ttft_ms p99 2000'")
    if capacity_of:
        return found, {"name": workload, "load": {"capacity": {"of": capacity_of, "slos": limits}}}
    if metric.needs_slos:  # of single requests, which have no statistic
        return {**found, "slos": {name: min(values.values()) for name, values in limits.items()}}, workload
    return {**found, **({"constraints": limits} if limits else {})}, workload


def _limits(given: Sequence[str]) -> dict[str, dict[str, float]]:
    """`ttft_ms p99 2000` → metric → statistic → limit."""
    limits: dict[str, dict[str, float]] = {}
    for text in given:
        match = re.fullmatch(r"\s*(\w+)\s+(mean|p\d+)\s+<?=?\s*([\d.]+)\s*", text)
        if not match or match[1] not in METRICS.names():
            raise ConfigError(f"--slo '{text}': write metric, statistic and limit, as 'ttft_ms p99 2000'")
        limits.setdefault(match[1], {})[match[2]] = float(match[3])
    return limits


def _protocol(
    asked: TuneRequest, example: ProtocolSpec, now: Situation, parameters: Mapping[str, Any]
) -> dict[str, Any]:
    """The protocol of the closest study with the load asked for, and time for a server much slower than the forecast.

    A study of a small model has short limits of its own: no limit is below the usual one.
    """
    load: dict[str, Any] = {"max_concurrency": now.load.users}
    if asked.trace:
        load["arrivals"] = "replay"
    if asked.rate:
        load["request_rate"] = asked.rate
    usual, needed = ProtocolSpec(), {"startup_timeout_s": 0.0, "round_timeout_s": 0.0}
    if now.model.weights_gib:
        hardware, size = asked.hardware, now.model.weights_gib * GIB
        source = PathSource(path=now.model.id, revision="")
        planned = RunSpec(
            engine=EngineSpec(name=now.engine.name, version=now.version, environment_sha256=""),
            model=ModelSpec(id=now.model.id, variant="base", source=source, format=now.engine.model_formats[0]),
            options=dict(now.options),
            hardware=HardwareSpec(accelerator=hardware.accelerator, device=hardware.device, count=now.accelerators),
            workload=WorkloadSpec(kind="", parameters=dict(parameters), tokenizer=source, generator_version=""),
            objective=asked.metric,
            client=ClientSpec(name="", version=""),
            protocol=ProtocolSpec(max_concurrency=now.users_each),
        )
        needed = {"startup_timeout_s": start_s(planned, size), "round_timeout_s": served_s(planned, size)[1]}
    limits = {
        name: max(getattr(example, name), getattr(usual, name), round(_SLOWER * seconds, -2))
        for name, seconds in needed.items()
    }
    kept = example.model_dump(mode="json", exclude_defaults=True)
    return {**kept, **load, **limits}


def _installed(engine: str, root: Path) -> dict[str, dict[str, Any]]:
    """The engine as a file of `envs/` describes its installation on the host; nothing if none does."""
    files = [found for folder in (root, CHECKOUT) for found in (folder / "envs").glob(f"{engine}-[0-9]*.host.yaml")]
    if not files:
        return {}
    return {engine: {"version": read_yaml(files[0])["version"], "runtime": "host", "lock": f"envs/{files[0].name}"}}


def _here(engine: str, entries: Mapping[str, Any], device: str) -> str:
    """The engine, or the one that has the same command on this kind of device."""
    typed = ENGINES.get(engine).typed
    for name in (engine, *entries):
        other = ENGINES.get(name).typed
        if name in entries and typed and other and other.begins == typed.begins:
            return name
    raise ConfigError(f"{engine}: no study has it on {device}; add envs/{engine}-<release>.host.yaml (docs/engines.md)")


def _baseline(command: TypedCommand, accelerators: int) -> dict[str, Any]:
    given = {
        "options": command.options,
        "arguments": command.arguments,
        "environment_variables": command.variables,
        "accelerators": accelerators if accelerators > 1 else None,
    }
    return {"label": "as typed", "engine": command.engine, **{key: value for key, value in given.items() if value}}


def _notes(command: TypedCommand, now: Situation) -> list[str]:
    """Notes on the command, a sentence each."""
    found = [f"{name} is not part of the study: {why}." for name, why in command.left_out.items()]
    found += [f"{name} does nothing here: {why}." for name, why in idle_settings(now).items()]
    found += [f"{why}." for why in unknown_flags(command, now.version).values()]
    parallel = now.engine.parallel(now.options, now.arguments, now.accelerators)
    if now.fits(parallel) is False:
        found.append("The command may not start: weights and a request do not fit, as estimated; try `servelab init`.")
    elif short := now.shortened(parallel):
        flags = " ".join(part for name, value in short.items() for part in rendered(name, value))
        found.append(f"The command may not start: the KV cache does not hold one whole context; {flags} would help.")
    if most := now.state_limit:
        fewer = f"the KV cache has states of about {most:,} sequences; --max-num-seqs {1 << (most.bit_length() - 1)}"
        found.append(f"The command may not start: {fewer} would help.")
    if now.board.is_cpu and (share := now.effective.get("memory_share")):
        found.append(f"The engine takes {share:.0%} of the memory, and does not start where less is free.")
    if now.model.facts.shape is None:
        found.append("The model's shape is not known here: what depends on its heads and KV cache is an assumption.")
    if now.model.arch is None:
        found.append(f"{now.model.id} is not a known model: its size and number format are what its name says.")
    return found


def _at_release(entry: dict[str, Any], name: str, root: Path, wanted: str | None) -> dict[str, Any]:
    """An engine at the release of an image's tag, or at its newest, if that has a lock here."""
    found = {}
    for folder in {(root / "envs").resolve(), own_or_shipped(root, "envs").resolve()}:
        for file in folder.glob(f"{name}-[0-9]*.lock.txt"):
            found[file.name.removeprefix(f"{name}-").removesuffix(".lock.txt")] = f"envs/{file.name}"
    is_named = str(entry["version"]) in found
    versions = [each for each in found if wanted in (None, each)]
    if not versions or not (is_named or wanted or entry.get("runtime") in ("docker", "podman")):
        return entry
    best = max(versions, key=Version)
    if wanted is None and Version(best) <= Version(str(entry["version"])):
        return entry
    kept = {key: value for key, value in entry.items() if key not in ("version", "lock", "runtime")}
    return {"version": best, "lock": found[best], **kept}


def _facts(model: str, keys: Mapping[str, Any], *, is_online: bool) -> ModelFacts:
    """Shape and size of a model: from its files, or from the hub."""
    path = Path(model).expanduser()
    try:
        if path.exists():
            return read_facts(path)
        if is_online:
            source: ModelSource = ModelKeys.model_validate(dict(keys)).variant_source("base")
            probe = MODEL_PROBES.get(source.kind)(source, _PROBE_S)
            shape = shape_of_config(probe.config) if probe.config else None
            return ModelFacts(safetensors_bytes(probe.files), shape, config=probe.config or {})
    except (ServelabError, OSError):
        pass
    return ModelFacts()


def _named_models(command: TypedCommand, proposed: Proposed, keys: dict[str, Any], ask: AskModel) -> dict[str, str]:
    """Names of other weights in the study, which get a commit, as drafts do; a candidate without one is left out."""
    variants: dict[str, str] = {}
    seconds = {one: ask(one, at)["revision"] for _, one, at in hub_models(command.arguments) if not Path(one).exists()}
    for pair in list(proposed.candidates):
        proposal = pair[1]
        name = proposal.label.split()[0].lower()
        try:
            found = ask(proposal.model, None) if proposal.model else {}
            drafts = [draft for _, draft, _ in hub_models(proposal.arguments)]
            seconds |= {draft: ask(draft, None)["revision"] for draft in drafts if draft not in seconds}
        except ConfigError as error:
            proposed.candidates.remove(pair)
            proposed.left_out[proposal.label] = str(error).partition(";")[0]
            continue
        if proposal.model:
            keys.setdefault("variants", {})[name] = found
            variants[proposal.model] = name
    keys |= {"second_models": seconds} if seconds else {}
    return variants


def _workload(asked: TuneRequest, root: Path, usual: str) -> tuple[str, Mapping[str, Any], dict[str, dict[str, Any]]]:
    """The workload that decides, its keys, and new entries of the configuration for it, by file."""
    if (asked.prompt_tokens is None) != (asked.answer_tokens is None):
        raise ConfigError("--prompt and --answer: give both, in tokens")
    added, known = {}, read_yaml(own_or_shipped(root, WORKLOADS))
    if asked.trace:
        added = of_trace(asked.trace)
    elif asked.prompt_tokens is not None and asked.answer_tokens is not None:
        added = {WORKLOADS: of_lengths(asked.prompt_tokens, asked.answer_tokens, asked.users or _USERS)}
    name = next(iter(added.get(WORKLOADS, ())), asked.workload or usual)
    shape = (added.get(WORKLOADS) or known).get(name)
    if shape is None:
        raise ConfigError(f"--workload {name}: not in {WORKLOADS}{nearest(name, list(known))}")
    return name, shape, added if asked.trace or name not in known else {}


def _load(users: int, asked: TuneRequest, workload: Mapping[str, Any]) -> ExpectedLoad:
    parameters = workload.get("parameters", {})
    bounds = [parameters.get(f"{part}_tokens") or parameters.get(f"max_{part}_tokens") for part in ("input", "output")]
    known = workloads.WORKLOADS.get(workload["kind"])
    return ExpectedLoad(
        users=min(users, parameters.get("num_requests", users)),
        prompt_tokens=asked.prompt_tokens or bounds[0] or _CHAT[0],
        answer_tokens=asked.answer_tokens or bounds[1] or _CHAT[1],
        longest_tokens=known.longest_tokens(known.Parameters.model_construct(**parameters)),
        shares_prefixes=known.kind in ("shared_prefix", "conversations", "trace"),
        is_random=known.kind in ("random", "random_text"),
    )
