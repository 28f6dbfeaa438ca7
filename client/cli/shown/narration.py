"""Renders journal entries as lines for people: runs, goals and sessions."""

from functools import singledispatch
from itertools import chain, repeat

from pydantic_core import to_json

from orga.client.cli.shown.decisions import held_call_text
from orga.client.cli.shown.text import StyledLine, Tone, count_text, terminal_line
from orga.client.journal import event_types as on
from orga.client.journal.event_types import JournalEvent
from orga.client.journal.run_view import RunView, ViewedEntry
from orga.workflows.decisions.result import call_summary
from orga.workflows.types.json_text import as_object
from orga.workflows.types.messages import ToolCall
from orga.workflows.types.text import full_field_text
from orga.workflows.types.tool_calls.gate import LEARNINGS, PLAN

INDENT = "    "
"""The indent of a delegated run's lines, once for each level of delegation."""

_HIDDEN_KINDS = {"await_turn", "send"}
"""Interventions with quiet lines. Other lines of a turn show what was sent, and waiting for a turn changes nothing."""


@singledispatch
def event_lines(_: JournalEvent) -> list[StyledLine] | None:
    """Return the lines of an event. None means that it is unknown, or that `entry_lines` renders it with its run."""
    return None


@event_lines.register
def _started_lines(event: on.Started) -> list[StyledLine]:
    lines = [StyledLine(f"task: {terminal_line(event.task)}")] if event.task else []  # a session has none
    if source := event.forked_from:
        forked = full_field_text(str(source.get("workflow_id")))
        lines.append(StyledLine(f"fork of {forked} at iteration {source.get('iteration')}", "quiet"))
    return lines


@event_lines.register
def _prepared_lines(event: on.Prepared) -> list[StyledLine]:
    policy = " ".join(filter(None, map(terminal_line, (event.policy, event.policy_version))))
    build = f", build {terminal_line(event.build)}" if event.build else ""
    loop = f", loop version {event.loop_version}" if event.loop_version else ""
    text = f"model {terminal_line(event.model)}, {count_text(len(event.tools), 'tool')}, policy {policy}{build}{loop}"
    return [StyledLine(text, "quiet")]


@event_lines.register
def _reasoning_lines(event: on.ReasoningComplete) -> list[StyledLine]:
    lines = [StyledLine(f"→ {call_text(call)}", "call") for call in event.calls]
    if not event.calls and event.is_for_people:
        lines = [StyledLine(f"answers: {terminal_line(action.respond)}") for action in event.actions]
    if event.finish not in {"stop", "tool_calls"}:
        lines.append(StyledLine(f"the reply ended early: {terminal_line(event.finish)}", "bad"))
    return lines


@event_lines.register
def _dispatch_lines(event: on.ToolsDispatched) -> list[StyledLine]:
    return [StyledLine(f"{event.tool_count} to run", "quiet")]


@event_lines.register
def _delegation_started_lines(event: on.DelegationStarted) -> list[StyledLine]:
    return [StyledLine(f"⇢ {terminal_line(event.agent)}: {terminal_line(event.task)}", "call")]


@event_lines.register
def _terminated_lines(event: on.Terminated) -> list[StyledLine]:
    reason, detail = event.reason, terminal_line(event.detail, 400)
    return [StyledLine(f"{reason}{': ' if detail else ''}{detail}", "good" if reason == "completed" else "bad")]


@event_lines.register
def _turn_started_lines(event: on.TurnStarted) -> list[StyledLine]:
    return [StyledLine(f"turn {event.turn}: {terminal_line(event.message_lines, 300)}", "person")]


@event_lines.register
def _turn_ended_lines(event: on.TurnEnded) -> list[StyledLine]:
    reason, detail = terminal_line(event.reason), terminal_line(event.detail, 300)
    text = f"turn {event.turn} {reason}{': ' if detail else ''}{detail}"
    return [StyledLine(text, "good" if reason == "completed" else "bad")]


@event_lines.register
def _plan_lines(event: on.PlanMade | on.PlanAdjusted) -> list[StyledLine]:
    pipeline = event.pipeline if isinstance(event, on.PlanMade) else None
    named = f" of pipeline {terminal_line(pipeline)}" if pipeline else ""
    lines = [StyledLine(f"plan{named}: {count_text(len(event.steps), 'step')}")]
    for step in event.steps:
        after = f" (after {terminal_line(', '.join(step.depends_on))})" if step.depends_on else ""
        text = f"  {terminal_line(step.id)} {terminal_line(step.skill)}: {terminal_line(step.goal)}{after}"
        lines.append(StyledLine(text))
    return lines


@event_lines.register
def _step_executed_lines(event: on.StepExecuted) -> list[StyledLine]:
    is_ok = event.status == "ok"
    why = f": {terminal_line(event.error)}" if event.error else ""
    mark = "✓" if is_ok else "✗"
    return [
        StyledLine(f"{mark} {terminal_line(event.step)} {terminal_line(event.status)}{why}", "good" if is_ok else "bad")
    ]


@event_lines.register
def _step_evaluated_lines(event: on.StepEvaluated) -> list[StyledLine]:
    text = f"{terminal_line(event.step)} scored {event.score}: {terminal_line(event.quality)}"
    return [StyledLine(f"  {text}", "bad" if event.quality == "failed" else "good")]


@event_lines.register
def _goal_decision_lines(event: on.DecisionMade) -> list[StyledLine]:
    confidence = f", confidence {event.confidence}" if event.confidence is not None else ""
    why = f": {terminal_line(event.reason)}" if event.reason else ""
    return [StyledLine(f"decides ({terminal_line(event.by)}{confidence}): {terminal_line(event.action)}{why}")]


@event_lines.register
def _question_lines(event: on.QuestionAsked) -> list[StyledLine]:
    return [StyledLine(f"? asks: {terminal_line(event.question)}   answer it: orga answer ID TEXT", "person")]


@event_lines.register
def _answer_lines(event: on.QuestionAnswered) -> list[StyledLine]:
    by = f" by {terminal_line(event.by)}" if event.by else ""
    return [StyledLine(f"answered{by}: {terminal_line(event.answer)}", "person")]


@event_lines.register
def _step_overridden_lines(event: on.StepOverridden) -> list[StyledLine]:
    return [
        StyledLine(f"a person set the tool of {terminal_line(event.step)} to {terminal_line(event.skill)}", "person")
    ]


@event_lines.register
def _memory_lines(event: on.MemoryCompressed) -> list[StyledLine]:
    lost = ", ".join(event.lost)
    why = f": {terminal_line(lost)} would be lost" if lost else ""
    how = "" if event.taken else f", kept as it was{why}"
    return [StyledLine(f"memory: {event.before} bytes to {event.after}{how}")]


@event_lines.register
def _delivered_lines(event: on.AnswerDelivered) -> list[StyledLine]:
    return [StyledLine(f"✓ delivered to {terminal_line(event.name)} ({terminal_line(event.kind)})", "good")]


@event_lines.register
def _delivery_failed_lines(event: on.DeliveryFailed) -> list[StyledLine]:
    where = f"{terminal_line(event.name)} ({terminal_line(event.kind)})"
    return [StyledLine(f"✗ not delivered to {where}: {terminal_line(event.error)}", "bad")]


@event_lines.register
def _hydration_lines(event: on.PreHydrationComplete) -> list[StyledLine]:
    counts = {"resolved": event.resolved, "failed": event.failed, "unresolvable": event.unresolvable}
    shown = ", ".join(f"{count} {name}" for name, count in counts.items() if count)
    lines = [StyledLine(f"looked up {count_text(event.references_found, 'reference')}: {shown}")]
    missing = [reference for reference in event.references if reference.status != "resolved"]
    return lines + [StyledLine(f"✗ {_text(reference.value)}: {_text(reference.why)}", "bad") for reference in missing]


@event_lines.register
def _compaction_lines(event: on.ContextCompacted) -> list[StyledLine]:
    lines: list[str] = []
    if dropped := event.messages_dropped:
        lines.append(f"{count_text(dropped, 'older message')} left out of the context")
    if masked := event.messages_masked:
        lines.append(f"{count_text(masked, 'older result')} left out of the context")
    if replaced := event.messages_replaced:
        lines.append(f"{count_text(replaced, 'message')} left out: refused by a content filter of the model's provider")
    if cut := event.fields_cut:
        lines.append(terminal_line(f"cut to fit the next segment: {', '.join(cut)}", 300))
    how = {"model": ", summed up by the model", "fallback": ", their calls counted"}
    tone = "bad" if event.messages_replaced else "quiet"
    return [StyledLine(" and ".join(lines) + how.get(event.summary, ""), tone)]


@event_lines.register
def _approval_requested_lines(event: on.ApprovalRequested) -> list[StyledLine]:
    if event.kind == "call":
        return [StyledLine(f"? {_text(event.id)}: {held_call_text(event.model_dump())}", "person")]
    what = f"{_text(event.kind)} {_text(event.id)}"
    return [StyledLine(f"? waits for a person ({what}): {_text(event.question)}", "person")]


@event_lines.register
def _approval_resolved_lines(event: on.ApprovalResolved) -> list[StyledLine]:
    if event.kind == "call":
        decided = f"{'approved' if event.approved else 'denied'}{_by_text(event.approver, event.reason)}"
        changed = f" with {terminal_line(event.arguments, 300)}" if event.arguments else ""
        return [StyledLine(f"{_text(event.tool)} {decided}{changed} ({_text(event.id)})", "person")]
    if event.choice == "none":
        return [StyledLine(f"{_text(event.id)} waits no more", "quiet")]
    return [StyledLine(f"{_text(event.id)}: {_text(event.choice)}{_by_text(event.by, event.reason)}", "person")]


@event_lines.register
def _recovery_lines(event: on.RecoveryTriggered) -> list[StyledLine]:
    tone: Tone = "good" if event.outcome == "ok" else "plain"
    after = f", after: {_text(event.error)}" if event.error else ""
    fallbacks = [StyledLine(f"  ↻ {_text(call.tool)} instead: {_text(call.outcome)}") for call in event.calls]
    attempts = f" ({event.attempts} attempts)" if event.attempts else ""
    how = f"{_text(event.strategy)}{attempts}, {_text(event.outcome)}"
    return [*fallbacks, StyledLine(f"↻ {_text(event.tool)}: {how}{after}", tone)]


@event_lines.register
def _repeated_call_lines(event: on.StepLimitReached) -> list[StyledLine]:
    return [StyledLine(f"✗ {_text(event.tool)} gets nowhere: {_text(event.reason)}", "bad")]


@event_lines.register
def _circuit_opened_lines(event: on.CircuitOpened) -> list[StyledLine]:
    last = f"; last: {_text(event.cause)}" if event.cause else ""
    text = f"✗ {_text(event.tool)} is left alone for {event.recovery_s:g} s: failures in a row: {event.failures}{last}"
    return [StyledLine(text, "bad")]


@event_lines.register
def _circuit_closed_lines(event: on.CircuitClosed) -> list[StyledLine]:
    return [StyledLine(f"✓ {_text(event.tool)} works again", "good")]


@event_lines.register
def _intervention_lines(event: on.InterventionReceived) -> list[StyledLine]:
    if event.kind == "cut":
        kept = f"{event.kept:,} of {event.bytes:,} bytes are kept"
        return [StyledLine(f"✗ {_text(event.of)} was too long and is cut: {kept}", "bad")]
    fields = as_object(event.text)
    if event.kind == "send" and fields.get("when_busy") == "steer" and fields.get("text"):
        return [StyledLine(f"steer: {terminal_line(str(fields['text']))}", "person")]
    text = _pairs_text(fields) if isinstance(event.text, dict) else str(event.text)
    tone: Tone = "quiet" if event.kind in _HIDDEN_KINDS else "person"
    return [StyledLine(f"{_intervention_text(event)}{': ' if text else ''}{terminal_line(text)}", tone)]


@event_lines.register
def _intervention_applied_lines(event: on.InterventionApplied) -> list[StyledLine]:
    return [StyledLine(f"{_intervention_text(event)} takes effect", "quiet")]


@event_lines.register
def _intervention_refused_lines(event: on.InterventionRefused) -> list[StyledLine]:
    why = terminal_line(event.reason.removeprefix(f"{event.kind}: "), 300)
    return [StyledLine(f"✗ {_intervention_text(event)} has no effect: {why}", "bad")]


def _intervention_text(event: on.InterventionReceived | on.InterventionApplied | on.InterventionRefused) -> str:
    return f"{_text(event.kind)}{f' by {_text(event.by)}' if event.by else ''}"


@event_lines.register
def _saga_lines(event: on.SagaEnded) -> list[StyledLine]:
    calls = ", ".join(f"{_text(call.tool)} {_text(call.outcome)}" for call in event.calls)
    why = f": {_text(event.error)}" if event.error else ""
    is_good = event.outcome == "ok"
    text = f"{'✓' if is_good else '✗'} saga {_text(event.outcome)}{why} ({calls})"
    return [StyledLine(text, "good" if is_good else "bad")]


@event_lines.register
def _grounded_decision_lines(event: on.DecisionGrounded) -> list[StyledLine]:
    outcome = terminal_line(_pairs_text(event.outcome), 300)
    return [StyledLine(f"✓ decided {_text(event.decision)}: {outcome} (rule: {_text(event.rule)})", "good")]


@event_lines.register
def _critique_lines(event: on.CritiqueEvaluated) -> list[StyledLine]:
    score = "" if event.score is None else f" {event.score:.2f}"
    why = _text(event.error) or _text(event.feedback)
    refusal = "cannot review" if event.error else "rejects"
    verb = "approves" if event.approved else refusal
    head = f"critic {_text(event.critic)} {verb} {_text(event.target)}{score} ({_text(event.then)})"
    text = f"{head}: {why}" if why else head
    return [StyledLine(f"✓ {text}", "good") if event.approved else StyledLine(f"✗ {text}", "bad")]


@event_lines.register
def _notification_failed_lines(event: on.NotificationFailed) -> list[StyledLine]:
    return [StyledLine(f"✗ nobody could be notified of {_text(event.about)}: {_text(event.error)}", "bad")]


@event_lines.register
def _build_changed_lines(event: on.BuildChanged) -> list[StyledLine]:
    return [StyledLine(f"goes on in build {_text(event.build)} (before: {_text(event.before)})", "quiet")]


@event_lines.register
def _missing_past_lines(event: on.PastMissing) -> list[StyledLine]:
    return [StyledLine(_text(event.detail), "quiet")]


@event_lines.register
def _failover_lines(event: on.ModelFailedOver) -> list[StyledLine]:
    return [StyledLine(f"⚠ {_text(event.from_)} gives way to {_text(event.to)}: {_text(event.why)}", "bad")]


@event_lines.register
def _recall_lines(event: on.KnowledgeRecalled) -> list[StyledLine]:
    if error := _text(event.error):
        return [StyledLine(f"✗ nothing could be recalled: {error}", "bad")]
    items = event.items
    recalled = f"{count_text(len(items), 'item')} (best {items[0].score:.2f})" if items else "nothing"
    tainted = sum(item.tainted for item in items)
    untrusted = f", {tainted} of them untrusted" if tainted else ""
    unchanged = ", the same as before" if event.block == "kept" else ""
    words = terminal_line(" ".join(event.terms))
    return [StyledLine(f"recalled {recalled}{untrusted}{unchanged} for: {words}", "quiet")]


@event_lines.register
def _knowledge_stored_lines(event: on.KnowledgeStored) -> list[StyledLine]:
    if error := _text(event.error):
        return [StyledLine(f"✗ what was learnt could not be stored: {error}", "bad")]
    against = f", against {count_text(len(event.contradicts), 'older fact')}" if event.contradicts else ""
    return [StyledLine(f"stored a {_text(event.kind)}: {_text(event.change)} {_text(event.id)}{against}", "good")]


def _text(text: str) -> str:
    return terminal_line(text, 300)


def _by_text(by: str, reason: str) -> str:
    who = f" by {_text(by)}" if by else ""
    return f"{who}: {_text(reason)}" if reason else who


def _pairs_text(pairs: on.Object) -> str:
    return ", ".join(f"{key}={value}" for key, value in pairs.items() if value not in (None, ""))


def entry_lines(viewed: ViewedEntry) -> list[StyledLine]:
    """Return the lines of an entry. An event that only a later version knows is shown as raw data."""
    match viewed.event:
        case on.PolicyEvaluated() as event:
            return _verdict_lines(event, viewed.run)
        case on.ObservationsCollected() as event:
            return _outcome_lines(event, viewed)
        case on.DelegationEnded() as event:
            return _delegation_ended_lines(event, viewed.run)
        case event:
            lines = event_lines(event)
            return [StyledLine(terminal_line(str(viewed.entry.data)), "quiet")] if lines is None else lines


def _verdict_lines(event: on.PolicyEvaluated, run: RunView) -> list[StyledLine]:
    if event.error:
        return [StyledLine(f"✗ the gate failed: {terminal_line(event.error)}", "bad")]
    if event.about in _SEPARATE_VERDICTS:
        names = [_SEPARATE_VERDICTS[event.about]]
    elif event.calls is None:
        names = [call_text(call) for call in run.calls] or ["the answer"]
    else:  # the gate judges these calls again; one that is not in the reply, such as a fallback, has no text here
        call_texts = _call_texts(run)
        names = [call_texts.get(call_id, "a call") for call_id in event.calls]
    judged = zip(chain(names, repeat("a call")), event.verdicts, strict=False)
    denied = [(name, verdict) for name, verdict in judged if verdict.decision != "allow"]
    if not denied:
        return [StyledLine(f"{len(event.verdicts)} allowed", "quiet")]
    return [_refusal_line(name, verdict) for name, verdict in denied]


def _call_texts(run: RunView) -> dict[str, str]:
    return {call.call_id: call_text(call) for call in run.calls}


def _outcome_lines(event: on.ObservationsCollected, viewed: ViewedEntry) -> list[StyledLine]:
    entry, since = viewed.entry, viewed.run.dispatched_at
    took = (entry.timestamp - since).total_seconds() if since else 0.0
    names = _call_texts(viewed.run)
    lines = [
        _outcome_line(call, names, entry.took_s.get(call.call_id, took), entry.effect_texts.get(call.call_id, ""))
        for call in event.outcomes
    ]
    return lines or [StyledLine("nothing was run", "quiet")]


def _delegation_ended_lines(event: on.DelegationEnded, run: RunView) -> list[StyledLine]:
    child = event.workflow_id
    who = terminal_line(run.delegates[child]) if child in run.delegates else full_field_text(child)
    reason, detail = event.reason, terminal_line(event.detail, 300)
    text = f"{who}: {reason}{': ' if detail else ''}{detail}"
    return [StyledLine(f"✓ {text}", "good") if reason == "completed" else StyledLine(f"✗ {text}", "bad")]


_SEPARATE_VERDICTS = {PLAN: "the plan", LEARNINGS: "to store what was learnt"}
"""Names of proposals that are not in a reply."""


def call_text(action: on.RecordedAction) -> str:
    """Return a call that the model proposed, with its first argument, on one line."""
    call = ToolCall(call_id="", name=str(action.tool), arguments=action.arguments)
    return terminal_line(call_summary(call, None))


def _refusal_line(name: str, verdict: on.RecordedVerdict) -> StyledLine:
    reason = terminal_line(verdict.reason)
    if verdict.decision == "approval":
        return StyledLine(f"? {name} needs a person's yes: {reason}", "person")
    refusal = "denied" if verdict.decision == "deny" else "refused as invalid"
    return StyledLine(f"✗ {refusal} {name}: {reason}", "bad")


def _outcome_line(call: on.RecordedCall, names: dict[str, str], took_s: float, effect_text: str) -> StyledLine:
    name = names.get(call.call_id) or terminal_line(call.tool or call.call_id)
    if call.outcome == "ok":
        value = "" if call.value is None else f" → {terminal_line(to_json(call.value).decode())}"
        return StyledLine(f"✓ {name}{value} ({took_s:.2f} s)", "good")
    outcome, error = terminal_line(call.outcome), terminal_line(call.error)
    return StyledLine(f"✗ {name}: {outcome}{', ' if error else ''}{error}{effect_text} ({took_s:.2f} s)", "bad")
