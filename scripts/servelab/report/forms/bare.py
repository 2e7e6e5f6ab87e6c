"""The command as a user types it on a machine that has the engine, if the engine finds the model by its name."""

from __future__ import annotations

from servelab.report.forms import FORMS, Deployment, Form


def build(deployment: Deployment) -> str | None:
    """The command and nothing else; None if it starts only with this machine's paths."""
    return deployment.command if deployment.model_has_name or deployment.launch_command is None else None


FORMS.register("bare", Form("bare", "With the model's name in place of its path", 1, build))
