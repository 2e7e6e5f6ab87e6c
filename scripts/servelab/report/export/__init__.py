"""Exports: one file for each tool that takes a study's figures. Each registers itself.

Every exporter uses the tool's own client. Clients that the workflow does not need are in `envs/publish.lock.txt`.
"""

from __future__ import annotations

from typing import Protocol

from servelab.core.registry import Registry
from servelab.report.export.figures import Exported

EXPORTS: Registry[Export] = Registry("export")


class Export(Protocol):
    """A tool that takes figures."""

    address: str | None
    """Meaning of `--uri`; None for an export that is only a text."""

    def export(self, study: Exported, uri: str | None) -> str:
        """Hands a study's figures over; returns the text of them, or a line that says where they are.

        `ConfigError` if the client is not installed, `Outage` if the address does not take them.
        """


EXPORTS.load(__name__)
