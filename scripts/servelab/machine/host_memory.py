"""What the kernel reports about the machine's memory."""

from __future__ import annotations

import re
from pathlib import Path


def oom_kills() -> int:
    """Number of processes that the kernel has killed since boot because memory ran out; 0 if it does not report it."""
    found = re.search(r"^oom_kill (\d+)$", Path("/proc/vmstat").read_text(encoding="ascii"), re.MULTILINE)
    return int(found.group(1)) if found else 0
