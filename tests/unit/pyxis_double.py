"""A double of `srun` with Pyxis, and of `enroot`: it checks the arguments and runs the command itself.

`client(FOLDER, argv)`: what it was asked is in FOLDER/asked, one JSON array a line.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

STEP = {"--overlap", "--nodes=1", "--ntasks=1", "--cpu-bind=none", "--mem=0"}
INSIDE = {"--no-container-mount-home", "--no-container-entrypoint", "--container-workdir=/servelab-home"}


def client(folder: Path, argv: list[str]) -> int:  # noqa: RET503 (exec does not return)
    """The command line after `srun` or `enroot`: its exit code, unless it becomes the command."""
    with (folder / "asked").open("a") as record:
        record.write(json.dumps(argv) + "\n")
    if argv[0] == "import":
        assert argv[3].startswith("docker://") and ":sha256:" in argv[3] and "docker.io" not in argv[3], argv
        Path(argv[2]).touch()
        return 0
    if argv[0] == "start":
        image = next(place for place, word in enumerate(argv) if word.endswith("image.sqsh"))
        command, names = argv[image + 1 :], [argv[at + 1] for at, word in enumerate(argv[:image]) if word == "--env"]
    else:
        options = {word.partition("=")[0]: word.partition("=")[2] for word in argv if word.startswith("--")}
        assert {*argv} >= STEP | INSIDE and options["--jobid"] == "17", argv
        assert Path(options["--container-image"]).is_file(), argv
        for mount in options["--container-mounts"].split(","):
            source, _, _ = mount.partition(":")
            assert Path(source).exists(), mount
        command = argv[next(place for place, word in enumerate(argv) if not word.startswith("--")) :]
        names = options.get("--container-env", "").split(",")
    os.execvpe(command[0], command, {"PATH": os.environ["PATH"], **{name: os.environ[name] for name in names if name}})
