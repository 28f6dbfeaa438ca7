"""Runs that were set back: only a reset makes `rewound` mean anything."""

from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from temporalio import workflow

from orga.workflows.decisions.control import interventions
from orga.workflows.decisions.control.rewinds import rewind_in, with_guidance_of, with_rewind
from orga.workflows.phases.control.clock import task_clock
from orga.workflows.phases.control.run import ControlledRun
from orga.workflows.types.control import Rewind

DOUBT_S = 0.001
"""Until an abort that came together with a claim counts after all. The reset is told in the same task, or never."""


@dataclass(frozen=True)
class _Claim:
    """What the signals of one workflow task say of a reset."""

    rewinds: tuple[Rewind, ...]
    """Those of earlier rewinds, which are delivered again; the last is that of the reset itself."""
    task: float
    """The time of the task."""
    since: datetime
    """When the run had its last event before this task."""
    aborted: str | None = None
    """Why the run was to be aborted, by what came in this task before the claim."""


class Resets:
    """Takes the word of `rewound` only in the first task behind a reset; from any other sender it changes nothing.

    The server delivers signals again behind a reset, an abort among them, and the SDK tells of the reset behind all
    signals of that task: so an abort that comes with a claim waits for that word.
    """

    def __init__(self, run: ControlledRun[Any]) -> None:
        """Listen; to be made where the workflow is."""
        self._run = run
        self._claim: _Claim | None = None
        self._aborted_in = 0.0
        self._reset_in = 0.0
        self._task = task_clock()
        workflow.register_random_seed_callback(self._was_reset)

    def abort(self, why: str) -> None:
        """Take an abort in, and remember when it came."""
        self._run.heard()
        if self._run.state.aborted is None:
            self._aborted_in = self._task()
        self._run.change(interventions.with_abort, why)

    def claimed(self, raw: object) -> None:
        """Take in what a signal says."""
        self._run.heard()
        rewind = rewind_in(raw)
        if rewind is None:
            return
        claim = _Claim((*self._earlier(), rewind), self._task(), self._run.before)
        if self._run.state.aborted is not None and self._aborted_in == claim.task:
            claim = replace(claim, aborted=self._run.state.aborted)
            self._run.state = self._run.state.with_control(aborted=None)
            self._run.beside(self._unless_it_is_true(claim))
        self._claim = claim
        if self._reset_in == claim.task:
            self._confirm(claim)

    def _earlier(self) -> tuple[Rewind, ...]:
        return self._claim.rewinds if self._claim is not None and self._claim.task == self._task() else ()

    def _was_reset(self, seed: int) -> None:
        """Note the reset. The SDK calls this outside of the loop, and swallows what it raises: it only records."""
        self._reset_in = self._task()
        if self._claim is not None and self._claim.task == self._reset_in:
            self._confirm(self._claim)

    def _confirm(self, claim: _Claim) -> None:
        state = self._run.state
        for rewind in claim.rewinds:
            state = with_guidance_of(state, rewind)
        self._run.state = with_rewind(state, claim.rewinds[-1], claim.since, self._run.now)

    async def _unless_it_is_true(self, claim: _Claim) -> None:
        self._run.doubts += 1
        await self._run.event(workflow.sleep(DOUBT_S))
        self._run.doubts -= 1
        if self._reset_in != claim.task and claim.aborted is not None:
            self._run.change(interventions.with_abort, claim.aborted)
