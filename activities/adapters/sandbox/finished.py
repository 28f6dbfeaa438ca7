"""How a command ended."""

from dataclasses import dataclass

_SHOWN = 5


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
    undone: tuple[str, ...] = ()
    """What it did to files that no agent may change or make, and how that was undone."""

    @property
    def warning(self) -> str:
        """What the model reads of that, on a line of its own; empty if there is nothing."""
        if not self.undone:
            return ""
        shown = "; ".join(self.undone[:_SHOWN])
        more = f"; and {len(self.undone) - _SHOWN} more" if len(self.undone) > _SHOWN else ""
        return f"[Warning] No agent makes what decides over agents or runs as a program: {shown}{more}\n"
