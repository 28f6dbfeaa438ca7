"""Which limit ended a command, as far as can be known."""

from orga.workflows.types.sandbox import Limits

_SIGNALS = {"SIGXCPU": "cpu_s", "SIGXFSZ": "file_bytes"}
_TOLD = {
    "memory_bytes": (b"MemoryError", b"Cannot allocate memory", b"std::bad_alloc", b"out of memory"),
    "open_files": (b"Too many open files",),
    "file_bytes": (b"File too large",),
}
"""The kernel only refuses these; the program may say so, and go on."""
_SHELL = 128
"""A shell's exit code is this and the signal that ended its last command."""
_SHELL_CODES = {_SHELL + 24: "SIGXCPU", _SHELL + 25: "SIGXFSZ"}


def limit_reached(exit_code: int | None, signal: str | None, cpu_s: float, said: bytes, limits: Limits) -> str | None:
    """Return the field of `limits`; `cpu_s` is what the command used, `said` its error output."""
    name = _SIGNALS.get(signal or _SHELL_CODES.get(exit_code or 0, ""))
    if name is None and signal == "SIGKILL" and limits.cpu_s is not None and cpu_s >= limits.cpu_s:
        name = "cpu_s"
    if name is None and exit_code != 0:
        name = next((limit for limit, texts in _TOLD.items() if any(text in said for text in texts)), None)
    return name if name and getattr(limits, name) is not None else None
