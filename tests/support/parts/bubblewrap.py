"""Bubblewrap, which isolates commands, from the system's packages."""

import shutil
from pathlib import Path

from tests.support.parts.machine_lock import machine_lock
from tests.support.parts.system_packages import require

_CACHE = Path(__file__).parents[3] / ".cache"


def bubblewrap() -> Path:
    """Return the program, and install it first if it is missing."""
    with machine_lock(_CACHE / "bubblewrap.lock"):
        require("bwrap", "bubblewrap")
    return Path(shutil.which("bwrap") or "")
