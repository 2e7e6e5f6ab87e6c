"""The words after `--config` on Snakemake's command line, which it reads before any code of the workflow."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import takewhile

_OPTION = re.compile(r"(?:--config|-C)(?:=(.*))?", re.DOTALL)
_SETTING = re.compile(r"[a-zA-Z_][\w-]*\w=.*", re.DOTALL)
"""What Snakemake accepts: `parse_config` in its `cli.py`."""


def wrong_setting(words: Sequence[str]) -> str | None:
    """What is wrong with the first word that Snakemake would refuse as a setting with a traceback; None if none is.

    `words` are those of its command line.
    """
    is_setting = False
    for word in takewhile(lambda word: word != "--", words):
        option = _OPTION.fullmatch(word)
        given = option[1] if option else word
        if option or word.startswith("-"):
            is_setting = option is not None
        if is_setting and given is not None and not _SETTING.fullmatch(given):
            fix = "a key is two characters or more of a-z, A-Z, 0-9, _ and -, the first no digit"
            if "=" not in given:
                fix = f"write a target before --config: snakemake {given} --config KEY=VALUE"
            return f"--config: {given!r} is not KEY=VALUE, as each word after --config has to be; {fix}"
    return None
