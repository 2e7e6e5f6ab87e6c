"""Runs the demo here: tunes a small model with llama.cpp on this machine's CPU, and prints the command to use.

Outside a checkout the current folder gets the demo's study, as an example for your own.
"""

import argparse
import subprocess
import sys
from pathlib import Path

from servelab.cli.checkout import COMMAND, STUDIES
from servelab.cli.first_study import write_study
from servelab.core.files import CHECKOUT

STUDY = "cpu-smollm2"


def options() -> argparse.ArgumentParser:
    return argparse.ArgumentParser(description=__doc__)


def main(arguments: argparse.Namespace) -> None:
    shipped = STUDIES / f"{STUDY}.yaml"
    if not shipped.exists():
        text = (CHECKOUT / shipped).read_text(encoding="utf-8")
        write_study(STUDY, text.replace("../schema/study.schema.json", "{schema}"), Path())
    for words in (("run", STUDY), ("report", STUDY)):
        if code := subprocess.run([sys.executable, CHECKOUT / COMMAND, *words], check=False).returncode:
            sys.exit(code)
