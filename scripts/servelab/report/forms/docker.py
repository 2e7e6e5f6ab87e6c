"""The command in a container, by Docker."""

from __future__ import annotations

from servelab.report.forms import FORMS, Deployment, Expanded, Form, assigned, comment, continued


def build(deployment: Deployment) -> str:
    """`docker run` on the host's network and shared memory, which the workers of an engine share."""
    needs = deployment.kind.passthrough(deployment.devices)
    program, *arguments = deployment.words
    lines = comment(deployment.image_remark, deployment.model_remark)
    lines.append(assigned("IMAGE", deployment.image_or_placeholder))
    lines.append(
        continued(
            [
                ["docker", "run", "--rm", "--network", "host", "--ipc", "host"],
                needs.flags.get("docker", ()),
                [part for node in needs.nodes for part in ("--device", node)],
                *(["--volume", f"{path}:{path}:ro"] for path in needs.mounts),
                ["--volume", Expanded('"$HOME/.cache/huggingface:/root/.cache/huggingface"')],
                *(["--env", f"{name}={value}"] for name, value in deployment.variables.items()),
                ["--entrypoint", program, Expanded('"$IMAGE"')],
                arguments,
            ]
        )
    )
    return "\n".join(lines)


FORMS.register("docker", Form("docker", "Docker", 1, "sh", build))
