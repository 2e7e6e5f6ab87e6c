"""A double of docker (and podman): a client that may be killed, and a daemon that it only talks to.

`docker_double.py daemon FOLDER` serves until it is killed; a program that calls `client(FOLDER, argv)` is the command
line. As docker's pages say: a container is no child of the client and outlives it; with `--interactive`, its standard
input closes when the client is gone; signals to the client are passed on; all of it ends with its first process; a
failure of docker itself is exit code 125. What it was asked is in FOLDER/asked, one JSON array a line; a pull fails
where FOLDER/unreachable exists.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path

import psutil

VALUED = {"--mount", "--env", "--name", "--label", "--device", "--gpus", "--entrypoint", "--user", "--group-add"}
VALUED |= {"--workdir", "--security-opt"}
"""Flags of `run` that are followed by a value; others have it after `=`, or none."""


def parse_run(argv: list[str]) -> tuple[list[tuple[str, str]], str, list[str]]:
    """Flags with their values, the image, and the command."""
    flags, rest = [], list(argv)
    while rest[0].startswith("-"):
        name, _, value = rest.pop(0).partition("=")
        flags.append((name, rest.pop(0) if name in VALUED and not value else value))
    return flags, rest[0], rest[1:]


class Daemon:
    """Images and running containers."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.running: dict[str, subprocess.Popen[bytes]] = {}

    def serve(self) -> None:
        with socket.socket(socket.AF_UNIX) as listening:
            listening.bind(str(self.folder / "socket"))
            listening.listen()
            while True:
                connection, _ = listening.accept()
                threading.Thread(target=self.answer, args=(connection,), daemon=True).start()

    def answer(self, connection: socket.socket) -> None:
        with connection, connection.makefile("rw") as lines:

            def say(**message: object) -> None:
                with suppress(OSError, ValueError):
                    lines.write(json.dumps(message) + "\n")
                    lines.flush()

            asked = json.loads(lines.readline())
            with (self.folder / "asked").open("a") as record:
                record.write(json.dumps(asked) + "\n")
            match asked:
                case ["image", "inspect", reference]:
                    say(exit=0 if self.has(reference) else 1)
                case ["pull", reference] if not (self.folder / "unreachable").exists():
                    with (self.folder / "images").open("a") as images:
                        images.write(f"{reference}\n")
                    say(exit=0)
                case ["container", "inspect", "--format", "{{.State.Pid}}", name] if name in self.running:
                    say(output=f"{self.running[name].pid}\n", exit=0)
                case ["rm", "--force", name]:
                    if name in self.running:
                        self.running[name].kill()
                        self.end(self.running[name])
                    say(exit=0)
                case ["run", *run] if self.has(parse_run(run)[1]):
                    self.run(run, lines, say)
                case _:
                    say(output=f"docker: Error response from daemon: {asked}\n", exit=125)

    def has(self, reference: str) -> bool:
        images = self.folder / "images"
        return images.exists() and reference in images.read_text().splitlines()

    def run(self, argv: list[str], lines, say) -> None:
        flags, _, command = parse_run(argv)
        given = dict(flags)
        variables = dict(value.split("=", 1) for name, value in flags if name == "--env")
        container = subprocess.Popen(
            [given["--entrypoint"], *command],
            env={"PATH": os.environ["PATH"], **variables},
            stdin=subprocess.PIPE if "--interactive" in given else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        self.running[given.get("--name", "")] = container
        threading.Thread(target=self.follow, args=(container, lines), daemon=True).start()
        threading.Thread(target=self.end, args=(container,), daemon=True).start()
        assert container.stdout is not None
        while chunk := os.read(container.stdout.fileno(), 65536):
            say(output=chunk.decode(errors="replace"))
        code = container.wait()
        say(exit=code if code >= 0 else 128 - code)

    def follow(self, container: subprocess.Popen[bytes], lines) -> None:
        """Passes signals on until the client is gone, then closes standard input."""
        with suppress(OSError, ValueError):
            for line in lines:
                container.send_signal(json.loads(line)["signal"])
        if container.stdin is not None:
            container.stdin.close()

    def end(self, container: subprocess.Popen[bytes]) -> None:
        """When its first process has ended, kills the others of its session."""
        container.wait()
        for pid in psutil.pids():
            with suppress(ProcessLookupError, PermissionError):
                if os.getsid(pid) == container.pid:
                    os.kill(pid, signal.SIGKILL)


def client(folder: Path, argv: list[str]) -> int:
    """The command line: its exit code."""
    wake, waker = os.pipe()
    os.set_blocking(waker, False)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda number, _: os.write(waker, bytes([number])))
    stdin = [0] if "--interactive" in argv else []
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(str(folder / "socket"))
        connection.sendall(json.dumps(argv).encode() + b"\n")
        held = b""
        while True:
            ready, _, _ = select.select([connection, wake, *stdin], [], [])
            if wake in ready:
                connection.sendall(json.dumps({"signal": os.read(wake, 1)[0]}).encode() + b"\n")
            if 0 in ready and not os.read(0, 65536):
                stdin = []
                connection.shutdown(socket.SHUT_WR)
            if connection in ready:
                if not (chunk := connection.recv(65536)):
                    return 125
                *whole, held = (held + chunk).split(b"\n")
                for line in whole:
                    message = json.loads(line)
                    os.write(1, message.get("output", "").encode())
                    if "exit" in message:
                        return int(message["exit"])


if __name__ == "__main__":
    Daemon(Path(sys.argv[2])).serve()
