"""Checks what each candidate's settings change as its engine serves them, and whether the engine starts with them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from servelab.engines.start_rules import PlannedStart, hub_models, own_positions
from servelab.search.planning import effective_changes, shown
from servelab.search.preflight import CHECKS, Finding, PreflightCheck
from servelab.search.preflight.memory import asked_tokens
from servelab.search.preflight.place import MODEL_ACTION, Place


def look(place: Place) -> Iterator[Finding]:
    """One finding per candidate of an engine whose rules are known."""
    for known in place.candidates:
        engine, configuration = place.engine(known), known.configuration
        pinned = known.planned.runs[0].spec.model.second_models
        named = [each for each in hub_models(configuration.arguments) if not Path(each[1]).exists()]
        if unknown := [(argument, model) for argument, model, _ in named if model not in pinned]:
            argument, model = unknown[0]
            saw = f"`{argument}` names {model} of the hub, which is not fetched, and servers are offline"
            fix = f"give its commit, `model: {{second_models: {{{model}: COMMIT}}}}`, or name a folder"
            yield Finding(known.name, "error", saw, fix)
            continue
        if not engine.start_rules:
            continue
        facts = place.facts(known.planned.runs[0].spec.model)
        own = facts.shape.max_positions if facts.shape else None
        launch = PlannedStart(
            settings=place.effective(known),
            config=facts.config,
            board=place.board,
            parallel=engine.parallel(configuration.options, configuration.arguments, configuration.per_server),
            context=asked_tokens(place, known)
            or own_positions(configuration.arguments, configuration.environment_variables, own),
        )
        refused = [why for rule in engine.start_rules if (why := rule(launch))]
        if refused:
            yield Finding(known.name, "error", "; ".join(refused), f"change one: {engine.name} does not start")
        elif not facts.config:
            yield Finding(known.name, "unknown", "the model's configuration is not known here", MODEL_ACTION)
        else:
            yield Finding(known.name, "ok", f"{engine.name} starts with these numbers")


CHECKS.register("settings", PreflightCheck("settings", "settings that an engine refuses together", look))


def look_at_changes(place: Place) -> Iterator[Finding]:
    """One finding per candidate that differs from the baseline in settings only."""
    if not place.candidates:
        return
    first, *others = place.candidates
    seen = {"": "the baseline"}
    for known in others:
        changes = effective_changes(place.project.study, first.configuration, known.configuration)
        if changes is None:
            continue
        text = shown(changes)
        if same := seen.get(text):
            saw = f"{place.engine(known).name} serves it as {same}"
            yield Finding(known.name, "warning", saw, "remove it: it is measured a second time")
        else:
            yield Finding(known.name, "ok", text)
        seen.setdefault(text, known.name)


CHECKS.register(
    "effective",
    PreflightCheck("effective", "what a candidate changes as its engine serves it, defaults included", look_at_changes),
)
