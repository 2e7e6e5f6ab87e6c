"""The command in a Docker container, if it was measured in one and the model has a name on the hub."""

from __future__ import annotations

from servelab.report.forms import FORMS, Deployment, Expanded, Form, continued


def build(deployment: Deployment) -> str | None:
    """`docker run` with the measured image, on the host's network and shared memory, which the engine's workers need.

    The model comes from the hub by its name, through the host's cache.
    """
    if deployment.image is None or not deployment.model_has_name:
        return None
    needs = deployment.kind.passthrough(deployment.devices)
    program, *arguments = deployment.words
    return continued(
        [
            ["docker", "run", "--rm", "--network", "host", "--ipc", "host"],
            needs.flags.get("docker", ()),
            [part for node in needs.nodes for part in ("--device", node)],
            *(["--volume", f"{path}:{path}:ro"] for path in needs.mounts),
            ["--volume", Expanded('"$HOME/.cache/huggingface:/root/.cache/huggingface"')],
            *(["--env", f"{name}={value}"] for name, value in deployment.variables.items()),
            ["--entrypoint", program, deployment.image],
            arguments,
        ]
    )


FORMS.register("docker", Form("docker", "Docker", 2, build))
