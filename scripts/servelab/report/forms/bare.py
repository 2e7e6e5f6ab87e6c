"""The command as a user types it on a machine that has the engine."""

from __future__ import annotations

from servelab.report.forms import FORMS, Deployment, Form


def build(deployment: Deployment) -> str:
    """The command and nothing else."""
    return deployment.command


FORMS.register("bare", Form("bare", "With the model's name in place of its path", 1, build))
