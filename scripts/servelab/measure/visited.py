"""A server that already runs, with the interface of `servelab.measure.server.Server`: nothing is started or ended.

What is a server start elsewhere is a visit here: from the first load until `stop`.
"""

from __future__ import annotations

import time
from pathlib import Path
from uuid import uuid4

import psutil

from servelab.core.credentials import shell_variables
from servelab.core.errors import ConfigError, Outage, ServelabError
from servelab.core.processes import Supervised
from servelab.engines.endpoint import Address, ask, not_known
from servelab.measure.run_files import ManifestEndpoint
from servelab.measure.server import Launch, Server

_RECOVERY_S, _POLL_S = 10.0, 0.5
"""Seconds to answer again after requests have failed, and between two questions."""
_CACHES = "each visit and each round sends the same prompts again"


class VisitedServer:
    """A server at an address. What goes wrong with it is an `Outage`: it is not the candidate's, and may be over."""

    startup_s: float | None = None
    """None: nobody saw it start."""

    def __init__(self, address: Address, model: str, log: Path) -> None:
        """`model` is its name in requests; what is known of the visit goes to `log`."""
        self._address, self._model, self._log = address, model, log
        self.processes: list[Supervised] = []
        """Empty: none of its processes is ours."""
        self.is_up = False
        """Whether it is being visited."""
        self.base_url = address.url
        """See `checked_url`."""
        self.reach = {
            "api_key_env": address.key_variable,
            "header_env": dict(address.header_variables),
            "insecure": address.insecure,
        }
        """Fields of a load plan."""
        self.start_id: str | None = None
        """Random id of the last visit; None before the first."""
        self._log_from = 0
        self.replicas: list[Server] = []
        self.balancer = self.parts = None
        """It is one server, whatever it consists of."""
        self.pid = 0
        """Pid of the process that listens, if it is on this machine and can be seen; 0 otherwise."""
        self.endpoint: ManifestEndpoint | None = None
        """Its part of the manifest; None before the first visit."""
        self.launch = Launch([], {}, shell_variables())
        """Nothing is started."""

    @property
    def serving(self) -> list[tuple[str, int]]:
        """Address and pid of the server; nothing between visits."""
        return [(self.base_url, self.pid)] if self.is_up else []

    @property
    def base_urls(self) -> list[str]:
        """See `Server.base_urls`."""
        return [self.base_url]

    @property
    def logs_from(self) -> dict[Path, int]:
        """The log → its bytes before the last visit; all of it if there is none now."""
        return {self._log: self._log_from if self.is_up else self._log.stat().st_size}

    def start(self) -> None:
        """Begins a visit; `Outage` if it does not answer, `ConfigError` if it has no such model."""
        self._log_from = self._log.stat().st_size
        try:
            asked = ask(self._address, self._model)
        except ConfigError:
            raise
        except ServelabError as error:
            raise Outage(str(error)) from None
        self.pid = _listener(self._address.port)
        self.endpoint = ManifestEndpoint(
            asked=asked,
            process_seen=self.pid != 0,
            not_known=dict(not_known(asked, _CACHES)),
        )
        self.start_id, self.is_up = uuid4().hex, True
        with self._log.open("a", encoding="utf-8") as log:
            print(f"=== a visit; what the server says of itself: {asked.model_dump_json()}", file=log)
            if self._address.port and not self.pid:
                print("its process cannot be seen: its use of the CPUs counts as that of others", file=log)

    def stop(self) -> None:
        """Ends the visit; the server keeps running."""
        self.is_up = False

    def reset_caches(self) -> None:
        """Begins a visit if there is none. Nothing empties its caches."""
        if not self.is_up:
            self.start()

    def check_alive(self) -> None:
        """Does nothing: whether it still answers is asked when requests have failed."""

    def check_serving(self) -> None:
        """Raises `Outage` unless it answers within 10 s."""
        deadline = time.monotonic() + _RECOVERY_S
        while True:
            try:
                ask(self._address, self._model)
                return
            except ServelabError as error:
                if time.monotonic() > deadline:
                    raise Outage(f"it does not answer any more: {error}") from None
            time.sleep(_POLL_S)

    def tail(self, count: int) -> list[str]:
        """Nothing: its log is its own."""
        return []


def _listener(port: int | None) -> int:
    """Pid of the process of this machine that listens on a port; 0 if none can be seen."""
    if port is None:
        return 0
    try:
        found = psutil.net_connections("tcp")
    except psutil.Error:
        return 0
    listening = [each for each in found if each.status == psutil.CONN_LISTEN]
    return next((each.pid for each in listening if each.pid and each.laddr and each.laddr.port == port), 0)
