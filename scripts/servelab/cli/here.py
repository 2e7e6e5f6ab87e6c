"""A whole study in one allocation: `servelab run STUDY --here`, and the batch script that calls it."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

from servelab.cli.checkout import COMMAND, CONFIG, STUDIES
from servelab.core.errors import ConfigError
from servelab.core.files import CHECKOUT, own_or_shipped
from servelab.core.run_spec import HardwareSpec
from servelab.core.yaml_file import read_yaml
from servelab.machine import allocations
from servelab.machine.allocations.slurm import OPTIONS, Slurm
from servelab.machine.devices import DEVICES, ask
from servelab.measure.inputs import ENDS_AT, STEP
from servelab.study.site import Site, load_site
from servelab.study.study import StudyHardware, load_study

_NOT_BATCH_MIN = 24 * 60
"""Minutes that a batch script asks for where the site names no longest time."""


def hardware_of(studies: Sequence[str], root: Path) -> StudyHardware:
    """The node that studies measure on; `ConfigError` unless it is one kind, and one node."""
    names = studies or read_yaml(own_or_shipped(root, CONFIG)).get("studies") or []
    found = [load_study(root / STUDIES / f"{name}.yaml").hardware for name in names]
    if len({each.accelerator for each in found}) != 1:
        raise ConfigError(f"{', '.join(names)}: one allocation has one kind of accelerator; name studies of one kind")
    if found[0].nodes > 1:
        raise ConfigError(f"{names[0]}: its runs take {found[0].nodes} nodes; use `--profile slurm` (docs/cluster.md)")
    return max(found, key=lambda each: each.per_node)


def step_on_node(words: Sequence[str]) -> tuple[list[str], dict[str, str]] | None:
    """The command, with its variables, that runs `servelab run` on the first node of the allocation.

    None if this process is there: `salloc` may leave its shell on the machine where it was typed.
    """
    slurm = Slurm()
    if not slurm.active() or "SLURMD_NODENAME" in os.environ:
        return None
    return slurm.on_node(slurm.other_nodes()[0], [sys.executable, str(CHECKOUT / COMMAND), "run", *words])


def here_words(hardware: StudyHardware) -> tuple[list[str], dict[str, str]]:
    """Words for Snakemake, as many devices and cores as the allocation has, and variables of its jobs.

    On several nodes each run is a step on one that has devices free. Snakemake's own lock is left out, as an allocation
    that ends may leave it: each study is claimed besides.
    """
    kind, allocation = DEVICES.get(hardware.device), allocations.current()
    words, variables = ["--nolock", "--cores", os.environ.get("SLURM_CPUS_ON_NODE", "all")], _ends_at()
    if not kind.gres:
        return words, variables
    count = len(allocation.given(kind, kind.find()))
    if not count:
        raise ConfigError(f"{allocation.giver()} has no {hardware.accelerator}; ask for them: salloc --gres=gpu:8 …")
    if others := allocation.other_nodes():
        variables[STEP] = f"{kind.gres[0]} {max(1, int(words[-1]) // count)}"
        count *= 1 + len(others)
        print(f"{1 + len(others)} nodes, {count} accelerators: each run is a step on one node", file=sys.stderr)
    return [*words, "--resources", f"accelerators={count}"], variables


def _ends_at() -> dict[str, str]:
    """The variable with the Unix time at which the allocation ends; empty if it does not end, or outside Slurm."""
    slurm = Slurm()
    if not slurm.active() or ENDS_AT in os.environ:
        return {}
    said = ask(["squeue", "--noheader", "--format=%e", f"--jobs={slurm.job_id()}"]).strip()
    try:
        return {ENDS_AT: str(datetime.fromisoformat(said).timestamp())}
    except ValueError:  # `N/A`
        return {}


def batch_script(studies: Sequence[str], root: Path) -> str:
    """A script for `sbatch` that runs whole studies in one job."""
    hardware = hardware_of(studies, root)
    node = HardwareSpec(accelerator=hardware.accelerator, device=hardware.device, count=hardware.per_node)
    site = _site(root)
    if site is None:
        gres = DEVICES.get(hardware.device).gres
        asked = {"gres": f"{gres[0]}:{hardware.per_node}"} if gres else {}
        options = {**asked, "exclusive": "", "time": str(_NOT_BATCH_MIN)}
    else:
        placement = site.placement(node)
        request = placement.request(node, placement.most_runtime_min or _NOT_BATCH_MIN)
        options = {OPTIONS[name]: str(value) for name, value in request.items() if name in OPTIONS}
    lines = [f"#SBATCH --{name}{value and '='}{value}" for name, value in {"nodes": "1", **options}.items()]
    extra = [f"#SBATCH {placement.extra}"] if site and placement.extra else []
    name = f"servelab-{'-'.join(studies)}".rstrip("-")
    command = f"{sys.executable} {CHECKOUT / COMMAND} run {' '.join([*studies, '--here'])}"
    return "\n".join(
        [
            "#!/bin/bash",
            "# The whole study in one job. Submit it again to go on where it ended.",
            f"#SBATCH --job-name={name}",
            *lines,
            *extra,
            f"cd {root}",
            f"exec {command}",
        ]
    )


def _site(root: Path) -> Site | None:
    """The site of config/config.yaml, else of the installed profile `slurm`; None without either."""
    profiles = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config")
    for file in (own_or_shipped(root, CONFIG), profiles / "snakemake/slurm/servelab.yaml"):
        named = read_yaml(file) if file.exists() else {}
        if site := named.get("site"):
            own = root / "config/sites" / f"{site}.yaml"
            return load_site(own if own.exists() else Path(str(named.get("site_file", own))))
    return None
