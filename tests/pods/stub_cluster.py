"""What Snakemake's executor needs of a Kubernetes cluster, on loopback: its pods are processes of this machine.

Requests and answers are those of Kubernetes' API; of what a cluster does with a job, this knows: it applies the
namespace's LimitRange, starts the container's command in an empty folder in place of `/workdir`, and says how it ended.
A volume's path must be a folder of this machine, for nothing is mounted.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import yaml

_PATH = re.compile(
    r"/(?:api/v1|apis/batch/v1)/namespaces/(?P<namespace>[^/]+)/(?P<kind>\w+)(?:/(?P<name>[^/]+))?(?:/(?P<sub>\w+))?"
)


class StubCluster:
    """An API server, and the pods of the jobs it was given."""

    def __init__(self, folder: Path, environment: dict[str, str], limit_ranges: list[dict[str, Any]] = ()) -> None:
        """`environment` is what a container of the image has; folders of pods are made in `folder`."""
        self.folder, self._environment, self._limit_ranges = folder, environment, limit_ranges
        self.sent: dict[str, dict[str, Any]] = {}
        """Jobs as they came, by name."""
        self.admitted: dict[str, dict[str, Any]] = {}
        """Jobs as a cluster would run them."""
        self.deleted: set[str] = set()
        self._pods: dict[str, subprocess.Popen[bytes]] = {}
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())

    def __enter__(self) -> StubCluster:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        self.kubeconfig = self.folder / "kubeconfig.yaml"
        address = f"http://127.0.0.1:{self._server.server_port}"
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "stub",
            "clusters": [{"name": "stub", "cluster": {"server": address}}],
            "contexts": [{"name": "stub", "context": {"cluster": "stub", "user": "stub"}}],
            "users": [{"name": "stub", "user": {"token": "none"}}],
        }
        self.kubeconfig.write_text(yaml.safe_dump(config))
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        for pod in self._pods.values():
            if pod.poll() is None:
                os.killpg(pod.pid, signal.SIGKILL)
            pod.wait()

    def log(self, name: str) -> str:
        """What a job's pod has said."""
        return (self.folder / name / "log").read_text()

    def _run(self, namespace: str, job: dict[str, Any]) -> dict[str, Any]:
        name = job["metadata"]["name"]
        self.sent[name] = json.loads(json.dumps(job))
        (container,) = job["spec"]["template"]["spec"]["containers"]
        for limit_range in self._limit_ranges:
            if limit_range["metadata"]["namespace"] == namespace:
                _apply(limit_range, container)
        self.admitted[name] = job
        workdir = self.folder / name / "workdir"
        workdir.mkdir(parents=True)
        with (self.folder / name / "log").open("wb") as log:
            self._pods[name] = subprocess.Popen(
                [*container["command"], *container["args"]],
                cwd=workdir,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        return job

    def _status(self, name: str) -> dict[str, Any]:
        returncode = self._pods[name].poll()
        ended = "active" if returncode is None else "failed" if returncode else "succeeded"
        return {**self.admitted[name], "status": {ended: 1}}

    def _pod(self, name: str) -> dict[str, Any]:
        returncode = self._pods[name].poll()
        state = {"running": {}} if returncode is None else {"terminated": {"exitCode": returncode}}
        status = {"name": "snakemake", "image": "", "imageID": "", "ready": False, "restartCount": 0, "state": state}
        return {"metadata": {"name": f"{name}-pod"}, "status": {"containerStatuses": [status]}}

    def answer(self, method: str, url: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        """Status and content of an answer."""
        parts = urlsplit(url)
        asked = _PATH.fullmatch(parts.path)
        query = parse_qs(parts.query)
        match method, asked and asked["kind"], asked and asked["sub"]:
            case "POST", "secrets", None:
                return 201, body
            case "POST", "jobs", None:
                return 201, self._run(asked["namespace"], body)
            case "GET", "jobs", "status":
                return 200, self._status(asked["name"])
            case "GET", "pods", None:
                return 200, {"items": [self._pod(query["labelSelector"][0].removeprefix("job-name="))]}
            case "GET", "pods", "log" if query.get("previous", [""])[0].lower() == "true":
                said = f'previous terminated container "snakemake" in pod "{asked["name"]}" not found'
                return 400, {"kind": "Status", "status": "Failure", "message": said, "code": 400}
            case "DELETE", "secrets" | "pods" | "jobs", None:
                self.deleted.add(asked["name"])
                return 200, {"kind": "Status", "status": "Success"}
        return 404, {"kind": "Status", "status": "Failure", "message": f"{method} {url}", "code": 404}

    def _handler(cluster) -> type[BaseHTTPRequestHandler]:  # noqa: N805 (`self` is the handler's)
        class Handler(BaseHTTPRequestHandler):
            def _answer(self) -> None:
                length = int(self.headers.get("Content-Length") or 0)
                body = json.loads(self.rfile.read(length) or b"{}")
                status, content = cluster.answer(self.command, self.path, body)
                text = json.dumps(content).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            do_GET = do_POST = do_DELETE = _answer  # noqa: N815

            def log_message(self, *_: object) -> None:
                pass

        return Handler


def _apply(limit_range: dict[str, Any], container: dict[str, Any]) -> None:
    """A LimitRange gives a container what it does not ask for itself."""
    resources = container.setdefault("resources", {})
    for limit in limit_range["spec"]["limits"]:
        resources["requests"] = {**limit["defaultRequest"], **resources.get("requests", {})}
        resources["limits"] = {**limit["default"], **resources.get("limits", {})}
