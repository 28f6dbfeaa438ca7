"""The journal is a fold of the history into events with a hash chain."""

from itertools import permutations
from typing import Any

import pytest

from orga.workflows.decisions.conversation import reference_and_seen
from orga.workflows.decisions.journal.entries import SESSION_SIGNALS, first_break, intervention_events
from orga.workflows.decisions.journal.fold import JournalFold
from orga.workflows.decisions.result import agent_result
from orga.workflows.types.control import Stop, StopReason
from orga.workflows.types.messages import Reply, ToolCall
from orga.workflows.types.models.usage import Usage
from orga.workflows.types.record import Record
from orga.workflows.types.status import Happening, HappeningKind, JournalEntry
from orga.workflows.types.tool_calls.gate import Verdict, Verdicts
from orga.workflows.types.tool_calls.recovery import Recovery, RecoveryStrategy
from tests.support.values.core import a_call, a_request, a_setup, a_spec, a_state, at, conversation_of, user

SETUP = a_setup()
ALLOW = Verdict(decision="allow")
ROUND = ["ReasoningComplete", "PolicyEvaluated", "ToolsDispatched", "ObservationsCollected"]


def happened(kind: HappeningKind, name: str = "", **fields: Any) -> Happening:
    value = fields.pop("value", None)
    plain = value.model_dump(mode="json", exclude_unset=True) if isinstance(value, Record) else value
    return Happening(kind=kind, at=at(fields.pop("at_s", 1)), event_id=1, name=name, value=plain, **fields)


def start(task: str = "count", **more: Any) -> Happening:
    return happened("started", value=[{"task": task, **more}], at_s=0)


def prepared() -> list[Happening]:
    return [happened("scheduled", "prepare", value={}), happened("finished", "prepare", value=SETUP)]


def reasoned(reply: Reply, iteration: int) -> list[Happening]:
    request = a_request((user("count"),), SETUP, iteration)
    return [happened("scheduled", "reason", value=request), happened("finished", "reason", value=reply)]


def gated(*verdicts: Verdict, at: str = "1.") -> Happening:
    """Return the gate's verdicts on the calls of iteration 1, or on the proposal at a given place."""
    places = tuple(f"{at}{index}" for index in range(len(verdicts))) if at.endswith(".") else (at,)
    return happened("finished", "gate", value=Verdicts(verdicts=verdicts, places=places))


def acted(key: str, kind: HappeningKind = "finished", name: str = "read", text: str = "") -> Happening:
    return happened(kind, name, key=key, value="ok" if kind == "finished" else None, text=text)


def called(*names: str) -> Reply:
    return Reply.of(calls=tuple(a_call(name, f"{name}_{i}") for i, name in enumerate(names)))


def completed(reason: StopReason = "completed", detail: str = "") -> Happening:
    return happened("workflow_completed", value=agent_result(a_state(), Stop(reason, detail), at(9)))


def journal(*happenings: Happening | list[Happening]) -> list[JournalEntry]:
    fold = JournalFold()
    flat = [h for item in happenings for h in (item if isinstance(item, list) else [item])]
    return [entry for happening in flat for entry in fold.feed(happening)]


def events(entries: list[JournalEntry]) -> list[str]:
    return [entry.event for entry in entries]


TOOL_THEN_TEXT = [
    start(),
    *prepared(),
    *reasoned(called("read"), 1),
    gated(ALLOW),
    happened("scheduled", "read", key="1.0", value={}),
    acted("1.0"),
    *reasoned(Reply.of("done", usage=Usage(input_tokens=5)), 2),
    gated(ALLOW, at="2"),
    completed(),
]


def test_a_tool_call_then_an_answer_gives_exactly_these_events() -> None:
    entries = journal(TOOL_THEN_TEXT)
    assert events(entries) == ["Started", "Prepared", *ROUND, *ROUND, "Terminated"]
    assert [entry.iteration for entry in entries] == [0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 2]
    assert [entry.sequence for entry in entries] == list(range(11))
    assert {entry.agent for entry in entries} == {"default"}


def test_each_event_has_its_data() -> None:
    data = [entry.data for entry in journal(TOOL_THEN_TEXT) if entry.event != "Prepared"]
    no_usage = {"input_tokens": 0, "output_tokens": 0, "cached_input_tokens": 0}
    tool = {"tool": "read", "call_id": "read_0"}
    assert data[:9] == [
        {"task": "count", "input": {}},
        {"actions": [{**tool, "arguments": {}}], "finish": "stop", "usage": no_usage},
        {"action_count": 1, "denied_count": 0, "places": ["1.0"], "verdicts": [{"decision": "allow"}]},
        {"tool_count": 1, "tools": [tool], "duration_s": 0.0},
        {"observation_count": 1, "outcomes": [{**tool, "outcome": "ok"}]},
        {"actions": [{"respond": "done"}], "finish": "stop", "usage": {**no_usage, "input_tokens": 5}},
        {"action_count": 1, "denied_count": 0, "places": ["2"], "verdicts": [{"decision": "allow"}]},
        {"tool_count": 0, "tools": [], "duration_s": 0.0},
        {"observation_count": 0, "outcomes": []},
    ]
    assert (data[9]["reason"], data[9]["iterations"]) == ("completed", 0)


def test_the_dispatch_records_the_time_since_the_reply() -> None:
    asked, replied = reasoned(called("read"), 1)
    begun = happened("scheduled", "read", key="1.0", value={}, at_s=9.25)
    judged = happened("finished", "gate", value=Verdicts(verdicts=(ALLOW,), places=("1.0",)), at_s=3.5)
    held = happened("finished", "gate", value=Verdicts(verdicts=(Verdict(decision="approval"),), places=("1.0",)))
    for verdicts, duration_s in ((judged, 2.5), (held, 8.25)):
        entries = journal(start(), prepared(), asked, replied, verdicts, begun)
        assert [e.data["duration_s"] for e in entries if e.event == "ToolsDispatched"] == [duration_s]


@pytest.mark.parametrize(
    ("kind", "fields", "strategy", "found"),
    [
        pytest.param(
            "finished", {"attempts": 3, "failed_before": "E: no"}, "retry", ("ok", 3, "E: no"), id="the third succeeds"
        ),
        pytest.param(
            "failed",
            {"attempts": 2, "failed_before": "E: no", "text": "E: never"},
            "retry",
            ("failed", 2, "E: never"),
            id="the last fails too",
        ),
        pytest.param("finished", {}, "retry", None, id="one attempt"),
        pytest.param("finished", {"attempts": 2}, "retry", None, id="the worker of the first attempt died"),
        pytest.param(
            "failed", {"attempts": 2, "failed_before": "E"}, "dead_letter", None, id="the run records its own recovery"
        ),
    ],
)
def test_a_retried_call_is_recorded_as_a_recovery(
    kind: HappeningKind, fields: dict[str, Any], strategy: RecoveryStrategy, found: tuple[str, int, str] | None
) -> None:
    spec = a_spec("read", recovery=Recovery(strategy=strategy))
    setup = SETUP.model_copy(update={"tools": (spec,)})
    entries = journal(
        start(),
        happened("finished", "prepare", value=setup),
        reasoned(called("read"), 1),
        gated(ALLOW),
        happened(kind, "read", key="1.0", value="ok" if kind == "finished" else None, **fields),
    )
    reported = [entry.data for entry in entries if entry.event == "RecoveryTriggered"]
    call = {"tool": "read", "call_id": "read_0", "strategy": "retry"}
    outcome = dict(zip(("outcome", "attempts", "error"), found, strict=True)) if found else {}
    assert reported == ([{**call, **outcome}] if found else [])


def test_lookups_are_counted_as_resolved_or_failed() -> None:
    note = {
        "event": "PreHydrationComplete",
        "data": {"references_found": 4, "resolved": 1, "failed": 2, "unresolvable": 1},
    }
    [reported] = [
        entry.data for entry in journal(start(), happened("noted", value=[note])) if entry.event in note.values()
    ]
    assert (reported["references_found"], reported["references_resolved"], reported["references_failed"]) == (4, 1, 3)


def test_the_journal_records_model_policy_tools_and_build() -> None:
    """A signed export shows the model, the rules and whether a tool definition has changed."""
    changed = SETUP.model_copy(
        update={"tools": tuple(t.model_copy(update={"effect": "read_only"}) for t in SETUP.tools)}
    )
    setups = [
        SETUP,
        SETUP.model_copy(update={"instructions": "Be brief.", "policy_version": "1f", "build": "2", "loop_version": 3}),
        changed,
    ]
    reported = [journal(start(), happened("finished", "prepare", value=setup))[1].data for setup in setups]
    assert (reported[0]["model"], reported[0]["policy"]) == (SETUP.model, SETUP.policy)
    assert reported[0]["config"]["max_iterations"] == SETUP.config.max_iterations
    assert list(reported[0]["tools"]) == [spec.name for spec in SETUP.tools]
    assert not {"policy_version", "build", "loop_version"} & reported[0].keys()
    assert (reported[1]["policy_version"], reported[1]["build"], reported[1]["loop_version"]) == ("1f", "2", 3)
    assert reported[1]["instructions"] != reported[0]["instructions"]
    assert reported[2]["tools"].keys() == reported[0]["tools"].keys()
    assert reported[2]["tools"] != reported[0]["tools"]


def test_the_journal_records_a_change_of_build() -> None:
    builds = [happened("decided", key=build) for build in ("k3m7qa", "k3m7qa", "p2x9vd", "k3m7qa")]
    reported = [entry for entry in journal(start(), builds) if entry.event == "BuildChanged"]
    assert [entry.data for entry in reported] == [
        {"before": "k3m7qa", "build": "p2x9vd"},
        {"before": "p2x9vd", "build": "k3m7qa"},
    ]


@pytest.mark.parametrize(
    "order", [pytest.param(order, id=" then ".join(order)) for order in permutations(("1.0", "1.1", "1.10"))]
)
def test_the_order_of_parallel_completions_does_not_matter(order: tuple[str, ...]) -> None:
    reply = called(*["read"] * 11)
    deny = Verdict(decision="deny", reason="no")
    verdicts = [ALLOW if index in {0, 1, 10} else deny for index in range(11)]
    entries = journal(start(), reasoned(reply, 1), gated(*verdicts), [acted(key) for key in order], completed())
    assert events(entries) == ["Started", *ROUND, "Terminated"]
    assert [outcome["call_id"] for outcome in entries[4].data["outcomes"]] == ["read_0", "read_1", "read_10"]
    assert [tool["call_id"] for tool in entries[3].data["tools"]] == ["read_0", "read_1", "read_10"]


def test_denied_calls_are_in_the_verdicts_and_not_dispatched() -> None:
    deny = Verdict(decision="deny", reason="no")
    entries = journal(start(), reasoned(called("rm"), 1), gated(deny))
    assert events(entries) == ["Started", *ROUND]
    assert entries[2].data["verdicts"] == [{"decision": "deny", "reason": "no"}]
    assert (entries[2].data["denied_count"], entries[3].data["tool_count"]) == (1, 0)


@pytest.mark.parametrize(
    ("kind", "text", "expected"),
    [
        pytest.param("failed", "OSError: gone", {"outcome": "failed", "error": "OSError: gone"}, id="a failure"),
        pytest.param("cancelled", "", {"outcome": "cancelled"}, id="a cancellation"),
    ],
)
def test_failed_and_cancelled_outcomes_are_recorded(kind: HappeningKind, text: str, expected: dict[str, str]) -> None:
    entries = journal(start(), reasoned(called("read"), 1), gated(ALLOW), acted("1.0", kind, text=text), completed())
    assert entries[-2].data["outcomes"] == [{"tool": "read", "call_id": "read_0", **expected}]


def test_a_gate_failure_is_recorded_as_an_evaluation_with_an_error() -> None:
    entries = journal(start(), reasoned(called("read", "ls"), 1), happened("failed", "gate", text="it timed out"))
    assert (entries[-1].event, entries[-1].data) == ("PolicyEvaluated", {"error": "it timed out", "action_count": 2})


MIDDLE = [start(), *prepared(), *reasoned(called("read", "ls"), 1), gated(ALLOW, ALLOW), acted("1.1")]
ENDINGS: list[tuple[str, list[Happening], list[str], str, str]] = [
    ("an answer", TOOL_THEN_TEXT, [], "completed", ""),
    ("a limit", [start(), completed("max_tokens", "9 of 9 tokens")], [], "max_tokens", "9 of 9 tokens"),
    (
        "an abort in the middle of its tools",
        [*MIDDLE, completed("aborted", "enough")],
        ["ObservationsCollected"],
        "aborted",
        "enough",
    ),
    (
        "a model that fails for good",
        [start(), *reasoned(Reply(), 1)[:1], happened("failed", "reason", text="no"), completed("error", "no")],
        [],
        "error",
        "no",
    ),
    ("bad input", [start(), happened("workflow_failed", text="InvalidInput: task")], [], "error", "InvalidInput: task"),
    (
        "a cancelled workflow",
        [*MIDDLE, happened("workflow_cancelled")],
        ["ObservationsCollected"],
        "aborted",
        "cancelled",
    ),
    ("a terminated workflow", [start(), happened("workflow_terminated", text="by bob")], [], "aborted", "by bob"),
    ("a terminated workflow without a reason", [start(), happened("workflow_terminated")], [], "aborted", "terminated"),
    (
        "a workflow timeout",
        [*MIDDLE, happened("workflow_timed_out")],
        ["ObservationsCollected"],
        "timeout",
        "timed_out",
    ),
    ("a result of another shape", [start(), happened("workflow_completed", value="text")], [], "", ""),
]


@pytest.mark.parametrize(
    ("history", "before", "reason", "detail"), [pytest.param(*rest, id=f"ended by {name}") for name, *rest in ENDINGS]
)
def test_terminated_is_last_on_every_ending(
    history: list[Happening], before: list[str], reason: str, detail: str
) -> None:
    entries = journal(history)
    assert (entries[0].event, entries[-1].event) == ("Started", "Terminated")
    assert events(entries).count("Terminated") == 1
    assert events(entries)[-1 - len(before) : -1] == before
    assert (entries[-1].data.get("reason", ""), entries[-1].data.get("detail", "")) == (reason, detail)


def test_finished_calls_are_recorded_if_the_run_ends_in_the_middle() -> None:
    entries = journal(MIDDLE, completed("aborted", "enough"))
    assert entries[-2].data == {
        "observation_count": 2,
        "outcomes": [
            {"tool": "read", "call_id": "read_0", "outcome": "not_run"},
            {"tool": "ls", "call_id": "ls_1", "outcome": "ok"},
        ],
    }


@pytest.mark.parametrize(
    ("name", "value", "data"),
    [
        pytest.param("steer", ["left"], {"kind": "steer", "text": "left"}, id="guidance with its text"),
        pytest.param("pause", [], {"kind": "pause"}, id="a pause without one"),
        pytest.param("abort", [None], {"kind": "abort"}, id="an abort without a reason"),
        pytest.param("steer", [{"a": 1}], {"kind": "steer", "text": {"a": 1}}, id="any JSON"),
        pytest.param("typo", ["x"], {"kind": "typo", "known": False}, id="an unknown signal"),
    ],
)
def test_interventions_are_recorded(name: str, value: list[Any], data: dict[str, Any]) -> None:
    entry = journal(start(), happened("signaled", name, value=value))[-1]
    assert (entry.event, entry.data) == ("InterventionReceived", data)


def test_override_step_is_a_known_signal_only_of_goals() -> None:
    step = happened("signaled", "override_step", value=[{"skill": "look", "input": "there"}])
    entry = journal(happened("started", "GoalWorkflow", value=[{"goal": "find out"}]), step)[-1]
    assert entry.data == {"kind": "override_step", "text": {"skill": "look", "input": "there"}}
    assert journal(start(), step)[-1].data == {"kind": "override_step", "known": False}


def test_a_compaction_is_recorded_before_its_reasoning() -> None:
    conversation = conversation_of(user("a"), user("b"), user("c"), user("d"), sent=4)
    context, _ = reference_and_seen(conversation, ((1, 3),))
    request = a_request((), SETUP, 2).model_copy(update={"context": context})
    entry = journal(start(), happened("scheduled", "reason", value=request))[-1]
    assert (entry.event, entry.iteration) == ("ContextCompacted", 2)
    assert entry.data == {"strategy": "sliding_window", "messages_dropped": 2}


def test_a_run_that_continues_as_new_has_one_journal() -> None:
    state = a_state(iteration=1, setup=a_setup(agent="coder"))
    carried = happened("started", value=[None, state.model_dump(mode="json", exclude_unset=True)])
    entries = journal(
        *[start(agent="coder"), reasoned(Reply(), 1), happened("continued_as_new", key="next")],
        *[carried, reasoned(Reply.of("done"), 2), gated(ALLOW, at="2"), completed()],
    )
    assert events(entries) == ["Started", "ReasoningComplete", *ROUND, "Terminated"]
    assert [entry.sequence for entry in entries] == list(range(7))
    assert [entry.iteration for entry in entries] == [0, 1, 2, 2, 2, 2, 2]
    assert {entry.agent for entry in entries} == {"coder"}
    assert first_break(entries) is None


@pytest.mark.parametrize(
    "value", [pytest.param(v, id=repr(v)) for v in ([], [None], ["text"], [5], [{"task": {"a": 1}}])]
)
def test_a_run_with_invalid_input_has_a_journal(value: list[Any]) -> None:
    assert events(journal(happened("started", value=value), happened("workflow_failed", text="no"))) == [
        "Started",
        "Terminated",
    ]


def test_a_rebuilt_chain_after_an_edit_has_no_break_but_a_different_last_hash() -> None:
    """Therefore the last hash is worth keeping elsewhere."""
    honest = journal(TOOL_THEN_TEXT)
    forged = journal([start("something else"), *TOOL_THEN_TEXT[1:]])
    assert first_break(forged) is None
    assert forged[-1].hash != honest[-1].hash


def test_call_ids_that_look_like_activity_ids_are_not_confused() -> None:
    reply = Reply.of(calls=(ToolCall(call_id="1.1", name="a"), ToolCall(call_id="1.0", name="b")))
    entries = journal(start(), reasoned(reply, 1), gated(ALLOW, ALLOW), acted("1.1", name="b"), acted("1.0", name="a"))
    assert [(o["tool"], o["call_id"]) for o in entries[-1].data["outcomes"]] == [("a", "1.1"), ("b", "1.0")]


@pytest.mark.parametrize(
    ("kind", "name", "argument", "recorded"),
    [
        ("updated", "extend_budget", {"max_iterations": 9, "by": "ada"}, {"text": {"max_iterations": 9}, "by": "ada"}),
        ("updated", "extend_budget", {"max_iterations": 9}, {"text": {"max_iterations": 9}}),
        ("updated", "requeue", {"letter_id": "2.0", "by": "ada"}, {"text": "2.0", "by": "ada"}),
        ("updated", "requeue", "2.0", {"text": "2.0"}),
        ("updated", "send", {"text": "go", "message_id": "m", "by": "ada"},
         {"text": {"text": "go", "message_id": "m"}, "by": "ada"}),
        ("updated", "interrupt", {"why": "", "turn": 1, "by": "ada"}, {"text": {"why": "", "turn": 1}, "by": "ada"}),
        ("updated", "interrupt", "stop", {"text": "stop"}),
        ("updated", "answer", {"text": "1999", "by": "ada"}, {"text": {"text": "1999", "by": "ada"}}),
        ("updated", "send", {"text": "go", "message_id": "m", "by": ["ada"]},
         {"text": {"text": "go", "message_id": "m"}}),
        ("signaled", "send", {"text": "go", "message_id": "m", "id": "web-1", "by": "ada"},
         {"text": {"text": "go", "message_id": "m"}, "id": "web-1", "by": "ada"}),
        ("signaled", "requeue", {"letter_id": "2.0", "id": "web-1", "by": "ada"},
         {"text": "2.0", "id": "web-1", "by": "ada"}),
        ("signaled", "requeue", "2.0", {"text": "2.0"}),
        ("signaled", "interrupt", {"why": "stop", "id": "web-1", "by": "ada"},
         {"text": {"why": "stop"}, "id": "web-1", "by": "ada"}),
        ("signaled", "close", {"id": "web-1", "by": "ada"}, {"id": "web-1", "by": "ada"}),
        ("signaled", "close", None, {}),
        ("signaled", "rewound", {"to_iteration": 2, "by": "ada", "id": "web-1"},
         {"to_iteration": 2, "by": "ada", "id": "web-1"}),
    ],
)  # fmt: skip
def test_the_journal_names_who_sent_an_intervention(
    kind: HappeningKind, name: str, argument: Any, recorded: dict[str, Any]
) -> None:
    happening = happened(kind, name, value=None if argument is None else [argument])
    [(event, data)] = intervention_events(happening, SESSION_SIGNALS)
    assert (event, data) == ("InterventionReceived", {"kind": name.replace("rewound", "rewind"), **recorded})
