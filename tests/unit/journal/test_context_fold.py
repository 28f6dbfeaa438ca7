"""The fold used after a cache miss finds the context of each model call in a history, or reports a mismatch."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orga.workflows.decisions.continue_as_new import continue_as_new_state
from orga.workflows.decisions.conversation import reference_and_seen, with_message
from orga.workflows.decisions.observe import with_outcomes, with_reply
from orga.workflows.decisions.recount import ContextFold
from orga.workflows.types.context import ContextRef, DigestMismatch, MessageRef, ReasonRequest, short_digest
from orga.workflows.types.conversation import SummariseRequest, Summary, summary_message
from orga.workflows.types.messages import Message, Ranges, Reply
from orga.workflows.types.record import Record
from orga.workflows.types.setup import Setup
from orga.workflows.types.state import AgentState
from orga.workflows.types.status import Happening, HappeningKind
from orga.workflows.types.text import clip
from orga.workflows.types.tool_calls.recovery import Outcome
from orga.workflows.types.tool_calls.tools import ToolOutput
from tests.support.values.core import a_call, a_setup, a_spec, a_state, at, request_for, user
from tests.support.values.strategies import LAW, texts

SETUP = a_setup(a_spec("read", max_result_bytes=200), instructions="be short")


def happened(kind: HappeningKind, name: str, value: Any, key: str = "") -> Happening:
    plain = value.model_dump(mode="json", exclude_unset=True) if isinstance(value, Record) else value
    return Happening(kind=kind, at=at(0), event_id=1, name=name, key=key, value=plain)


class Run:
    """Writes a history as the workflow does and records the context of each model call."""

    def __init__(self, state: AgentState | None = None) -> None:
        self.state = state or a_state(setup=SETUP)
        self.history = [
            happened("started", "", [{"task": "count the files"}]),
            happened("finished", "prepare", SETUP),
        ]
        self.contexts: list[tuple[Message, ...]] = []

    def model_call(
        self,
        reply: Reply,
        results: list[str] | None = None,
        drop: Ranges = (),
        mask: Ranges = (),
        summary: Summary | None = None,
    ) -> None:
        """Make one iteration. The result `!` is a failure."""
        context, seen = reference_and_seen(self.state.conversation, drop, mask, summary)
        self.contexts.append(seen.messages)
        request = request_for(context, SETUP, self.state.iteration + 1)
        self.history += [happened("scheduled", "reason", request), happened("finished", "reason", reply)]
        self.state = with_reply(self.state, reply, seen)
        outcomes: list[Outcome] = []
        for index, (call, content) in enumerate(zip(reply.calls, results or (), strict=True)):
            key = f"{self.state.iteration}.{index}"
            if content == "!":
                self.history.append(Happening(kind="failed", at=at(0), event_id=1, name=call.name, key=key, text="no"))
                outcomes.append(Outcome(call=call, status="failed", text="[Error] no"))
            else:
                self.history.append(happened("finished", call.name, ToolOutput(content=content), key))
                outcomes.append(Outcome(call=call, status="ok", text=clip(content, 200), result=key))
        self.state = with_outcomes(self.state, reply, tuple(outcomes), [])

    def summary(self, drop: Ranges, text: str) -> Summary:
        """Have a model summarise messages."""
        iteration = self.state.iteration + 1
        context = ContextRef(head=short_digest(self.state.conversation.digest))
        request = SummariseRequest(iteration=iteration, context=context, ranges=drop)
        reply = Reply.of(text)
        key = f"{iteration}.summary"
        self.history += [
            happened("scheduled", "summarise", request, key),
            happened("finished", "summarise", reply, key),
        ]
        return Summary(drop=drop, text=text, call=key)

    def refused(self, drop: Ranges = (), summary: Summary | None = None) -> None:
        """Make a model call that fails. The next call belongs to the same iteration."""
        context, seen = reference_and_seen(self.state.conversation, drop, (), summary)
        self.contexts.append(seen.messages)
        request = request_for(context, SETUP, self.state.iteration + 1)
        failed = Happening(kind="failed", at=at(0), event_id=1, name="reason", key=str(request.iteration), text="no")
        self.history += [happened("scheduled", "reason", request), failed]

    def roll_over(self) -> None:
        """Continue as new. The fold of the next segment reads only its own history."""
        self.state = continue_as_new_state(self.state, "run 1")
        value = [None, self.state.model_dump(mode="json", exclude_unset=True)]
        self.history = [happened("started", "", value)]


def contexts_of(history: list[Happening]) -> list[tuple[Message, ...]]:
    fold = ContextFold()
    found: list[tuple[Message, ...]] = []
    for happening in history:
        fold.feed(happening)
        if happening.kind == "scheduled" and happening.name == "reason":
            found.append(fold.messages)
    return found


turns = st.lists(st.tuples(texts, st.lists(texts | st.just("!") | st.just("é" * 300), max_size=3)), max_size=5)


@LAW
@given(turns, st.integers(0, 5))
def test_the_fold_finds_the_context_of_every_model_call(
    made: list[tuple[str, list[str]]], roll_over_after: int
) -> None:
    run = Run()
    for number, (text, results) in enumerate(made):
        if number == roll_over_after:
            run.roll_over()
            run.contexts = []
        calls = tuple(a_call("read", f"c{number}_{index}") for index in range(len(results)))
        run.model_call(Reply.of(text, calls=calls), results)
    assert contexts_of(run.history) == run.contexts


def test_dropped_messages_stay_dropped() -> None:
    run = Run()
    for number in range(3):
        run.model_call(Reply.of(calls=(a_call("read", f"c{number}"),)), ["ok"], ((1, 3),) if number == 2 else ())
    run.model_call(Reply.of("done"), [])
    found = contexts_of(run.history)
    assert found == run.contexts
    assert [len(context) for context in found] == [1, 3, 3, 5]


def after_three_calls() -> Run:
    run = Run()
    for number in range(3):
        run.model_call(Reply.of(calls=(a_call("read", f"c{number}"),)), ["x" * 100])
    return run


def test_masked_results_stay_masked() -> None:
    run = after_three_calls()
    run.model_call(Reply.of("done"), [], mask=((2, 3), (4, 5)))
    run.model_call(Reply.of("done"), [])
    found = contexts_of(run.history)
    assert found == run.contexts
    assert [len(message.text) for message in found[-1] if message.role == "tool"] == [36, 36, 100]


def test_a_summary_of_a_model_is_found_in_its_own_result() -> None:
    run = after_three_calls()
    run.model_call(Reply.of("done"), [], ((1, 5),), summary=run.summary(((1, 5),), "two pages of x"))
    run.model_call(Reply.of("done"), [])
    found = contexts_of(run.history)
    assert found == run.contexts
    assert found[-1][1] == summary_message("two pages of x")


def test_a_summary_replaces_the_one_before_it() -> None:
    run = after_three_calls()
    run.model_call(Reply.of(calls=(a_call("read", "c3"),)), ["y"], ((1, 5),), summary=run.summary(((1, 5),), "first"))
    run.model_call(Reply.of("done"), [], ((1, 4),), summary=run.summary(((1, 4),), "second"))
    found = contexts_of(run.history)
    assert found == run.contexts
    assert [message.text for message in found[-1] if message.summary] == [summary_message("second").text]


def test_a_repeated_call_with_less_context_starts_from_the_same_base() -> None:
    """This happens after a context overflow: each attempt is compacted further and has its own summary."""
    run = after_three_calls()
    run.refused(((1, 3),), run.summary(((1, 3),), "one page"))
    run.model_call(Reply.of("done"), [], ((1, 5),), summary=run.summary(((1, 5),), "two pages"))
    run.model_call(Reply.of("done"), [])
    assert contexts_of(run.history) == run.contexts


def test_a_summary_starts_from_the_context_of_the_call_before() -> None:
    """It does not start from the context that the provider refused, which already lacks a part."""
    run = after_three_calls()
    before = run.state.conversation.messages[:5]
    run.refused(((1, 3),))
    run.summary(((1, 5),), "two pages")
    fold = ContextFold()
    for happening in run.history[:-1]:
        fold.feed(happening)
    assert (fold.iteration, fold.messages) == (4, before)


def test_a_summary_after_continue_as_new_covers_the_carried_messages() -> None:
    run = after_three_calls()
    run.roll_over()
    run.contexts = []
    run.model_call(Reply.of("done"), [], ((1, 5),), summary=run.summary(((1, 5),), "two pages"))
    assert contexts_of(run.history) == run.contexts


@pytest.mark.parametrize("tampered", ["forged", None], ids=["was changed", "is missing"])
def test_a_changed_or_missing_summary_is_a_mismatch(tampered: str | None) -> None:
    run = after_three_calls()
    run.model_call(Reply.of("done"), [], ((1, 5),), summary=run.summary(((1, 5),), "two pages"))
    at_summary = next(i for i, h in enumerate(run.history) if (h.kind, h.name) == ("finished", "summarise"))
    other = [happened("finished", "summarise", Reply.of(tampered), "4.summary")] if tampered else []
    with pytest.raises(DigestMismatch):
        contexts_of([*run.history[:at_summary], *other, *run.history[at_summary + 1 :]])


def test_guidance_is_found_in_the_request() -> None:
    run = Run()
    run.state = run.state.model_copy(update={"conversation": with_message(run.state.conversation, user("left"))})
    run.model_call(Reply.of("done"), [])
    assert contexts_of(run.history)[0][-1] == user("left")


def test_the_fold_ends_at_the_latest_model_call() -> None:
    run = Run()
    run.model_call(Reply.of(calls=(a_call("read"),)), ["ok"])
    fold = ContextFold()
    for happening in run.history:
        fold.feed(happening)
    assert (fold.iteration, fold.setup) == (1, SETUP)


def history_with_results(*values: Any) -> list[Happening]:
    """Return a history of two model calls in which the first tool call has this result."""
    run = Run()
    run.model_call(Reply.of(calls=(a_call("read", "c1"),)), ["ok"])
    run.model_call(Reply.of("done"), [])
    at_result = next(index for index, h in enumerate(run.history) if h.key == "1.0")
    replaced = [happened("finished", "read", value, "1.0") for value in values]
    return [*run.history[:at_result], *replaced, *run.history[at_result + 1 :]]


def test_a_worker_in_another_language_may_return_a_plain_string() -> None:
    assert contexts_of(history_with_results("ok"))[1][-1].text == "ok"


OTHER_SETUP = happened("finished", "prepare", Setup(agent="a", model="other"))
COMPLETE = history_with_results("ok")


def without_events(kind: HappeningKind, name: str, nth: int = 0) -> list[Happening]:
    """Return the complete history without the nth event of a kind."""
    found = [index for index, h in enumerate(COMPLETE) if (h.kind, h.name) == (kind, name)]
    return [*COMPLETE[: found[nth]], *COMPLETE[found[nth] + 1 :]]


@pytest.mark.parametrize(
    "history",
    [
        pytest.param(history_with_results(ToolOutput(content="forged")), id="a result was changed"),
        pytest.param(history_with_results(), id="a result is missing"),
        pytest.param(without_events("finished", "prepare"), id="the setup is missing"),
        pytest.param([COMPLETE[0], OTHER_SETUP, *COMPLETE[2:]], id="the setup is another"),
        pytest.param(without_events("scheduled", "reason"), id="a model call is missing"),
        pytest.param(without_events("finished", "reason"), id="a reply is missing"),
    ],
)
def test_a_changed_or_incomplete_history_is_a_mismatch(history: list[Happening]) -> None:
    with pytest.raises(DigestMismatch):
        contexts_of(history)


@pytest.mark.parametrize(
    "news",
    [
        pytest.param(MessageRef(), id="empty news"),
        pytest.param(MessageRef(reply=7), id="a reply that does not exist"),
        pytest.param(MessageRef(result="7.0"), id="a result of an iteration that does not exist"),
        pytest.param(MessageRef(result="1.9"), id="a result of a call that does not exist"),
        pytest.param(MessageRef(result="x"), id="a result without a number"),
        pytest.param(MessageRef(summary="1.summary"), id="a summary that does not exist"),
    ],
)
def test_news_missing_from_the_history_are_a_mismatch(news: MessageRef) -> None:
    fold = ContextFold()
    run = Run()
    run.model_call(Reply.of(calls=(a_call("read", "c1"),)), ["ok"])
    for happening in run.history:
        fold.feed(happening)
    request = ReasonRequest(
        iteration=2,
        setup=request_for(ContextRef(), SETUP).setup,
        context=ContextRef(news=(news,), head="0" * 32),
    )
    with pytest.raises(DigestMismatch, match="does not hold"):
        fold.feed(happened("scheduled", "reason", request))
