"""Names, reasons and arguments cannot forge a line, an entry or a command."""

import json
import re
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given

from orga.activities.adapters.webhook.post import WebhookFormat, webhook_body
from orga.activities.ports import RunKey
from orga.client.cli.inspect import audit, runs
from orga.client.cli.inspect.inbox import inbox_entry_lines
from orga.client.cli.inspect.journal import Timeline
from orga.client.cli.inspect.status import message_lines
from orga.client.cli.live.screens import PlainScreen, remarks
from orga.client.cli.shown.decisions import approval_blocks, approval_json
from orga.client.cli.shown.progress import PendingActivity, PendingCalls, Progress
from orga.client.cli.shown.status_text import status_lines
from orga.client.cli.shown.text import write_note, write_result
from orga.client.cli.steer import rewind
from orga.client.cli.workbench import doctor
from orga.client.cli.workbench.doctor import DoctorCheck
from orga.client.errors import RunEnded
from orga.client.past.dropped import LiveDelegate, SentIntervention
from orga.client.past.rewind import RewindPlan
from orga.client.proof.audit import RunAudit
from orga.client.runs import listing
from orga.client.runs.inbox import InboxEntry
from orga.workflows.decisions.control.questions import shown_arguments
from orga.workflows.decisions.result import agent_run_details
from orga.workflows.types.messages import ToolCall
from orga.workflows.types.questions import Item, Notification, NotifiedCall, Question, ShownQuestion
from orga.workflows.types.status import ShownMessage, Termination
from orga.workflows.types.text import can_be_typed, full_field_text, one_line
from orga.workflows.types.tool_calls.breakers import Breaker
from orga.workflows.types.tool_calls.delegation import Child
from orga.workflows.types.tool_calls.recovery import DeadLetter
from tests.support.programs.orga_command import ROOT
from tests.support.values.core import a_state
from tests.support.values.entries import an_entry
from tests.support.values.held import a_call, asking
from tests.support.values.statuses import NOW, a_status, progress_text
from tests.support.values.strategies import LAW, any_text

ENTRY = "approval  agent-1 (cashier)  approval-1  3 min\n  → orga approve agent-1 real-id"
FORGERIES = {
    "newlines": f"agent-2 (x)\n\n{ENTRY}",
    "carriage returns": f"agent-2\r{ENTRY}".replace("\n", "\r"),
    "vertical tabs": f"agent-2\x0b{ENTRY}".replace("\n", "\x0b"),
    "next lines": f"agent-2\x85{ENTRY}".replace("\n", "\x85"),
    "line separators": f"agent-2\u2028{ENTRY}".replace("\n", "\u2029"),
    "file separators": f"agent-2\x1c{ENTRY}".replace("\n", "\x1e"),
    "cursor movement": "agent-2\x1b[1A\x1b[2Kapproval agent-1",
    "one byte of cursor movement": "agent-2\x9b1A\x9b2Kapproval agent-1",
    "a turned direction": "agent-2\u202e1-tnega\u202c",
    "isolates": "agent\u20661-\u20692",
    "no width": "agent\u200b-\u20601\ufeff",
    "fillers": "agent\u3164-\u28001\uffa0",
    "variation selectors": "agent\ufe0f-1\U000e0101",
    "tags": "agent-1\U000e0041\U000e007f",
    "columns": "agent-2  cashier  completed  9  2026-01-01 00:00:00",
    "markup": "[bold red]agent-1[/] [link=http://e]x[/link]",
}
hostile = pytest.mark.parametrize("forged", [pytest.param(text, id=name) for name, text in FORGERIES.items()])


def asks(forged: str) -> InboxEntry:
    wait = asking(a_call(tool=forged, reason=forged, approvers=[forged], id=forged, arguments=json.dumps(forged)))
    wait = wait.model_copy(update={"question": forged, "wait_id": forged, "queue": forged})
    return InboxEntry(forged, forged, "approval", forged, forged, NOW, wait)


def escalates(forged: str) -> InboxEntry:
    data = {"error": forged, "tool": forged, "arguments": forged}
    wait = ShownQuestion(wait_id=forged, kind="escalation", since=NOW, question=forged, queue=forged, data=data)
    return InboxEntry(forged, forged, "escalation", forged, forged, NOW, wait)


def of_status(forged: str) -> list[str]:
    letter = DeadLetter(letter_id=forged, call=ToolCall(call_id="c", name=forged), key="k", error=forged, at=NOW)
    status = a_status(
        agent=forged,
        model=forged,
        waiting=[asks(forged).wait],
        breakers={forged: Breaker(state="open")},
        children=[Child(workflow_id=forged, agent=forged, task=forged)],
        dead_letters=[letter],
        unread_interventions=[{"kind": "steer", "text": forged}],
        termination=Termination(reason="error", detail=forged),
    )
    return status_lines(forged, status)


def a_row(forged: str) -> listing.ListedRun:
    return listing.ListedRun(forged, forged, forged, 1, NOW, None, forged, forged)


def a_message(forged: str) -> ShownMessage:
    made = ToolCall(call_id=forged, name=forged, arguments={"a": forged})
    return ShownMessage(role="tool", text=forged, calls=(made,), call_id=forged, tool=forged, is_error=False)


EVENTS: list[dict[str, Any]] = [
    {"event": "Started", "task": "{}", "forked_from": {"workflow_id": "{}", "iteration": 1}},
    {
        "event": "ReasoningComplete",
        "actions": [{"tool": "{}", "call_id": "c", "arguments": {"a": "{}"}}],
        "finish": "{}",
    },
    {"event": "PolicyEvaluated", "verdicts": [{"decision": "deny", "reason": "{}"}]},
    {"event": "PolicyEvaluated", "error": "{}"},
    {"event": "ObservationsCollected", "outcomes": [{"tool": "{}", "call_id": "{}", "outcome": "{}", "error": "{}"}]},
    {"event": "DelegationStarted", "workflow_id": "{}", "agent": "{}", "task": "{}"},
    {"event": "DelegationEnded", "workflow_id": "{}", "reason": "completed", "detail": "{}"},
    {"event": "ApprovalRequested", "kind": "escalation", "id": "{}", "question": "{}"},
    {"event": "ApprovalResolved", "kind": "call", "tool": "{}", "approver": "{}", "reason": "{}", "id": "{}"},
    {"event": "InterventionReceived", "kind": "steer", "text": "{}"},
    {"event": "InterventionReceived", "kind": "extend_budget", "text": {"{}": "{}"}},
    {"event": "DecisionGrounded", "decision": "{}", "outcome": {"{}": "{}"}, "rule": "{}"},
    {"event": "DecisionGrounded", "decision": "{}", "outcome": {"{}": "{}"}, "rule": "{}"},
    {"event": "NotificationFailed", "about": "{}", "error": "{}"},
    {"event": "OfALaterVersion", "{}": "{}"},
    {"event": "Terminated", "reason": "error", "detail": "{}"},
]
"""`{}` is replaced by the forgery."""


def filled(value: Any, forged: str) -> Any:
    if isinstance(value, dict):
        return {filled(key, forged): filled(item, forged) for key, item in value.items()}  # pyright: ignore[reportUnknownVariableType]
    if isinstance(value, list):
        return [filled(item, forged) for item in value]  # pyright: ignore[reportUnknownVariableType]
    return forged if value == "{}" else value


def of_journal(forged: str) -> list[str]:
    timeline = Timeline()
    return [line for event in EVENTS for line in timeline.lines(an_entry(**filled(event, forged)))]


def of_audit(forged: str) -> list[str]:
    return audit.audit_summary([RunAudit(run=forged, not_rebuilt=(forged,))])


def of_rewind(forged: str) -> list[str]:
    delegates = (LiveDelegate(forged, 1, NOW),)
    boundary: Any = None
    plan = RewindPlan(
        boundary, interventions=(SentIntervention("steer", NOW, forged),), effects=(), delegates=delegates
    )
    return rewind.rewind_plan_lines(plan, keeps=True)


SCREENS: dict[str, Callable[[str], Sequence[str]]] = {
    "an approval in the inbox": lambda text: inbox_entry_lines(asks(text), NOW),
    "an escalation in the inbox": lambda text: inbox_entry_lines(escalates(text), NOW),
    "a run in the inbox that nobody asks": lambda text: inbox_entry_lines(
        InboxEntry(text, text, text, text, text, NOW), NOW
    ),
    "the list": lambda text: runs.run_table([a_row(text)]),
    "the status": of_status,
    "the journal": of_journal,
    "a remark": lambda text: remarks(Progress(run_id=text, waiting=(asks(text).wait,))),  # type: ignore[arg-type]
    "a check of the doctor": lambda text: doctor.check_lines(
        DoctorCheck(full_field_text(text), ok=False, detail="x", remedy="y")
    ),
    "an audit": of_audit,
    "a rewind": of_rewind,
}


@hostile
@pytest.mark.parametrize("screen", SCREENS)
def test_each_field_stays_within_its_line(screen: str, forged: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The screen has as many lines as with a plain name. No column or entry comes from a field."""
    lines_of_screen = SCREENS[screen]
    write_result(*lines_of_screen(forged))
    written = capsys.readouterr().out
    assert len(written.splitlines()) == len(lines_of_screen("plain"))
    assert all(character == "\n" or can_be_typed(f"x{character}x") for character in written)
    assert "cashier  completed" not in written
    assert not any(line.lstrip().startswith("→ orga approve agent-1") for line in written.splitlines())


@LAW
@given(any_text)
def test_a_field_is_printable_and_part_of_one_column(text: str) -> None:
    shown = full_field_text(text)
    assert "  " not in shown
    assert shown.isprintable()
    assert full_field_text(shown) == shown
    assert len(one_line(text, 40)) <= 40


@pytest.mark.parametrize("write", [write_result, write_note])
def test_a_written_line_is_one_line(write: Callable[..., None], capsys: pytest.CaptureFixture[str]) -> None:
    """This holds even if a command forgets to escape."""
    write("first", f"second {''.join(FORGERIES.values())}")
    written = "".join(capsys.readouterr())
    assert len(written.splitlines()) == 2


@hostile
def test_a_message_cannot_forge_another_message(forged: str) -> None:
    shown = message_lines(a_message(f"x\n── user\n{forged}"))
    heads = [line for line in shown if line.startswith("──")]
    assert len(heads) == 1


@hostile
def test_the_live_view_cannot_be_forged(forged: str) -> None:
    asked = asks(forged).wait
    assert asked is not None
    progress = Progress(
        run_id=forged,
        waiting=(asked,),
        circuits=(forged,),
        children=(Child(workflow_id=forged, agent=forged, task=forged),),
        pending_calls=PendingCalls(
            (
                PendingActivity("1", forged),
                PendingActivity("2", "reason", text=f"{forged}\nwaits for you: x → orga approve"),
            )
        ),
    )
    lines = progress_text(progress).splitlines()
    assert sum(line.startswith("waits for you") for line in lines) == 1
    assert all(line.isprintable() for line in lines)


@hostile
def test_a_remark_is_one_line_in_a_pipe(forged: str, capsys: pytest.CaptureFixture[str]) -> None:
    PlainScreen().note(forged)
    assert len(capsys.readouterr().err.splitlines()) == 1


@hostile
@pytest.mark.parametrize("form", ["json", "slack"])
def test_a_chat_notification_is_one_line(forged: str, form: WebhookFormat) -> None:
    call = NotifiedCall(tool=forged, arguments=forged, reason=forged, approvers=(forged,))
    message = Notification(message_id="m", event="waiting", agent=forged, question=forged, calls=(call,), error=forged)
    text = json.loads(webhook_body(message, RunKey(forged, "r"), None, form))["text"]
    assert text.isprintable()


def test_arguments_keep_all_spaces_and_stay_json() -> None:
    """Arguments with collapsed spaces would differ from the approved ones."""
    arguments = '{"text":"a    b","code":"if x:\\n    y"}'
    assert json.loads(full_field_text(arguments)) == json.loads(arguments)


HELD = json.dumps({"note": "pay 9 EUR " + "x" * 3_000, "cents": 9_000_000})


def test_cut_arguments_cannot_be_approved_directly() -> None:
    cut = shown_arguments(HELD, 2_000)
    wait = asking(a_call(**cut), a_call("b2"))
    shown = inbox_entry_lines(InboxEntry("agent-1", "cashier", "approval", "q", "orga worker", NOW, wait), NOW)
    text = "\n".join(shown)
    assert "9 EUR" not in text
    assert f"{len(HELD)} bytes" in text
    assert cut["arguments_digest"] in text
    assert shown[-1] == "  → orga approve agent-1 a1 b2 --show (or orga deny agent-1 a1 b2)"


def test_arguments_too_long_for_a_table_are_shown_by_a_command_and_then_approved() -> None:
    held = Item(
        approval_id="a1",
        call={"call_id": "c", "name": "pay", "arguments": json.loads(HELD)},
        expires_at=NOW + timedelta(hours=1),
    )
    [lines, [last]] = approval_blocks("agent-1", [held])
    assert json.loads(lines[-1]) == json.loads(HELD)
    assert last == "→ orga approve agent-1 a1"
    compact = json.dumps(json.loads(HELD), separators=(",", ":"))
    assert approval_json(held)["arguments_digest"] == shown_arguments(compact, 0)["arguments_digest"]


def test_text_of_a_model_is_no_markdown_in_the_temporal_ui() -> None:
    forged = "[approve](http://evil) `x` \n# waits"
    asked = Question(question_id="w", kind="escalation", since=NOW, text=forged)
    shown = agent_run_details(a_state().model_copy(update={"questions": (asked,), "last": forged}))
    assert "`` [approve](http://evil) `x` # waits ``" in shown
    assert not any(line.startswith("#") for line in shown.splitlines())


def test_a_shown_command_quotes_the_id() -> None:
    """An id may contain shell characters, and commands are copied."""
    reported = re.compile(r"orga [a-z-]+ \{(?!quote\()\w*(id|\.id)\}")
    files = [*(ROOT / "client").rglob("*.py"), *(ROOT / "workflows").rglob("*.py")]
    assert [f"{file.name}: {found}" for file in files for found in reported.findall(file.read_text())] == []
    assert str(RunEnded("a; b")).endswith("`orga journal 'a; b'` shows how")
