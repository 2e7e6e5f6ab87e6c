"""Fills the templates of reports and pages: HTML with all quotes escaped, and GitHub-flavoured Markdown."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Callable
from typing import Any

import jinja2
from markupsafe import Markup

CONTROL = re.compile(r"\x1b\[[0-9;]*[A-Za-z]|[\x00-\x08\x0b-\x1f\x7f]")
"""Terminal colours and other control characters, which log lines may hold."""


def render_html(template: str, content: dict[str, Any], runtime: str = "", **functions: Callable[..., Markup]) -> str:
    """One self-contained file with its style and scripts inside; `functions` are those that the template calls.

    `runtime` is the script that draws the charts of a page, for one that has any. The page's policy (CSP) lets a
    browser use that style and these scripts only, by their hashes, and fetch nothing.
    """
    environment = _environment()
    own = {name: _source(environment, name) for name in ("report.css", "report.js", "charts.js")}
    scripts = [own["report.js"], *([runtime, own["charts.js"]] if runtime else [])]
    environment.globals["style"] = Markup(own["report.css"])  # noqa: S704 (our own file)
    environment.globals["style_hash"] = _policy_hash(own["report.css"])
    environment.globals["scripts"] = [Markup(script) for script in scripts]  # noqa: S704 (ours, or of our package)
    environment.globals["script_hashes"] = [_policy_hash(script) for script in scripts]
    environment.globals.update(functions)
    return environment.get_template(template).render(content)


def _source(environment: jinja2.Environment, file: str) -> str:
    assert environment.loader is not None
    return environment.loader.get_source(environment, file)[0]


def _policy_hash(text: str) -> Markup:
    """The text as a source of a content security policy."""
    return Markup("sha256-") + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def render_markdown(template: str, content: dict[str, Any]) -> str:
    """The text without runs of empty lines."""
    text = _environment().get_template(template).render(content)
    return re.sub(r"\n{3,}", "\n\n", text).strip() + "\n"


def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("servelab.report"),
        autoescape=jinja2.select_autoescape(enabled_extensions=("html.j2",)),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=lambda value: value if isinstance(value, Markup) else CONTROL.sub("", str(value)),
    )
    environment.filters["cell"] = _markdown_text
    return environment


def _markdown_text(text: str) -> str:
    """Text that Markdown shows unchanged, also in a table's cell."""
    return re.sub(r"([\\`*_\[\]<>|#~&])", r"\\\1", " ".join(text.split()))
