"""How several servers of one configuration and their balancer are started: as a script, a compose file, for Slurm."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from servelab.engines.balancers import BALANCERS, Balancer
from servelab.machine.devices import DEVICES, Device, Passthrough
from servelab.measure.run_files import RunManifest
from servelab.study.configuration import Configuration
from servelab.study.study import Study

_PORTS = (8000, 8999)
"""Of the balancer in front, and of its own metrics; the servers have those after the first."""
_FOLDER = "balancer"


def script_of(commands: Sequence[str], ports: Sequence[int], balancer: Balancer, head: Sequence[str] = ()) -> str:
    """A script that starts all servers on their ports, and the balancer; when one of them ends, all do."""
    names = ", ".join(map(str, ports))
    if balancer.is_process:
        said = f"# {len(ports)} servers on ports {names}; {balancer.name} on port {_PORTS[0]} spreads the requests."
    else:
        said = f"# {len(ports)} servers on ports {names}; anyone who sends requests spreads them: {balancer.name}."
    lines = [
        "#!/bin/bash",
        *head,
        said,
        "trap 'kill $(jobs -p) 2>/dev/null' EXIT",
        *(f"{command} &" for command in commands),
    ]
    if balancer.is_process:
        folder = Path(_FOLDER)
        lines.append(f"mkdir -p {_FOLDER}")
        for name, text in balancer.files(_PORTS, ports, folder).items():
            lines += [f"cat > {_FOLDER}/{name} <<'END'", text.rstrip(), "END"]
        lines.append(f"{shlex.join(balancer.command(_PORTS, ports, folder))} &")
    started = len(commands) + balancer.is_process
    return "\n".join([*lines, f'while [ "$(jobs -pr | wc -l)" -eq {started} ]; do sleep 1; done', "exit 1"])


def launched(manifest: RunManifest) -> str:
    """The script with the servers' commands as they ran here, on the ports that they had."""
    assert manifest.balancer is not None
    commands, ports = [], []
    for server in manifest.replicas:
        variables = [f"{name}={value}" for name, value in sorted(server.environment_variables.items())]
        commands.append(_pinned(server.cpus) + shlex.join(["env", *variables, *server.command]))
        found = re.search(r"--port[= ](\d+)", " ".join(server.command))
        ports.append(int(found[1]) if found else 0)
    return script_of(commands, ports, BALANCERS.get(manifest.balancer.name))


def forms(
    study: Study, configuration: Configuration, command: str, port_flag: str, manifest: RunManifest | None
) -> dict[str, str]:
    """`script`, `sbatch`, and of a container's image `compose` → text, by the command that a user types for one server.

    The devices are the first of the machine. Nobody publishes an image of the routers, so they have no compose file.
    """
    kind, balancer = DEVICES.get(study.hardware.device), BALANCERS.get(configuration.balancer)
    ports = [_PORTS[0] + 1 + number for number in range(configuration.replicas)]
    each = configuration.per_server
    devices = [Device(str(index), str(index), study.hardware.device) for index in range(configuration.accelerators)]
    shown = [kind.environment(devices[each * number : each * (number + 1)]) for number in range(len(ports))]
    cpus = [server.cpus for server in manifest.replicas] if manifest else [[] for _ in ports]
    image = manifest.environment.image if manifest else None
    flags = " ".join(kind.passthrough(devices).flags.get("apptainer", ()))
    inside = f"apptainer exec {flags} docker://{image} env " if image else ""

    def commands(before: str) -> list[str]:
        return [
            " ".join([*(f"{name}={value}" for name, value in seen.items()), f"{_pinned(own)}{before}{command}", flag])
            for own, seen, flag in zip(cpus, shown, (f"{port_flag} {port}" for port in ports), strict=True)
        ]

    gres = f"--gres={kind.gres[0]}:{configuration.accelerators}" if kind.gres else "--exclusive"
    head = [f"#SBATCH --job-name=serve-{study.study}", "#SBATCH --nodes=1", f"#SBATCH {gres}"]
    head.append("# Your cluster may need more: partition, account, time limit, CPUs, memory.")
    measured = [f"# Measured in the image {image}."] if image else []
    found = {
        "script": script_of(commands(""), ports, balancer, measured),
        "sbatch": script_of(commands(inside), ports, balancer, head),
    }
    if image is not None and (balancer.image or not balancer.is_process):
        found["compose"] = _compose(image, balancer, command, port_flag, ports, shown, kind.passthrough(devices))
    return found


def _compose(
    image: str,
    balancer: Balancer,
    command: str,
    port_flag: str,
    ports: Sequence[int],
    shown: Sequence[dict[str, str]],
    needs: Passthrough,
) -> str:
    """A compose file of the servers on the host's network, each with its devices by the vendor's variable.

    `needs` is what shows all of them to a container.
    """
    shared = {"network_mode": "host", "ipc": "host"}
    services: dict[str, Any] = {}
    for number, (port, seen) in enumerate(zip(ports, shown, strict=True)):
        words = shlex.split(f"{command} {port_flag} {port}")
        variables = dict(seen)
        while re.match(r"[A-Za-z_]\w*=", words[0]):
            name, _, variables[name] = words.pop(0).partition("=")
        services[f"server{number}"] = {
            "image": image,
            **shared,
            "entrypoint": words,
            **({"environment": variables} if variables else {}),
            **({"gpus": "all"} if needs.flags.get("docker") else {}),
            **({"devices": list(needs.nodes)} if needs.nodes else {}),
            "volumes": [
                *(f"{path}:{path}:ro" for path in needs.mounts),
                "~/.cache/huggingface:/root/.cache/huggingface",
            ],
        }
    configs = {}
    if balancer.is_process:
        configs = {"balancer": {"content": next(iter(balancer.files(_PORTS, ports, Path("/etc/balancer")).values()))}}
        services["balancer"] = {
            "image": balancer.image,
            "network_mode": "host",
            "entrypoint": balancer.command(_PORTS, ports, Path("/etc/balancer")),
            "configs": [{"source": "balancer", "target": "/etc/balancer/nginx.conf"}],
        }
    return yaml.safe_dump({"services": services, **({"configs": configs} if configs else {})}, sort_keys=False)


def _pinned(cpus: Sequence[int]) -> str:
    return f"taskset -c {','.join(map(str, cpus))} " if cpus else ""
