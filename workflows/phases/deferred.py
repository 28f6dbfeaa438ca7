"""One allowed call of a deferred tool: it starts work elsewhere, and waits for the result as for an answer of a person.

1. The call waits as a question from the beginning, because quick work may be done before its start has returned.
2. If the tool has a start, it is an activity as that of any tool, under the id of the call with `.d0`.
3. `complete_tool_call`, the expiry or the end of the run ends the wait. Until then there is one timer, and no slot is
   taken.
4. An activity under the id of the call records its end, so everything that reads a history finds the result, the
   failure or the expiry of this call as that of any other. It refuses a result that does not fit, and the call waits
   on.
"""

from __future__ import annotations

import asyncio

from orga.workflows.decisions.control.interventions import with_refused_signal
from orga.workflows.decisions.control.questions import find_question
from orga.workflows.decisions.tool_calls.calls import cancelled_outcome
from orga.workflows.decisions.tool_calls.deferred import (
    result_question,
    with_awaited_result,
    with_result_expired,
)
from orga.workflows.phases.agent_run import Run
from orga.workflows.phases.attempt import CallIdentity, FailedCall, report_completion
from orga.workflows.phases.control.run import Interrupted
from orga.workflows.phases.control.visibility import ask_people, close_question, never
from orga.workflows.phases.elicitation import execute_with_inputs
from orga.workflows.phases.gate import AllowedCall
from orga.workflows.types.questions import Completion, Question
from orga.workflows.types.tool_calls.gate import START_SUFFIX
from orga.workflows.types.tool_calls.recovery import Outcome
from orga.workflows.types.tool_calls.tools import INVALID_RESULT


async def execute_deferred(run: Run, allowed: AllowedCall, identity: CallIdentity) -> Outcome | FailedCall:
    """Start the work of the call, and return its outcome once somebody has completed it."""
    if (terms := allowed.spec.deferred) is None:
        return await execute_with_inputs(run, allowed, identity)
    question = result_question(allowed.call, terms, identity.key, identity.activity_id, run.now)
    run.change_state(with_awaited_result, question, run.now)
    if terms.has_start and (failed := await _start_work(run, allowed, identity, question)) is not None:
        return failed
    while True:
        try:
            decided = await ask_people(run, question, is_moot=identity.is_cut_short or never)
        except (Interrupted, asyncio.CancelledError):
            return cancelled_outcome(allowed.call, allowed.spec)
        if decided.is_open:  # it has to end
            return cancelled_outcome(allowed.call, allowed.spec)
        if decided.completion is None:
            run.change_state(with_result_expired, identity.key)
        ended = await report_completion(run, allowed, identity, decided.completion or Completion())
        if not isinstance(ended, FailedCall) or not ended.error.startswith(f"{INVALID_RESULT}: "):
            run.checked_results[identity.key] = ""
            return ended
        why = ended.error.removeprefix(f"{INVALID_RESULT}: ")
        by = decided.completion.by if decided.completion else ""
        run.change_state(with_refused_signal, "complete_tool_call", why, by=by)
        run.change_state(with_awaited_result, question, run.now)
        run.checked_results[identity.key] = why


async def _start_work(
    run: Run, allowed: AllowedCall, identity: CallIdentity, question: Question
) -> Outcome | FailedCall | None:
    """Return the outcome of a call whose work could not be started, or None. If its result is there, it was started."""
    begin = identity._replace(activity_id=f"{identity.activity_id}{START_SUFFIX}")
    started = await execute_with_inputs(run, allowed, begin)
    if isinstance(started, Outcome) and started.status == "ok":
        return None
    waiting = find_question(run.state, question.question_id)
    if waiting is not None and waiting.completion is not None and not run.is_interrupted():
        return None
    close_question(run, waiting or question)
    return started
