"""A card with a study's answer, to paste into a pull request or a chat: a picture, and Markdown with the command."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import vl_convert
from markupsafe import escape

from servelab.core.files import replacing, write_text
from servelab.report.charts import BACKGROUND, BLUE, FONT, INK, MUTED_INK
from servelab.report.improvement_tables import Headline
from servelab.search.recommended import Recommended
from servelab.study.project import StudySummary

WIDTH, MARGIN = 1200, 48
"""Pixels of the picture."""
LETTER = 0.52
"""Width of a letter of the picture's font on average, as a share of its size."""


@dataclass(frozen=True)
class Card:
    """Texts of the card; `command` is only in its Markdown, because a picture cannot be redacted."""

    title: str
    figure: str
    """The answer as figures, or that the baseline stays."""
    lines: list[str]
    command: str

    @property
    def markdown(self) -> str:
        """The card as GitHub, GitLab and chats show it."""
        said = "".join(f"- {line}\n" for line in self.lines)
        return f"**{self.figure}**\n\n{self.title}\n\n{said}\n```bash\n{self.command}\n```\n"


def answer_card(study: StudySummary, recommended: Recommended, headline: Headline, command: str, doubts: str) -> Card:
    """The card of a study; `command` is what its report recommends, `doubts` what its marks mean."""
    used = recommended.served_on or f"{recommended.configuration.accelerators} × {study.hardware.accelerator}"
    proof = recommended.proof
    lines = [
        headline.text if headline.values else "",
        recommended.answers_text[0],
        f"Proof: {proof.verdict}. {proof.why}" if proof else f"Evidence: {recommended.evidence}",
        doubts,
    ]
    return Card(
        title=f"{recommended.model} on {used}, {recommended.engine} {recommended.engine_version}",
        figure=f"{headline.values} ({headline.figure})" if headline.values else headline.text,
        lines=[line for line in lines if line],
        command=command,
    )


def write_card(card: Card, markdown: Path, picture: Path) -> None:
    """Writes both forms, each whole or not at all."""
    write_text(markdown, card.markdown)
    with replacing(picture) as temporary:
        temporary.write_bytes(vl_convert.svg_to_png(_drawing(card), scale=1))


def _drawing(card: Card) -> str:
    """The card as SVG."""
    texts = [
        *_text(card.title, 28, MUTED_INK),
        *_text(card.figure, 40, BLUE, "bold"),
        *(each for line in card.lines for each in _text(line, 26, INK)),
    ]
    height, drawn = MARGIN, []
    for text, size, ink, weight in texts:
        height += round(size * 1.5)
        style = f'font-size="{size}" font-weight="{weight}" fill="{ink}"'
        drawn.append(f'<text x="{MARGIN}" y="{height}" {style}>{escape(text)}</text>')
    head = f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height + MARGIN}" font-family="{FONT}">'
    return f'{head}<rect width="100%" height="100%" fill="{BACKGROUND}"/>{"".join(drawn)}</svg>'


def _text(text: str, size: int, ink: str, weight: str = "normal") -> Iterator[tuple[str, int, str, str]]:
    """The lines of a text with size, colour and weight of each."""
    for line in textwrap.wrap(text, int((WIDTH - 2 * MARGIN) / (LETTER * size))):
        yield line, size, ink, weight
