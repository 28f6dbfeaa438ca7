"""How a command ended."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Finished:
    """Either `exit_code` or `signal` is set; of what timed out, how it took being ended."""

    exit_code: int | None
    signal: str | None
    """Its name, as in `SIGKILL`."""
    stdout: bytes
    stderr: bytes
    truncated: bool
    """An output was longer than what was kept."""
    limit: str | None
    """The field of `Limits` that ended it, as far as can be known."""
    timed_out: bool
