"""Public views of a run: a summary for each activity, details in Markdown, its status, and its result."""

from collections.abc import Iterable, Sequence
from datetime import datetime
from shlex import quote
from typing import Any, TypeVar

from orga.workflows.decisions.control.questions import open_question_text, pending_items, shown_question
from orga.workflows.decisions.conversation import full_digest
from orga.workflows.decisions.limits import budgets
from orga.workflows.decisions.review_stages import are_answers_in_question
from orga.workflows.types.control import Intervention, Stop, StopReason
from orga.workflows.types.messages import Message, ToolCall
from orga.workflows.types.models.usage import ToolCallCounts, UsageTotals
from orga.workflows.types.record import Record, parse_record
from orga.workflows.types.state import AgentState
from orga.workflows.types.status import FIRST_PAGE, AgentResult, AgentStatus, Page, ShownMessage, Termination
from orga.workflows.types.text import clip, markdown_code, one_line
from orga.workflows.types.tool_calls.delegation import Child
from orga.workflows.types.tool_calls.gate import PLAN, GateRequest, Verdict
from orga.workflows.types.tool_calls.tools import ToolSpec

SHOWN_CHARS = 300


def call_summary(call: ToolCall, spec: ToolSpec | None) -> str:
    """Return the tool and its main argument: `read_file README.md`."""
    return one_line(f"{call.name} {_argument(call, spec)}")


def _argument(call: ToolCall, spec: ToolSpec | None) -> str:
    name = spec.main_argument if spec else None
    value = call.arguments.get(name) if name else next(iter(call.arguments.values()), "")
    if isinstance(value, list):
        value = " ".join(str(part) for part in value)  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
    return "" if value is None else str(value)


MAX_SHOWN_CALLS = 3
LINE_CHARS = 80


def argument_summary(call: ToolCall, spec: ToolSpec) -> str | None:
    """Return the main argument of a call, such as `README.md`."""
    return one_line(_argument(call, spec)) or None


def reason_summary(state: AgentState) -> str | None:
    """Return the summary of a model call after a denial: its iteration, and what the gate refused. Else None.

    Other model calls need no summary, because the activity id holds the iteration. It would take 46 bytes per call.
    """
    refused = state.refused
    return one_line(f"iteration {state.iteration + 1}, after a denial: {refused}", LINE_CHARS) if refused else None


def gate_summary(request: GateRequest) -> str | None:
    """Return a gate activity's summary: its iteration and its subject.

    None for a reply with one call: the call's own activity shows it, or the next model call shows its denial.
    """
    if request.purpose == "reply" and len(request.calls) == 1:
        return None
    when = f"iteration {request.iteration}" if request.iteration else "before the first iteration"
    return one_line(f"{when}: {_gate_subject(request)}", LINE_CHARS)


def with_shown_calls(state: AgentState, calls: tuple[ToolCall, ...], verdicts: Iterable[Verdict]) -> AgentState:
    """Return the state with two texts for people: the calls of a reply, and the calls that the gate refused."""
    refused = [call for call, verdict in zip(calls, verdicts, strict=False) if verdict.decision in {"deny", "invalid"}]
    refused_text = calls_text(refused, state.tools)
    state = state.with_dialogue(last=calls_text(calls, state.tools))
    return state if refused_text == state.refused else state.with_dialogue(refused=refused_text)


def without_refused_calls(state: AgentState) -> AgentState:
    return state.with_dialogue(refused="") if state.refused else state


def calls_text(calls: Iterable[ToolCall], specs: Iterable[ToolSpec]) -> str:
    specs_by_name, all_calls = {spec.name: spec for spec in specs}, tuple(calls)
    shown = [call_summary(call, specs_by_name.get(call.name)) for call in all_calls[:MAX_SHOWN_CALLS]]
    more = [f"{len(all_calls) - MAX_SHOWN_CALLS} more"] if len(all_calls) > MAX_SHOWN_CALLS else []
    return "; ".join([*shown, *more])


def _gate_subject(request: GateRequest) -> str:
    if request.answer is not None:
        return "the answer" if request.purpose == "reply" else "what was gathered"
    if PLAN in request.places:
        return f"a plan of {len(request.plan)}"
    return calls_text(request.calls, request.specs)


def call_counts_text(counts: ToolCallCounts) -> str:
    """Return the counts of calls in one line. Rare ones are left out if they are 0."""
    shown = {"run": counts.run, "denied": counts.denied, "failed": counts.failed}
    rare = {"invalid": counts.invalid, "not run": counts.not_run}
    shown |= {word: count for word, count in rare.items() if count}
    return ", ".join(f"{count} {word}" for word, count in shown.items())


def agent_run_details(state: AgentState, waits: Sequence[str] = ()) -> str:
    """Return the current details of a run, in Markdown. `waits` are lines about its open questions."""
    setup, limit = state.setup, state.config.max_iterations
    lines = [
        f"**{'paused' if state.paused else state.phase}**, iteration {state.counted_iterations} of {limit}",
        "",  # without it the UI puts all of the list into one paragraph
        *waits,
        *([f"- task: {_inline_code(state.input.task)}"] if state.input.task else []),
        f"- model: {_inline_code(setup.model if setup else state.input.model or 'default')}",
        f"- spent: {usage_text(state.usage)}",
        f"- tool calls: {call_counts_text(state.tool_calls)}",
    ]
    if state.inbox:
        lines.append(f"- unread interventions: {len(state.inbox)}")
    circuits = [tool for tool, breaker in state.breakers.items() if breaker.state != "closed"]
    if circuits:
        lines.append(f"- open circuits: {', '.join(map(_inline_code, circuits))}")
    if state.children:
        lines.append(f"- delegated to: {', '.join(map(_delegate_line, state.children))}")
    if state.last:
        lines.append(f"- last: {_inline_code(state.last)}")
    if state.refused:
        lines.append(f"- refused by the gate: {_inline_code(state.refused)}")
    return "\n".join(lines)


def _delegate_line(child: Child) -> str:
    agent = _inline_code(child.agent)
    if not child.held:
        return agent
    return f"{agent}, which waits for a person: {markdown_code(f'orga status {quote(child.workflow_id)}')}"


def _inline_code(text: str) -> str:
    return markdown_code(one_line(text, SHOWN_CHARS))


def usage_text(usage: UsageTotals) -> str:
    calls = "model call" if usage.model_calls == 1 else "model calls"
    guessed = f" ({usage.estimated_calls} of them estimated)" if usage.estimated_calls else ""
    thought = f" ({usage.thinking_tokens} of them thinking)" if usage.thinking_tokens else ""
    cost = "" if usage.cost_usd is None else f", {usage.cost_usd:.4f} USD"
    return f"{usage.total_tokens} tokens{thought} in {usage.model_calls} {calls}{guessed}{cost}"


MAX_GATHERED_BYTES = 20_000
"""Bytes of all gathered texts, because the state has to fit a payload. The newest text always stays."""


def with_gathered_text(state: AgentState, text: str) -> AgentState:
    text = clip(text.strip(), MAX_GATHERED_BYTES, "the conversation has all of it")
    if not text:
        return state
    gathered = (*state.gathered, text)
    while sum(len(text.encode()) for text in gathered) > MAX_GATHERED_BYTES:
        gathered = gathered[1:]
    return state.with_task(gathered=gathered)


def fallback_output(state: AgentState, reason: StopReason) -> str:
    """Return text in place of an answer. "" if there is an answer, or if a review stage would have to see the text."""
    if reason == "completed" or state.output or are_answers_in_question(state.setup):
        return ""
    return "\n\n".join(state.gathered)


R = TypeVar("R", bound=Record)

MAX_PAGE_BYTES = 1_000_000
"""Bytes of JSON in the answer to a query. The server refuses an answer of 2 MB."""


def with_all_keys(record: R) -> R:
    """Return the record with every key set, because users write scripts against its JSON."""
    return type(record).model_validate(record.model_dump())


def agent_result(state: AgentState, stop: Stop, now: datetime) -> AgentResult:
    digest = full_digest(state.conversation)
    return with_all_keys(
        AgentResult(
            output=state.output,
            data=result_data(state),
            iterations=state.iteration,
            termination=_termination(stop),
            duration_s=round(state.clock.elapsed_seconds(now), 3),
            usage=state.usage,
            tool_calls=state.tool_calls,
            conversation_digest=f"sha256:{digest}" if digest else "",
        )
    )


def _termination(stop: Stop) -> Termination:
    return Termination(reason=stop.reason, detail=stop.detail)


def result_data(state: AgentState) -> Any:
    """Return the `data` of a result: the answer as JSON, or an object with the declared decisions and that answer."""
    if not state.declared_decisions:
        return state.data
    decisions = {name: decided.model_dump(mode="json") for name, decided in state.decided.items()}
    has_schema = state.setup is not None and state.setup.output_schema is not None
    return {"answer": state.data, "decisions": decisions} if has_schema else {"decisions": decisions}


def agent_status(state: AgentState, now: datetime) -> AgentStatus:
    return with_all_keys(
        AgentStatus(
            agent=state.input.agent,
            model=state.setup.model if state.setup else state.input.model,
            phase=state.phase,
            paused=state.paused,
            iteration=state.iteration,
            usage=state.usage,
            tool_calls=state.tool_calls,
            budgets=budgets(state, now),
            pending_approvals=list(pending_items(state, now)),
            plan=None,
            question=open_question_text(state),
            waiting=list(map(shown_question, state.open_questions)),
            breakers=state.breakers,
            dead_letters=list(state.dead_letters),
            children=list(state.children),
            unread_interventions=[_unread_guidance_data(item) for item in state.inbox],
            termination=_termination(state.stop) if state.stop else None,
            workplace=state.setup.workplace if state.setup else None,
            tiers=state.setup.tiers if state.setup else {},
            knowledge=state.recollection if state.config.uses_knowledge else None,
        )
    )


def _unread_guidance_data(item: Intervention) -> dict[str, str]:
    cut = {"cut": f"{len(item.text.encode())} of {item.size} bytes are left"} if item.size else {}
    return {"kind": item.kind, "text": item.text, **cut}


def parsed_page(raw: object) -> Page:
    """Return the requested page of messages, by default the first. Raise ValueError if it is invalid."""
    return Page() if raw is None else parse_record(Page, raw)


def shown_conversation(state: AgentState, page: Page = FIRST_PAGE) -> list[ShownMessage]:
    """Return a page of the messages as the model would see them, with as many as fit the answer to a query."""
    system = state.setup.instructions if state.setup else ""
    head = [Message.of("system", system)] if system else []
    shown: list[ShownMessage] = []
    room = MAX_PAGE_BYTES
    for message in [*head, *state.conversation.messages][page.offset :]:
        shown.append(ShownMessage.of(message))
        room -= len(shown[-1].model_dump_json().encode())
        if len(shown) == page.limit or room < 0:
            break
    return shown[:-1] if room < 0 and len(shown) > 1 else shown
