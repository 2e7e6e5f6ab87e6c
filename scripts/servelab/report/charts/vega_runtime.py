"""The script with which charts of a page answer to pointer and keyboard: Vega, out of the package that draws them."""

from __future__ import annotations

import os
from contextlib import suppress
from functools import cache
from importlib.metadata import version
from pathlib import Path

import altair as alt
import vl_convert

from servelab.core.errors import Outage
from servelab.core.files import write_text

VEGA_LITE = "_".join(alt.SCHEMA_VERSION.split(".")[:2])
"""The version that draws the charts, as vl-convert names it."""


@cache
def chart_runtime() -> str:
    """Vega, Vega-Lite and Vega-Embed, which puts `vegaEmbed` into the page's global names; about 0.9 MB.

    The same package always makes the same text. It takes seconds, so it is kept in the user's cache folder
    (`XDG_CACHE_HOME`, else `~/.cache`).
    """
    place = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "servelab"
    file = place / f"vega-{VEGA_LITE}-of-vl-convert-{version('vl-convert-python')}.js"
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, ValueError):
        pass
    # in a function of its own, so that its hundreds of names of one letter are not the page's
    bundle = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;", vl_version=VEGA_LITE)
    text = f'"use strict";\n(() => {{\n{bundle}\n}})();\n'
    with suppress(Outage):  # without it, it is made again for the next page
        write_text(file, text)
    return text
