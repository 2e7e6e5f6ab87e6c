"""The load that a user names: lengths, or a file of recorded traffic, as entries of the folder's configuration."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from servelab.core.errors import ConfigError
from servelab.core.identity import file_sha256

WORKLOADS, DATASETS = "config/workloads.yaml", "config/datasets.yaml"
_FORMATS = {"mooncake": r"input_length", "burstgpt": r"Request tokens", "azure": r"ContextTokens"}
"""Format of a trace → a name in its first line."""
_MOST_REQUESTS = 1000


def of_lengths(prompt: int, answer: int, users: int) -> dict[str, Any]:
    """A workload of random tokens of these lengths, by its name."""
    parameters = {
        "input_tokens": prompt,
        "output_tokens": answer,
        "num_requests": max(64, min(_MOST_REQUESTS, 4 * users)),
        "seed": 42,
    }
    title = f"{prompt} tokens in, {answer} out"
    return {f"tokens-{prompt}x{answer}": {"title": title, "kind": "random", "parameters": parameters}}


def of_trace(file: Path) -> dict[str, dict[str, Any]]:
    """Entries by file of the configuration: the trace as a dataset, and a workload that replays its requests."""
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"--trace {file}: {error}") from None
    kind = next((name for name, sign in _FORMATS.items() if lines and re.search(sign, lines[0])), None)
    if kind is None:
        raise ConfigError(f"--trace {file}: its first line has none of the formats {', '.join(_FORMATS)}: docs/load.md")
    name = re.sub(r"[^a-z0-9]+", "-", file.stem.lower()).strip("-")
    count = min(_MOST_REQUESTS, len(lines) - 1)
    dataset = {
        "title": f"Traffic of {file.name}",
        "file": f"{name}{file.suffix}",
        "size_bytes": file.stat().st_size,
        "sha256": file_sha256(file),
        "license": "own",
        "sources": [{"kind": "path", "path": str(file.resolve())}],
    }
    parameters = {"dataset": name, "format": kind, "num_requests": count, "seed": 42}
    workload = {"title": f"Requests of {file.name}", "kind": "trace", "parameters": parameters}
    return {WORKLOADS: {name: workload}, DATASETS: {name: dataset}}


def hours(text: str) -> float:
    """`8h`, `90m` or `1.5` → hours."""
    match = re.fullmatch(r"([\d.]+)\s*(h|m|min|d)?", text.strip())
    if not match:
        raise ConfigError(f"--budget {text}: write hours of the node, as 8h")
    return float(match[1]) * {"m": 1 / 60, "min": 1 / 60, "d": 24}.get(match[2] or "h", 1)
