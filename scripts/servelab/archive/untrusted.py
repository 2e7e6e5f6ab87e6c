"""What reads the files of an archive from anyone: content that no workflow writes is one error, not a traceback."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa

from servelab.core.errors import Outage, ServelabError

_ODD = (
    ArithmeticError,
    AttributeError,
    EOFError,
    LookupError,
    RecursionError,
    TypeError,
    ValueError,
    pa.ArrowException,
)
"""What reading a file raises that is of another form, or made to harm."""
_ODD_FILES = {errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG, errno.EINVAL}
"""The same of a file or name that is not as it should be. A full disk is none of these."""
_MOST = 1000


@contextmanager
def reading(what: str) -> Iterator[None]:
    """Raises `ServelabError` that begins with `what` for what the block raises about its content, in one line."""
    try:
        yield
    except Outage:
        raise
    except ServelabError as error:
        text = str(error)
        raise ServelabError(_line(text if text.startswith(what) else f"{what}: {text}")) from None
    except (*_ODD, OSError) as error:
        if isinstance(error, OSError) and error.errno not in _ODD_FILES:
            raise
        why = f"{type(error).__name__}: {error}"
        raise ServelabError(_line(f"{what}: has content that this workflow does not write: {why}")) from None


def _line(text: str) -> str:
    line = " ".join(text[:_MOST].split())
    return "".join(each if each.isprintable() else "�" for each in line)
