"""A file at a plain URL."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field

from servelab.content import Content
from servelab.sources import FILE_SOURCES, FileSource


class UrlFile(FileSource):
    """A file at a plain URL."""

    kind: Literal["url"] = "url"
    url: str = Field(description="Address, http or https.", pattern=r"^https?://")

    def fetch(self, content: Content, destination: Path) -> None:
        """Downloads it."""
        from servelab.download import download  # here, for httpx takes a tenth of a workflow's start

        download(self.url, destination, content)

    def describe(self) -> str:
        """The address."""
        return self.url


FILE_SOURCES.register("url", UrlFile)
