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


def render_html(template: str, content: dict[str, Any], **functions: Callable[..., Markup]) -> str:
    """One self-contained file with its style and script inside; `functions` are those that the template calls.

    Its policy (CSP) lets a browser use that style and that script only, by their hashes, and fetch nothing.
    """
    environment = _environment()
    assert environment.loader is not None
    for name, file in (("style", "report.css"), ("script", "report.js")):
        text = environment.loader.get_source(environment, file)[0]
        environment.globals[name] = Markup(text)  # noqa: S704 (our own file)
        environment.globals[f"{name}_hash"] = _policy_hash(text)
    environment.globals.update(functions)
    return environment.get_template(template).render(content)


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
