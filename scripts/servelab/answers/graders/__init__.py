"""Graders: whether an answer is the expected one; each is one file that registers a function of the two texts."""

from __future__ import annotations

from collections.abc import Callable

from servelab.core.registry import Registry

Grader = Callable[[str, str], bool]

GRADERS: Registry[Grader] = Registry("grader")
GRADERS.load(__name__)
