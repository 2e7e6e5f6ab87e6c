"""Draws what a terminal showed as SVG: `python docs/images/terminal.py COMMAND < shown.txt > docs/images/demo.svg`."""

import io
import re
import sys

from rich.console import Console
from rich.text import Text

console = Console(record=True, width=110, file=io.StringIO())
console.print(Text(f"$ {sys.argv[1]}", style="bold"))
for line in sys.stdin.read().splitlines():
    console.print(Text(line, style="dim" if line.startswith("…") else ""))
svg = console.export_svg(title="Servelab", font_aspect_ratio=0.61)
sys.stdout.write(re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL))  # a picture loads nothing
