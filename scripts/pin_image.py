"""Pins a container image by the digest that its tag names now; writes the file that a study's `lock` names."""

from __future__ import annotations

import argparse
from datetime import UTC, datetime
from pathlib import Path

from servelab.core.cli import run
from servelab.engines.locking import PLATFORM, find_digest, parse_reference, write_description


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("image", help="registry, name and tag, as docker.io/lmsysorg/sglang:v0.5.9")
    parser.add_argument("--version", required=True, help="the version that the engine reports inside")
    parser.add_argument("--platform", default=PLATFORM, help="what it must hold; default: %(default)s")
    parser.add_argument(
        "--output", type=Path, default=None, help="file to write; default: envs/NAME-VERSION.image.yaml"
    )
    arguments = parser.parse_args()

    reference = parse_reference(arguments.image)
    file = arguments.output or Path("envs") / f"{reference.name}-{arguments.version}.image.yaml"
    pinned = find_digest(reference, arguments.platform)
    before = write_description(file, reference, pinned, arguments.version, datetime.now(tz=UTC).date())
    image = reference.at(pinned.digest)
    if before is not None and before != image:
        print(f"{file} named {before}")
    print(f"{file}: {image}")
    print(f"name it in a study: {{version: {arguments.version}, runtime: docker, lock: {file}}}")


if __name__ == "__main__":
    run(main)
