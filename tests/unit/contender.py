"""One of many processes that want the same devices or ports: leases again and again, and is a witness of what it has.

`contender.py <folder> <seed> <port of a pool> …`, or no ports for GPUs. The folder has a file per thing with the
process that has it, `dead-<pid>` for each process that was killed, and `end` when all are to end.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from random import Random

from servelab.core.errors import Outage
from servelab.machine import lease as leases

leases._POLL_S = 0.002


def hold(folder: Path, things: list[str], draw: Random) -> None:
    """Has these things for a moment; an error if a living process has one too."""
    for thing in things:
        witness = folder / f"has-{thing}"
        other = witness.read_text() if witness.exists() else ""
        assert not other or (folder / f"dead-{other}").exists(), f"{thing} has two holders"
        witness.write_text(str(os.getpid()))
    time.sleep(draw.random() * 0.01)
    for thing in things:
        (folder / f"has-{thing}").write_text("")


def main() -> None:
    folder, draw, pool = Path(sys.argv[1]), Random(int(sys.argv[2])), [int(port) for port in sys.argv[3:]]
    while not (folder / "end").exists():
        if not pool:
            with leases.lease("nvidia", draw.randrange(1, 6)) as leased:
                hold(folder, [device.index for device in leased.devices], draw)
            continue
        try:
            ports = leases.lease_ports("127.0.0.1", draw.randrange(1, 3), pool)
        except Outage:
            continue  # others have them all
        hold(folder, [str(port) for port in ports.ports], draw)
        ports.release()


if __name__ == "__main__":
    main()
