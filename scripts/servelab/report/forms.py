"""The recommended command in forms that start as they are printed."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from servelab.machine.devices import DEVICES, Device, DeviceKind

_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL | re.ASCII)


@dataclass(frozen=True)
class Deployment:
    """A command with the hardware that it serves on."""

    study: str
    command: str
    """The serving command for reading, environment variables in front."""
    engine: str
    engine_version: str
    device: str
    """Kind of device."""
    accelerators: int
    model_has_name: bool
    """Whether the engine finds the weights by the name in the command, on any machine."""
    image: str | None
    """The container image that it was measured in, by digest; None where no container was used."""
    launch_command: str | None = None
    """The command as it was measured, with this machine's paths; None for a recorded study."""
    nodes: int = 1
    """More than one: the command is typed on each."""

    @property
    def variables(self) -> dict[str, str]:
        """Environment variables of the server."""
        return dict(_parts(self.command)[0])

    @property
    def words(self) -> list[str]:
        """Program and arguments."""
        return _parts(self.command)[1]

    @property
    def kind(self) -> DeviceKind:
        """How its devices are requested."""
        return DEVICES.get(self.device)

    @property
    def devices(self) -> list[Device]:
        """The first devices of a machine, as many as it needs, by their index."""
        return [Device(index=str(index), key=str(index), name=self.device) for index in range(self.accelerators)]


def command_forms(deployment: Deployment) -> dict[str, str]:
    """Title of each form that the study has all facts for → the text to copy; the best form for this machine first."""
    forms = {
        "On this machine, as it was measured": None if deployment.model_has_name else deployment.launch_command,
        "With the model's name in place of its path": _bare(deployment),
        "Docker": _docker(deployment),
        "Slurm script": _slurm(deployment),
    }
    return {title: text for title, text in forms.items() if text}


def _bare(deployment: Deployment) -> str | None:
    """The command as a user types it; None if it starts only with this machine's paths."""
    return deployment.command if deployment.model_has_name or deployment.launch_command is None else None


def _docker(deployment: Deployment) -> str | None:
    """`docker run` with the measured image, if there is one, on the host's network and shared memory.

    The model comes from the hub by its name, through the host's cache.
    """
    if deployment.image is None or not deployment.model_has_name:
        return None
    needs = deployment.kind.passthrough(deployment.devices)
    program, *arguments = deployment.words
    return _continued(
        [
            ["docker", "run", "--rm", "--network", "host", "--ipc", "host"],
            needs.flags.get("docker", ()),
            [part for node in needs.nodes for part in ("--device", node)],
            *(["--volume", f"{path}:{path}:ro"] for path in needs.mounts),
            ["--volume", _Expanded('"$HOME/.cache/huggingface:/root/.cache/huggingface"')],
            *(["--env", f"{name}={value}"] for name, value in deployment.variables.items()),
            ["--entrypoint", program, deployment.image],
            arguments,
        ]
    )


def _slurm(deployment: Deployment) -> str | None:
    """A script for `sbatch`; if the command was measured in a container, Apptainer runs the same image."""
    if not deployment.model_has_name or deployment.nodes > 1:
        return None
    kind = deployment.kind
    resource = f"--gres={kind.gres[0]}:{deployment.accelerators}" if kind.gres else "--exclusive"
    lines = [
        "#!/bin/bash",
        f"#SBATCH --job-name=serve-{deployment.study}",
        "#SBATCH --nodes=1",
        "#SBATCH --ntasks=1",
        f"#SBATCH {resource}",
        "# Your cluster may need more: partition, account, time limit, CPUs, memory.",
    ]
    start = ["srun"]
    if deployment.image:
        flags = kind.passthrough(deployment.devices).flags.get("apptainer", ())
        start += ["apptainer", "exec", *flags, f"docker://{deployment.image}"]
    else:
        needs = " ".join(f"{deployment.engine} {deployment.engine_version}".split())
        lines.append(f"# Submit it from an environment that has {needs}.")
    lines += [f"export {name}={shlex.quote(value)}" for name, value in deployment.variables.items()]
    lines.append(_continued([start, deployment.words]))
    return "\n".join(lines)


class _Expanded(str):
    """A word that a shell expands: it is written without quotes."""


def _continued(groups: Iterable[Sequence[str]]) -> str:
    """A shell command over several lines, a group of words on each, quoted where needed."""
    return " \\\n  ".join(" ".join(_quoted(word) for word in group) for group in groups if group)


def _quoted(word: str) -> str:
    return word if isinstance(word, _Expanded) else shlex.quote(word)


def _parts(command: str) -> tuple[list[tuple[str, str]], list[str]]:
    words = shlex.split(command)
    variables: list[tuple[str, str]] = []
    while words and (found := _ASSIGNMENT.fullmatch(words[0])):
        variables.append((found[1], found[2]))
        words = words[1:]
    return variables, words
