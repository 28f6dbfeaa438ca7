"""What a run shows of itself: its status while it runs, its result when it ends."""

from datetime import datetime
from typing import TypeVar

from workflows.decisions.approvals import pending_holds
from workflows.decisions.conversation import full_digest
from workflows.decisions.deciding import result_data
from workflows.decisions.limits import budgets
from workflows.types.record import Record
from workflows.types.result import AgentResult, StopReason, Termination
from workflows.types.state import AgentState
from workflows.types.status import AgentStatus, ShownMessage

R = TypeVar("R", bound=Record)


def written_out(record: R) -> R:
    """Return the record with every key set, so that the JSON which users script against has them all."""
    return type(record).model_validate(record.model_dump())


def result(state: AgentState, stop: tuple[StopReason, str], now: datetime) -> AgentResult:
    """Return the result of a run that ends now."""
    digest = full_digest(state.conversation)
    return written_out(
        AgentResult(
            output=state.output,
            data=result_data(state),
            iterations=state.iteration,
            termination=Termination(reason=stop[0], detail=stop[1]),
            duration_s=round(state.clock.elapsed_s(now), 3),
            usage=state.usage,
            tool_calls=state.tool_calls,
            conversation_digest=f"sha256:{digest}" if digest else "",
        )
    )


def status(state: AgentState, now: datetime) -> AgentStatus:
    """Return where the run stands."""
    stop = state.stop
    return written_out(
        AgentStatus(
            agent=state.input.agent,
            model=state.setup.model if state.setup else state.input.model,
            phase=state.phase,
            paused=state.paused,
            iteration=state.iteration,
            usage=state.usage,
            tool_calls=state.tool_calls,
            budgets=budgets(state, now),
            pending_approvals=list(pending_holds(state, now)),
            plan=None,
            question=None,
            waiting=[wait for wait in state.waits if wait.resolution is None],
            breakers=state.breakers,
            dead_letters=list(state.dead_letters),
            children=list(state.children),
            unread_interventions=[{"kind": item.kind, "text": item.text} for item in state.inbox],
            termination=Termination(reason=stop[0], detail=stop[1]) if stop else None,
        )
    )


def shown_conversation(state: AgentState) -> list[ShownMessage]:
    """Return the messages as the model would see them."""
    system = state.setup.instructions if state.setup else ""
    head = [ShownMessage(role="system", text=system, calls=(), call_id=None, tool=None, is_error=False)]
    return [written_out(m) for m in (head if system else [])] + [
        written_out(
            ShownMessage(role=m.role, text=m.text, calls=m.calls, call_id=m.call_id, tool=m.tool, is_error=m.is_error)
        )
        for m in state.conversation.messages
    ]
