"""The journal is rendered as readable text."""

import pytest

from orga.client.cli.inspect.journal import Timeline
from orga.client.cli.shown.narration import entry_lines
from orga.client.journal.run_view import RunView
from orga.workflows.types.status import JournalEntry
from tests.support.values.entries import A_RUN, an_entry


def test_a_run_is_shown_as_a_timeline_grouped_by_iteration() -> None:
    timeline = Timeline()
    assert [line for entry in A_RUN for line in timeline.lines(entry)] == [
        "    +0.000s Started               task: What is this?",
        "── iteration 1",
        "    +0.200s ReasoningComplete     → read_file README.md",
        "                                  → write_file x",
        "    +0.300s PolicyEvaluated       ✗ denied write_file x: not listed",
        "    +0.300s ToolsDispatched       1 to run",
        "    +0.550s ObservationsCollected ✓ read_file README.md (0.25 s)",
        "── iteration 2",
        "    +0.900s ReasoningComplete     answers: It is a test.",
        "    +0.900s PolicyEvaluated       1 allowed",
        "    +1.000s Terminated            completed",
    ]


@pytest.mark.parametrize(
    ("entry", "text"),
    [
        pytest.param(
            an_entry(
                "Prepared",
                model="m:1",
                tools={"a": "x"},
                policy="cedar",
                policy_version="7",
                build="1f",
                loop_version=2,
            ),
            "model m:1, 1 tool, policy cedar 7, build 1f, loop version 2",
            id="a setup with its build",
        ),
        pytest.param(
            an_entry("Prepared", model="m:1", policy="default"),
            "model m:1, 0 tools, policy default",
            id="a setup recorded before builds were",
        ),
        pytest.param(an_entry("PolicyEvaluated", error="Boom: x"), "✗ the gate failed: Boom: x", id="gate down"),
        pytest.param(
            an_entry("PolicyEvaluated", verdicts=[{"decision": "deny", "reason": "no"}]),
            "✗ denied the answer: no",
            id="a denied answer",
        ),
        pytest.param(
            an_entry("PolicyEvaluated", calls=[], verdicts=[{"decision": "deny", "reason": "no"}]),
            "✗ denied a call: no",
            id="a denied call of no reply",
        ),
        pytest.param(
            an_entry("PolicyEvaluated", verdicts=[{"decision": "approval", "reason": "money moves"}]),
            "? the answer needs a person's yes: money moves",
            id="an answer that waits for a yes",
        ),
        pytest.param(
            an_entry(
                "ObservationsCollected", outcomes=[{"tool": "t", "call_id": "c", "outcome": "failed", "error": "E"}]
            ),
            "✗ t: failed, E (0.00 s)",
            id="a failed call without a recorded proposal",
        ),
        pytest.param(an_entry("InterventionReceived", kind="steer", text="look"), "steer: look", id="guidance"),
        pytest.param(an_entry("InterventionReceived", kind="pause"), "pause", id="a signal without text"),
        pytest.param(
            an_entry("InterventionReceived", kind="steer", text="look", by="ada"), "steer by ada: look", id="a sender"
        ),
        pytest.param(
            an_entry("InterventionApplied", kind="pause", by="ada"), "pause by ada takes effect", id="an effect"
        ),
        pytest.param(
            an_entry("InterventionRefused", kind="override_step", by="ada", reason="override_step: no such skill"),
            "✗ override_step by ada has no effect: no such skill",
            id="a refusal",
        ),
        pytest.param(
            an_entry("Terminated", reason="max_tokens", detail="limit of 5"), "max_tokens: limit of 5", id="end"
        ),
        pytest.param(an_entry("FromTheFuture", a=1), "{'a': 1}", id="an event of a later version"),
        pytest.param(an_entry("ContextCompacted", messages_dropped=4), "4 older messages left out", id="compaction"),
        pytest.param(
            an_entry("ContextCompacted", messages_dropped=1, messages_masked=2),
            "1 older message left out of the context and 2 older results left out of the context",
            id="messages dropped, results masked",
        ),
        pytest.param(
            an_entry("ContextCompacted", messages_dropped=0, fields_cut=["holds", "waits"]),
            "cut to fit the next segment: holds, waits",
            id="parts of the state that were cut",
        ),
        pytest.param(
            an_entry("ContextCompacted", strategy="refused_content", messages_replaced=1, error="no"),
            "1 message left out: refused by a content filter of the model's provider",
            id="a refused text",
        ),
        pytest.param(
            an_entry("ContextCompacted", messages_dropped=3, summary="model"), "summed up by the model", id="a summary"
        ),
        pytest.param(
            an_entry("PreHydrationComplete", references_found=3, resolved=2, failed=1, unresolvable=0, references=[]),
            "looked up 3 references: 2 resolved, 1 failed",
            id="hydration",
        ),
        pytest.param(
            an_entry(
                "KnowledgeRecalled",
                terms=["invoice", "format"],
                items=[{"id": "1", "score": 0.81, "tainted": True}, {"id": "2", "score": 0.4}],
                block="kept",
            ),
            "recalled 2 items (best 0.81), 1 of them untrusted, the same as before for: invoice format",
            id="a recall",
        ),
        pytest.param(
            an_entry("KnowledgeRecalled", terms=["invoice"], items=[], block="none"),
            "recalled nothing for: invoice",
            id="a recall that found nothing",
        ),
        pytest.param(
            an_entry("KnowledgeRecalled", terms=["a"], items=[], error="Unreachable: gone"),
            "✗ nothing could be recalled: Unreachable: gone",
            id="a store that is down",
        ),
        pytest.param(
            an_entry("KnowledgeStored", id="f1", kind="fact", change="added", contradicts=["f0"]),
            "stored a fact: added f1, against 1 older fact",
            id="a fact",
        ),
        pytest.param(
            an_entry("KnowledgeStored", place="learnings", error="disk full"),
            "✗ what was learnt could not be stored: disk full",
            id="learnings that could not be stored",
        ),
        pytest.param(
            an_entry("PreHydrationComplete", references=[{"value": "#4", "status": "failed", "why": "gone"}]),
            "✗ #4: gone",
            id="a reference that could not be resolved",
        ),
        pytest.param(
            an_entry("QuestionAsked", question="waits for your approval: read_file a.md → /approve or /deny"),
            "? asks: waits for your approval: read_file a.md → /approve or /deny   answer it: orga answer ID TEXT",
            id="a question that cannot pass for a held call",
        ),
        pytest.param(
            an_entry("ApprovalRequested", kind="escalation", id="call-1.0-0", question="save failed: what now?"),
            "? waits for a person (escalation call-1.0-0): save failed: what now?",
            id="a question to a person",
        ),
        pytest.param(
            an_entry("ApprovalResolved", kind="escalation", id="w", choice="retry", by="ada", reason="mended"),
            "w: retry by ada: mended",
            id="a decision",
        ),
        pytest.param(an_entry("ApprovalResolved", id="w", choice="none"), "w waits no more", id="no decision"),
        pytest.param(
            an_entry("ApprovalRequested", kind="call", id="a1", tool="pay", arguments='{"amount":7}', reason="money"),
            '? a1: pay {"amount":7}: money (anyone)',
            id="a held call",
        ),
        pytest.param(
            an_entry("ApprovalResolved", kind="call", id="a1", tool="pay", approved=True, approver="ada", reason="ok"),
            "pay approved by ada: ok (a1)",
            id="an approval",
        ),
        pytest.param(
            an_entry("ApprovalResolved", kind="call", id="a1", tool="pay", approved=False, approver="", reason="late"),
            "pay denied: late (a1)",
            id="no approval in time",
        ),
        pytest.param(
            an_entry("RecoveryTriggered", tool="save", strategy="fallback", outcome="ok", error="E: x"),
            "↻ save: fallback, ok, after: E: x",
            id="a recovery",
        ),
        pytest.param(
            an_entry("StepLimitReached", tool="save", reason="failed attempts: 2"),
            "✗ save gets nowhere: failed attempts: 2",
            id="a step limit",
        ),
        pytest.param(
            an_entry("CircuitOpened", tool="look", failures=3, recovery_s=60.0),
            "✗ look is left alone for 60 s: failures in a row: 3",
            id="a circuit opens",
        ),
        pytest.param(an_entry("CircuitClosed", tool="look"), "✓ look works again", id="a circuit closes"),
        pytest.param(
            an_entry("BuildChanged", before="k3m7qa", build="p2x9vd"),
            "goes on in build p2x9vd (before: k3m7qa)",
            id="another build takes over",
        ),
        pytest.param(
            an_entry("CritiqueEvaluated", critic="q", target="answer", score=0.9, approved=True, then="accepted"),
            "✓ critic q approves answer 0.90 (accepted)",
            id="a critic approves",
        ),
        pytest.param(
            an_entry(
                "CritiqueEvaluated", critic="q", target="pay", approved=False, then="revise", feedback="too\nmuch"
            ),
            "✗ critic q rejects pay (revise): too much",
            id="a critic rejects",
        ),
        pytest.param(
            an_entry("CritiqueEvaluated", critic="q", target="pay", approved=False, then="ended", error="401"),
            "✗ critic q cannot review pay (ended): 401",
            id="a critic fails",
        ),
        pytest.param(
            an_entry("InterventionReceived", kind="extend_budget", text={"max_iterations": 9, "timeout_s": None}),
            "extend_budget: max_iterations=9",
            id="an update",
        ),
        pytest.param(an_entry("PastMissing", detail="gone by now"), "gone by now", id="a past that is gone"),
        pytest.param(
            an_entry("Started", task="t", forked_from={"workflow_id": "w", "iteration": 3}),
            "fork of w at iteration 3",
            id="a fork",
        ),
        pytest.param(
            an_entry("ReasoningComplete", actions=[{"respond": "x"}], finish="length"),
            "the reply ended early: length",
            id="a cut reply",
        ),
        pytest.param(
            an_entry(
                "ReasoningComplete", actions=[{"tool": "t", "call_id": "c", "arguments": {"x": "\x1b]0;o\x07[red]"}}]
            ),
            "→ t \\u001b]0;o\\u0007[red]",
            id="hostile arguments",
        ),
    ],
)
def test_an_entry_is_shown_in_words(entry: JournalEntry, text: str) -> None:
    assert any(text in line.text for line in entry_lines(RunView().take(entry)))


def test_a_delegation_is_shown_with_the_name_of_the_agent() -> None:
    run = RunView()
    started = entry_lines(run.take(an_entry("DelegationStarted", agent="reader", task="read it", workflow_id="w.1.0")))
    ended = entry_lines(
        run.take(an_entry("DelegationEnded", workflow_id="w.1.0", reason="max_tokens", detail="5 of 4"))
    )
    assert [line.text for line in (*started, *ended)] == ["⇢ reader: read it", "✗ reader: max_tokens: 5 of 4"]


def test_a_later_denial_names_the_denied_call() -> None:
    run = RunView()
    run.take(A_RUN[1])
    again = an_entry("PolicyEvaluated", calls=["c2"], verdicts=[{"decision": "deny", "reason": "not any more"}])
    assert [line.text for line in entry_lines(run.take(again))] == ["✗ denied write_file x: not any more"]


def test_a_session_starts_without_a_task_line() -> None:
    assert entry_lines(RunView().take(an_entry("Started", task="", input={}))) == []
