"""A real Slurm on this machine: munged, slurmctld and a slurmd per node, with ports and folders of their own.

All are on loopback, or each node but the first is a host of its own as far as the network is concerned (`Network`).
"""

from __future__ import annotations

import contextlib
import os
import random
import re
import shutil
import signal
import socket
import stat
import subprocess
from pathlib import Path

import psutil
from patience import until

CLIENTS = ("sbatch", "salloc", "srun", "squeue", "scancel", "scontrol", "sinfo", "sacctmgr", "sshare")
PROGRAMS = ("munged", "munge", "slurmctld", "slurmd", *CLIENTS)
SBIN = "/usr/sbin:/sbin"
SLURM_CONF = Path(__file__).parents[1] / "data/slurm.conf"
ACCELERATORS = {"gpu1": "gpu:h100", "npu1": "npu:ascend910b", "cpu1": None}
"""Nodes and what they have 8 of."""


def missing_programs() -> list[str]:
    """Programs of Slurm that are not installed."""
    return [name for name in PROGRAMS if shutil.which(name, path=f"{os.environ['PATH']}:{SBIN}") is None]


def free_ports(count: int) -> list[int]:
    """Ports that nothing listens on."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]
    finally:
        for each in sockets:
            each.close()


class Network:
    """A network namespace, with a host's name, loopback and address of its own, for each node but the first."""

    def __init__(self, nodes: list[str]) -> None:
        net = f"198.18.{random.randrange(256)}"  # of the range for tests of network devices
        self.address = {node: f"{net}.{2 * number + 1}" for number, node in enumerate(nodes)}
        self._spaces = {node: f"servelab-{os.getpid()}-{node}" for node in nodes[1:]}
        self._bridge = f"sl{os.getpid()}"
        first, *others = nodes
        try:
            _ip("link", "add", self._bridge, "type", "bridge")
            _ip("addr", "add", f"{self.address[first]}/24", "dev", self._bridge)
            _ip("link", "set", self._bridge, "up")
            for number, node in enumerate(others):
                space, cable = self._spaces[node], f"{self._bridge}.{number}"
                _ip("netns", "add", space)
                _ip("link", "add", cable, "type", "veth", "peer", "name", "eth0", "netns", space)
                _ip("link", "set", cable, "master", self._bridge, "up")
                for command in (
                    ("addr", "add", f"{self.address[node]}/24", "dev", "eth0"),
                    ("link", "set", "eth0", "up"),
                ):
                    _ip("-n", space, *command)
                _ip("-n", space, "link", "set", "lo", "up")
        except BaseException:
            self.remove()
            raise

    def on(self, node: str) -> list[str]:
        """What a command on a node begins with."""
        if node not in self._spaces:
            return []
        host = ["unshare", "--uts", "sh", "-c", f'hostname {node}; exec "$@"', "sh"]
        return ["nsenter", f"--net=/run/netns/{self._spaces[node]}", *host]  # `ip netns exec` would hide the cgroups

    def remove(self) -> None:
        for space in self._spaces.values():
            subprocess.run(["ip", "netns", "delete", space], check=False, capture_output=True)
        subprocess.run(["ip", "link", "delete", self._bridge], check=False, capture_output=True)


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True)


class Cluster:
    """The daemons, and what a test asks of them. All state lies below `folder`."""

    def __init__(
        self, folder: Path, nodes: dict[str, str | None] = ACCELERATORS, network: Network | None = None
    ) -> None:
        """`nodes` are what each node has 8 of."""
        self.folder, self.nodes, self._network = folder, nodes, network
        self.bin = folder / "bin"
        """Clients that know this cluster, and the tools of the accelerators' vendors; goes first on a test's path."""
        self._path = f"{os.environ['PATH']}:{SBIN}"
        self._environment = {**os.environ, "PATH": self._path, "SLURM_CONF": str(folder / "etc/slurm.conf")}
        self._started: dict[str, int] = {}

    def start(self) -> None:
        """Starts the daemons and returns when all nodes are idle."""
        for name in ("etc", "log", "pids", "state/ctld", "munge/socket", "dev", "bin", "submitted"):
            (self.folder / name).mkdir(parents=True)
        (self.folder / "munge").chmod(0o711)
        (self.folder / "munge/key").write_bytes(os.urandom(128))
        (self.folder / "munge/key").chmod(0o600)
        self._write_configuration()
        self._start_munged()
        self._daemon("slurmctld", "slurmctld", "-i")
        until(lambda: self.does("scontrol", "ping"), "an answer of slurmctld")
        for node in self.nodes:
            self.start_slurmd(node)
        for node in self.nodes:
            until(lambda node=node: self.state(node) == "idle", f"node {node} to be idle")

    def stop(self) -> None:
        """Cancels what is left, and ends the daemons."""
        self.mend()  # without its daemon, a node's jobs' processes would live on
        self.does("scancel", "--me")
        until(lambda: not self.jobs(), "the end of all jobs")
        for name in reversed(list(self._started)):
            self._end(name, signal.SIGTERM)

    def mend(self) -> None:
        """Has every node back that lost its daemon or was set down.

        A job that was requeued must not start where processes of its first try still end: Slurm would drain the node.
        """
        for node in self.nodes:
            if f"slurmd-{node}" not in self._started:
                self.does("scontrol", "update", f"NodeName={node}", "State=DRAIN", "Reason=mend")
                self.start_slurmd(node)
        until(lambda: not self._stale_steps(), "the end of jobs that Slurm has given up")
        for node in self.nodes:
            self.does("scontrol", "update", f"NodeName={node}", "State=RESUME")  # refused where it is up

    def _stale_steps(self) -> set[str]:
        """Jobs that have processes, though Slurm has none of this name at work."""
        found = set()
        for process in psutil.process_iter(["name"]):
            if process.info["name"] == "slurmstepd":
                with contextlib.suppress(psutil.Error):
                    if process.environ().get("SLURM_CONF") == self._environment["SLURM_CONF"]:
                        found |= set(re.findall(r"slurmstepd: \[(\d+)\.", " ".join(process.cmdline())))
        return found - {job["id"] for job in self.jobs("RUNNING,COMPLETING")}

    def start_slurmd(self, node: str) -> None:
        """Starts a node's daemon."""
        self._daemon(f"slurmd-{node}", *(self._network.on(node) if self._network else []), "slurmd", "-N", node)

    def kill_slurmd(self, node: str) -> None:
        """Kills a node's daemon as an accident does; its jobs' processes live on."""
        self._end(f"slurmd-{node}", signal.SIGKILL)

    def ask(self, *command: str) -> str:
        """What a client of Slurm prints."""
        return subprocess.run(command, env=self._environment, capture_output=True, text=True, check=True).stdout

    def does(self, *command: str) -> bool:
        """Whether a client of Slurm does what it is told."""
        done = subprocess.run(command, env=self._environment, capture_output=True, check=False, timeout=30)
        return done.returncode == 0

    def state(self, node: str) -> str:
        """A node's state, as sinfo names it, without its flags."""
        return self.ask("sinfo", "--noheader", "--nodes", node, "--format=%T").strip().rstrip("*$~#!%@^-")

    def jobs(self, states: str = "PENDING,RUNNING,COMPLETING") -> list[dict[str, str]]:
        """Jobs in these states: id, state, node, run, restarts by Slurm, what was asked."""
        names = {
            "id": "%i",
            "state": "%T",
            "node": "%N",
            "comment": "%k",
            "name": "%j",
            "partition": "%P",
            "asked": "%b",
            "memory": "%m",
        }
        printed = self.ask("squeue", "--noheader", f"--states={states}", f"--format={'|'.join(names.values())}")
        jobs = [dict(zip(names, line.split("|"), strict=True)) for line in printed.splitlines()]
        return [{**job, "run": job["comment"].rpartition("_")[2]} for job in jobs]

    def submitted(self) -> list[tuple[list[str], str]]:
        """Arguments of every call of sbatch that submitted a job, and the comment among them."""
        files = sorted((self.folder / "submitted").iterdir(), key=lambda file: file.stat().st_mtime_ns)
        calls = [file.read_text().split("\x1f")[:-1] for file in files]
        jobs = [arguments for arguments in calls if "--test-only" not in arguments]
        return [(arguments, arguments[arguments.index("--comment") + 1]) for arguments in jobs]

    def running(self, node: str) -> dict[str, str] | None:
        """A job that runs on a node."""
        return next((job for job in self.jobs("RUNNING") if job["node"] == node), None)

    def _start_munged(self) -> None:
        folder = self.folder / "munge"
        files = {"key-file": "key", "socket": "socket/munge", "seed-file": "seed", "log-file": "log"}
        options = [f"--{option}={folder / name}" for option, name in files.items()]
        self._daemon("munged", "munged", *options, f"--pid-file={self.folder / 'pids/munged.pid'}", "--force")
        until(lambda: self.does("munge", "-S", str(folder / "socket/munge"), "-n"), "an answer of munged")

    def _daemon(self, name: str, *command: str) -> None:
        """Starts a daemon, which writes its own pid."""
        pid_file = self.folder / f"pids/{name}.pid"
        pid_file.unlink(missing_ok=True)
        subprocess.run(command, env=self._environment, check=True, capture_output=True, timeout=60)
        self._started[name] = int(until(lambda: pid_file.exists() and pid_file.read_text().strip(), f"{name} to start"))

    def _end(self, name: str, how: signal.Signals) -> None:
        """Ends a daemon by its pid and waits until it is gone."""
        process = psutil.Process(self._started.pop(name))
        process.send_signal(how)
        until(
            lambda: not process.is_running() or process.status() == psutil.STATUS_ZOMBIE,
            f"the end of {name}",
        )

    def _write_configuration(self) -> None:
        folder, user, host = self.folder, psutil.Process().username(), socket.gethostname()
        controller, *ports = free_ports(1 + len(self.nodes))
        nodes, gres, partitions = [], ["AutoDetect=off"], dict[str, list[str]]()
        for (node, kind), port in zip(self.nodes.items(), ports, strict=True):
            (folder / f"state/{node}").mkdir()
            what = f"Gres={kind}:8" if kind else ""
            nodes.append(
                f"NodeName={node} NodeAddr={self._address(node)} NodeHostname={host} Port={port} CPUs=32"
                f" RealMemory=64000 {what} Features=loopback,x86"
            )
            partitions.setdefault(node[:3], []).append(node)
            if kind:
                name, model = kind.split(":")
                for index in range(8):
                    # a device file makes Slurm set CUDA_VISIBLE_DEVICES; any character device will do
                    (folder / f"dev/{node}-{name}{index}").symlink_to("/dev/null")
                gres.append(f"NodeName={node} Name={name} Type={model} File={folder}/dev/{node}-{name}[0-7]")
        for name, of in partitions.items():
            default = "NO" if self.nodes[of[0]] else "YES"
            nodes.append(f"PartitionName={name} Nodes={','.join(of)} Default={default} MaxTime=1-0 State=UP")
        names = {"folder": folder, "user": user, "host": host, "controller": controller}
        names["address"] = self._address(next(iter(self.nodes)))
        # with it, daemons listen on the address of the host's name, which a network of our own has not
        names["communication"] = "" if self._network else "CommunicationParameters=NoCtldInAddrAny,NoInAddrAny"
        text = SLURM_CONF.read_text().format(nodes="\n".join(nodes), **names)
        (folder / "etc/slurm.conf").write_text(text)
        (folder / "etc/gres.conf").write_text("\n".join(gres) + "\n")
        (folder / "etc/cgroup.conf").write_text("CgroupAutomount=no\n")
        # The executor plugin takes variables named SLURM_ from its jobs' environment, SLURM_CONF among them.
        for name in CLIENTS:
            program = shutil.which(name, path=self._path)
            # a file for each call: two calls at once would mix their arguments in one
            note = f"printf '%s\\037' \"$@\" >{folder}/submitted/$$.$(date +%N)\n" if name == "sbatch" else ""
            self.tool(name, f'{note}SLURM_CONF={folder}/etc/slurm.conf exec {program} "$@"')

    def _address(self, node: str) -> str:
        return self._network.address[node] if self._network else "127.0.0.1"

    def tool(self, name: str, script: str) -> None:
        """A program on the path of all that a test runs."""
        path = self.bin / name
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(path.stat().st_mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)
