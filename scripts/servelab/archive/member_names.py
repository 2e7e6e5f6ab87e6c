"""Names that a member of an archive may have: the same harmless file on every system, and different from each other."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable

MOST_BYTES = 1024
MOST_PART_BYTES = 255
MOST_PARTS = 32
_RESERVED = {"CON", "PRN", "AUX", "NUL", *(f"{port}{number}" for port in ("COM", "LPT") for number in range(1, 10))}
"""Devices of Windows, with any suffix."""
_UNSEEN = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}
"""Unicode categories of characters that are invisible or reverse the text."""


def shown(name: str) -> str:
    """A name for a message: control characters are escaped, long names are cut."""
    text = name.encode("unicode_escape").decode("ascii")
    return text if len(text) <= 160 else f"{text[:160]}…"


def trouble(name: str) -> str | None:
    """Why a member may not have this name; None if it may.

    A name is a relative path with `/`. It still leads to the same place after a system has normalised it (NFKC),
    dropped trailing dots and spaces, or interpreted a colon or a backslash.
    """
    if len(name.encode("utf-8", "surrogatepass")) > MOST_BYTES or name.count("/") >= MOST_PARTS:
        return f"its name is longer than {MOST_BYTES} bytes or has more than {MOST_PARTS} parts"
    if any(unicodedata.category(character) in _UNSEEN for character in name):
        return "its name has invisible characters"
    if unicodedata.normalize("NFC", name) != name:
        return "its name is not in Unicode's composed form (NFC)"
    for text in (name, unicodedata.normalize("NFKC", name)):
        if text.startswith("/"):
            return "its name is an absolute path"
        if "\\" in text or ":" in text:
            return "its name has a backslash or a colon, as paths of Windows have"
        for part in text.split("/"):
            if part in ("", ".", ".."):
                return "its name has an empty part, `.` or `..`"
            if part.strip(" ") != part or part.endswith("."):
                return "a part of its name begins or ends with a space, or ends with a dot"
            if part.partition(".")[0].rstrip().upper() in _RESERVED:
                return "a part of its name is a device of Windows"
            if len(part.encode()) > MOST_PART_BYTES:
                return f"a part of its name is longer than {MOST_PART_BYTES} bytes"
    return None


def first_trouble(names: Iterable[str]) -> tuple[str, str] | None:
    """The first name that is not allowed, by itself or beside the names before it, and why; None if all are allowed.

    Two names are the same if some system treats them so: in another case, or in another form of Unicode. No file is
    also a folder, and a folder has one spelling.
    """
    spelt: dict[str, str] = {}
    for name in names:
        if why := trouble(name):
            return name, why
        parts = name.split("/")
        for depth in range(1, len(parts)):
            folder = "/".join(parts[:depth])
            taken = spelt.setdefault(_folded(folder), f"{folder}/")
            if taken != f"{folder}/":
                return name, f"its folder is the same as `{shown(taken)}` to some systems"
        if taken := spelt.get(_folded(name), ""):
            same = "occurs twice" if taken == name else f"is the same as `{shown(taken)}` to some systems"
            return name, f"its name {same}"
        spelt[_folded(name)] = name
    return None


def _folded(path: str) -> str:
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", path).casefold())
