"""Three settings of a Linux process for which Python has no function. Other systems do not have them."""

import ctypes
import sys

IS_LINUX = sys.platform == "linux"
SET_PARENT_DEATH_SIGNAL, SET_CHILD_SUBREAPER, SET_NO_NEW_PRIVILEGES = 1, 36, 38


def set_process_option(option: int, value: int) -> None:
    """Call prctl(2)."""
    if IS_LINUX:
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)
