"""The command as it was measured, for weights that only this machine has."""

from __future__ import annotations

from servelab.report.forms import FORMS, Deployment, Form


def build(deployment: Deployment) -> str | None:
    """The measured command with its paths and port; None if the model's name is enough to start it anywhere."""
    return None if deployment.model_has_name else deployment.launch_command


FORMS.register("here", Form("here", "On this machine, as it was measured", 0, build))
