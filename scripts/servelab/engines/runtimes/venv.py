"""A virtual environment, installed by pip from a lock with hashes."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import venv
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from servelab.core.errors import Outage
from servelab.core.identity import lock_sha256
from servelab.core.result_lock import claim
from servelab.engines.runtimes import RUNTIMES, Environment, Runtime, Tool, asked_version, read_environment

_PYTHON = Path("venv/bin/python")


@dataclass(frozen=True)
class Venv(Runtime):
    """Built in its final folder, since a virtual environment cannot be moved; `environment.json` marks it complete."""

    name: str = "venv"

    def version(self, lock: Path, packages: tuple[str, ...]) -> str | None:
        """See `Runtime.version`; that of the first package that the lock pins."""
        return _pinned_version(lock, packages)

    def build(self, tool: Tool, lock: Path, folder: Path) -> Environment:
        """See `Runtime.build`; a second build of the same folder waits for the first and uses its result."""
        marker = folder / "environment.json"
        with claim(marker):
            if marker.exists():
                return read_environment(marker)
            self._install(lock, folder)
            environment = Environment(
                tool=tool.name,
                version=asked_version(tool, tool.version_command(folder.absolute() / _PYTHON)),
                runtime=self.name,
                python=_PYTHON,
                lock_sha256=lock_sha256(lock),
                packages=_packages(folder / _PYTHON),
            )
            environment.write(marker)
        return read_environment(marker)

    def _install(self, lock: Path, folder: Path) -> None:
        shutil.rmtree(folder / "venv", ignore_errors=True)
        venv.create(folder / "venv", with_pip=False)
        notice = f"installing {lock.name} into {folder}; a GPU engine takes gigabytes and minutes"
        print(notice, file=sys.stderr, flush=True)
        flags = [
            "--quiet",
            "--no-deps",
            "--require-hashes",
            "--only-binary",
            ":all:",
            "--no-input",
            "--progress-bar",
            "off",
        ]
        command = [*_pip(folder / _PYTHON), "install", *flags, "-r", str(lock)]
        done = subprocess.run(command, stdout=sys.stderr, check=False)
        if done.returncode:
            raise Outage(
                f"pip could not install {lock} (see its lines above). A version that ends in `+cpu` is on PyTorch's "
                "own index: set pip's `find-links` or `extra-index-url` to it, see docs/engines.md"
            )


@cache
def _pinned_version(lock: Path, packages: tuple[str, ...]) -> str | None:
    names = "|".join(re.escape(package) for package in packages)
    found = re.search(rf"^(?:{names})==([^\s;\\]+)", lock.read_text(encoding="utf-8", errors="replace"), re.MULTILINE)
    return found.group(1) if found else None


def _pip(python: Path) -> list[str]:
    """The workflow's pip, applied to another environment, which then needs no pip."""
    return [sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", str(python)]


def _packages(python: Path) -> dict[str, str]:
    command = [*_pip(python), "list", "--format", "json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Outage(f"the environment does not work: `pip list` prints {done.stderr.strip()[-500:]}")
    return {package["name"]: package["version"] for package in json.loads(done.stdout)}


RUNTIMES.register("venv", Venv())
