"""Runs of a search as functions make them up, and a study of two stages of one candidate each."""

from servelab.search.simulate import Measured

SPEEDS = {8: 1.1, 16: 1.3, 32: 1.2}
"""How much faster so many sequences at once are."""


def choices(configuration):
    """Which of stages `first` and `second` of a study of two options are chosen: `A`, `B`, `AB` or nothing."""
    return "".join(
        name for name, option in (("A", "threads"), ("B", "max_num_seqs")) if option in configuration.options
    )


def speed(configuration):
    off = configuration.arguments.get("--flash-attn") == "off"
    return 100 * SPEEDS.get(configuration.options.get("max_num_seqs"), 1.0) * (0.9 if off else 1.0)


def around(value, noise=0.01):
    return [value, value * (1 + noise), value * (1 - noise)]


def measure(configuration, load, start=None):
    return Measured(rounds=around(speed(configuration)), accelerator_s=360.0)


def of(values, noise=0.001):
    """Measures a study of two options by a table: choices → tokens/s, or why it fails."""

    def measured(configuration, load, start=None):
        value = values[choices(configuration)]
        return Measured(failed=value) if isinstance(value, str) else Measured(around(value, noise), 360.0)

    return measured


TWO = [
    {"name": "first", "candidates": [{"label": "A", "options": {"threads": 1}}]},
    {"name": "second", "candidates": [{"label": "B", "options": {"max_num_seqs": 8}}]},
]
