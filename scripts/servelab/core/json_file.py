"""JSON files: one typed model writes a file, reads it, and gives the table of its keys in docs/output.md."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, ValidationError

from servelab.core.errors import ServelabError
from servelab.core.files import write_json


class NotJsonError(ServelabError):
    """A file is not JSON at all."""


class JsonPart(BaseModel):
    """An object inside a JSON file. Unknown keys are ignored, so that files of other versions can be read."""

    model_config = ConfigDict(frozen=True, defer_build=True)


class JsonFile(JsonPart):
    """A JSON file."""

    @classmethod
    def read(cls, path: Path) -> Self:
        """The content of a file; `ServelabError` names the file, and the key if one is missing or wrong."""
        try:
            content = path.read_bytes()
        except OSError as error:
            raise ServelabError(f"{path}: {error.strerror}") from None
        return cls.parse(content, path)

    @classmethod
    def parse(cls, content: bytes, path: Path) -> Self:
        """The content of a file that was read already; errors as of `read`."""
        try:
            return cls.model_validate_json(content)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            if first["type"] == "json_invalid":
                raise NotJsonError(f"{path}: {first['msg']}") from None
            key = ".".join(str(part) for part in first["loc"]) or "(whole file)"
            raise ServelabError(f"{path}: {key}: {first['msg']}") from None

    def write(self, path: Path) -> None:
        """Writes the file, whole or not at all."""
        write_json(path, self.model_dump(mode="json"))


def _finite(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value


FiniteOrNull = Annotated[float | None, BeforeValidator(_finite)]
"""A number, or null for NaN and infinity, which JSON does not have."""
