"""What `verify` found: one line for each thing that was looked at."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Check:
    """One thing that was looked at."""

    name: str
    """`replay`, `gate`, `permits`, `decisions`, `ending`, `contexts`, `journal`, `counters`, `export`, `head`,
    `delegate`."""
    workflow_id: str
    ok: bool
    detail: str
    run_id: str = ""
    """Empty for what is about the whole chain."""


@dataclass(frozen=True)
class Verification:
    """All checks of a run and of the runs that it delegated to."""

    workflow_id: str
    checks: tuple[Check, ...]

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong."""
        return all(check.ok for check in self.checks)
