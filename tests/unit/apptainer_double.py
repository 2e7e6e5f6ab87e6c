"""A double of Apptainer: it runs the command itself, with the variables that Apptainer would give it.

`client(FOLDER, argv)`: what it was asked is in FOLDER/asked, one JSON array a line; a pull fails where
FOLDER/unreachable exists.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

PREFIX = "APPTAINERENV_"


def client(folder: Path, argv: list[str]) -> int:  # noqa: RET503 (exec does not return)
    """The command line: its exit code, unless it becomes the command."""
    with (folder / "asked").open("a") as record:
        record.write(json.dumps(argv) + "\n")
    if argv[0] == "pull":
        if (folder / "unreachable").exists():
            return 255
        Path(argv[2]).touch()
        return 0
    image = next(place for place, word in enumerate(argv) if word.endswith("image.sif"))
    command = argv[image + 1 :]
    inside = {name.removeprefix(PREFIX): value for name, value in os.environ.items() if name.startswith(PREFIX)}
    os.execvpe(command[0], command, {"PATH": os.environ["PATH"], **inside})
