"""The command as a Deployment of Kubernetes."""

from __future__ import annotations

from typing import Any

import yaml

from servelab.report.forms import FORMS, Deployment, Form, comment

RESOURCES = {"nvidia": "nvidia.com/gpu", "ascend": "huawei.com/Ascend910"}
"""Kind of device → the resource by which its vendor's device plugin gives it."""


def build(deployment: Deployment) -> str:
    """A manifest with one server that has its accelerators and shared memory."""
    program, *arguments = deployment.words
    name = "serve-" + deployment.study.replace("_", "-").strip(".-")
    labels = {"app": name}
    remarks = [deployment.image_remark, deployment.model_remark]
    container: dict[str, Any] = {
        "name": "server",
        "image": deployment.image_or_placeholder,
        "command": [program],
        "args": arguments,
    }
    if variables := deployment.variables:
        container["env"] = [{"name": key, "value": value} for key, value in variables.items()]
    if deployment.kind.gres:
        resource = RESOURCES.get(deployment.device, f"<RESOURCE of {deployment.device} devices>")
        container["resources"] = {"limits": {resource: deployment.accelerators}}
        remarks.append("The resource has the name that your cluster's device plugin gives it.")
    container["volumeMounts"] = [{"name": "shared-memory", "mountPath": "/dev/shm"}]  # noqa: S108 (a pod's own)
    remarks.append("To be reached from outside the pod, most engines need --host 0.0.0.0, and the pod a Service.")
    manifest = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name},
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": dict(labels)},  # a second one, for YAML would write an anchor
                "spec": {
                    "containers": [container],
                    "volumes": [{"name": "shared-memory", "emptyDir": {"medium": "Memory"}}],
                },
            },
        },
    }
    return "\n".join([*comment(*remarks), yaml.safe_dump(manifest, sort_keys=False, width=1000).rstrip()])


FORMS.register("kubernetes", Form("kubernetes", "Kubernetes manifest", 3, "yaml", build))
