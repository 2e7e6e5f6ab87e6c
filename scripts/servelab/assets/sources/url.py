"""A file at a plain URL."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field

from servelab.assets.pinned_file import Content
from servelab.assets.sources import FILE_SOURCES, FileSource


class UrlFile(FileSource):
    """A file at a plain URL."""

    kind: Literal["url"] = "url"
    url: str = Field(description="Address, http or https.", pattern=r"^https?://")

    def fetch(self, content: Content, destination: Path) -> None:
        """Downloads it."""
        from servelab.assets.sources.hub import download  # here: importing httpx takes a tenth of a workflow's start

        download(self.url, destination, content)

    def describe(self) -> str:
        """The address."""
        return self.url


FILE_SOURCES.register("url", UrlFile)
