"""The search terms of a run's recall, and the block of results in its conversation."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orga.workflows.decisions.continue_as_new import continue_as_new_state
from orga.workflows.decisions.conversation import (
    estimated_tokens,
    message_json_bytes,
    message_size,
    reference_and_seen,
    with_message,
)
from orga.workflows.decisions.goals.pursue import person_answer_text
from orga.workflows.decisions.hydration import Reference, Resolved, context_block
from orga.workflows.decisions.observe import LOST_GUIDANCE_TEXT, with_reply
from orga.workflows.decisions.recall import (
    MAX_CALL_PATHS,
    MAX_LEARNINGS_BYTES,
    MAX_RECALLED_TAINT,
    MAX_RECENT_CALLS,
    MAX_TERMS,
    MAX_TERMS_PER_MESSAGE,
    call_behalf,
    due_recall,
    is_no_answer,
    knowledge_reader,
    learning_call,
    learning_key,
    learnings_text,
    recent_call_paths,
    search_terms,
    with_recalled_context,
    with_recalled_taint,
)
from orga.workflows.decisions.recount import ContextFold
from orga.workflows.decisions.refused_content import LEFT_OUT_TEXT
from orga.workflows.decisions.tool_calls.delegation import framed_text
from orga.workflows.types.context import MessageRef
from orga.workflows.types.conversation import knowledge_message, summary_message
from orga.workflows.types.input import AgentInput, LoopConfig, RunKnowledge
from orga.workflows.types.knowledge import Reader
from orga.workflows.types.messages import Message, Reply, ToolCall
from orga.workflows.types.parts import OwnText
from orga.workflows.types.recall import RecalledContext, recall_id
from orga.workflows.types.record import Record
from orga.workflows.types.state import AgentState
from orga.workflows.types.status import Happening, HappeningKind
from orga.workflows.types.tool_calls.recovery import ERROR_MARKER, Outcome, OutcomeStatus
from tests.support.values.core import a_setup, a_spec, a_state, at, request_for, user
from tests.support.values.strategies import LAW

ON = LoopConfig(knowledge=RunKnowledge())


def assistant(text: str) -> Message:
    return Message.of("assistant", text)


def said_by_tool(text: str) -> Message:
    return Message.of_result(text, "c1", "read")


def words(start: int, count: int) -> str:
    return " ".join(f"word{number}" for number in range(start, start + count))


HYDRATED = context_block(
    [
        Resolved(
            reference=Reference(ref_type="file", value="harbour.md"),
            status="resolved",
            tool="read_file",
            content="warehouse closed",
        ),
        Resolved(
            reference=Reference(ref_type="file", value="north.md"),
            status="resolved",
            tool="read_file",
            content="lighthouse",
        ),
        Resolved(reference=Reference(ref_type="url", value="https://x.test"), status="failed", content="unreachable"),
    ]
)
RECALLED = (
    "- fact, relevance=1.00, confidence=0.80, source=agent clerk, run=agent-1, iteration=2\n  warehouse lighthouse"
)


def outcome(status: OutcomeStatus, text: str) -> Outcome:
    return Outcome(call=ToolCall(call_id="c", name="look"), status=status, text=text)


TERMS: dict[str, tuple[tuple[Message, ...], list[str]]] = {
    "the newest first": ((user("older talk"), said_by_tool("newer result")), ["newer", "result", "older", "talk"]),
    "text of the model is ignored": ((user("harbour"), assistant("warehouse")), ["harbour"]),
    "words of three bytes are ignored": ((user("the sea is near"),), ["near"]),
    "the length counts bytes, not letters": ((user("öde Tür"),), ["öde", "Tür"]),
    "stop words are ignored": ((user("Which of these would EDIFACT need"),), ["EDIFACT"]),
    "punctuation around a word is removed": ((user('"invoices", (ledger): **bold**'),), ["invoices", "ledger", "bold"]),
    "each once": ((user("Ledger ledger LEDGER book"),), ["Ledger", "book"]),
    "ten of one message": ((user(words(0, 30)),), words(0, 10).split()),
    "fifteen are enough": (
        (user("oldest"), user(words(20, 10)), user(words(0, 10))),
        words(0, 10).split() + words(20, 10).split(),
    ),
    "only the last five messages count": ((user("forgotten"), *[user("echo")] * 5), ["echo"]),
    "no letters": ((user("---- ==== 1234"),), ["1234"]),
    "a very long word is ignored": ((user("x" * 5_000 + " ledger"),), ["ledger"]),
    "a deep path is one term": (
        (user("Fix `services/billing/src/main/java/com/acme/Invoice.java:12`!"),),
        ["services/billing/src/main/java/com/acme/Invoice.java:12"],
    ),
    "a URL is no term": ((user(f"https://example.com/{'a/' * 30} ledger"),), ["ledger"]),
    "a very long path is no term": ((user(f"{'x' * 50}/{'y' * 50} {'a/' * 200} ledger"),), ["ledger"]),
    "the block itself is ignored": (
        (user("harbour"), Message.of("user", "warehouse", pinned=True, knowledge=True)),
        ["harbour"],
    ),
    "prompts of the loop are ignored": (
        (user("harbour"), *[user("[goal_plan] Reply with JSON"), user("[Reply not usable] steps missing")] * 9),
        ["harbour"],
    ),
    "placeholders for lost texts are ignored": (
        (
            user("harbour"),
            user(LEFT_OUT_TEXT),
            user(LOST_GUIDANCE_TEXT.format(3)),
            Message.of_result(LEFT_OUT_TEXT, ours=OwnText(len(LEFT_OUT_TEXT))),
        ),
        ["harbour"],
    ),
    "contents of resolved references count": (
        (user("Fix harbour.md"), Message.of("user", HYDRATED, pinned=True)),
        ["warehouse", "closed", "lighthouse", "harbour.md"],
    ),
    "results of knowledge tools are ignored": (
        (user("harbour"), Message.of_result(RECALLED, "c", "recall_knowledge"), knowledge_message(f"x\n{RECALLED}")),
        ["harbour"],
    ),
    "a summary is ignored": ((user("harbour"), summary_message("warehouse")), ["harbour"]),
    "guidance of the operator counts": (
        (user("[Guidance from the operator] ask the warehouse"), user("[Context from the operator]\nharbour closed")),
        ["harbour", "closed", "warehouse"],
    ),
    "the answer to a question of a goal counts": (
        (user(person_answer_text("Which lighthouse?", "the northern harbour")),),
        ["northern", "harbour"],
    ),
    "texts of the loop about a call are ignored": (
        (
            user("harbour"),
            outcome("not_run", "[Not run] a person has to approve this: payments").message(),
            outcome("denied", "[Policy denied] forbidden by policy payments").message(),
            outcome("failed", f"{ERROR_MARKER}lighthouse unreachable")
            .with_own_text(after="\n[Recovery] Correct the call")
            .message(),
            user("[Not run] calls left out"),
            user("[Policy denied] forbidden by policy answers"),
            user("[Answer not accepted] critic disagrees"),
        ),
        ["lighthouse", "unreachable", "harbour"],
    ),
    "the answer of a delegate counts": (
        (
            outcome("ok", "")
            .with_own_text(before=framed_text("answer of agent 'helper'", "warehouse closed", 900))
            .message(),
        ),
        ["warehouse", "closed"],
    ),
    "the result of a requeued call counts": (
        (user("[Requeued call] send_letter (3.0), sent again by an operator:\nwarehouse"),),
        ["warehouse"],
    ),
    "texts of the loop do not fill the last five messages": (
        (user("harbour"), *[outcome("not_run", "[Not run] no more").message()] * 9),
        ["harbour"],
    ),
    "no messages": ((), []),
}


@pytest.mark.parametrize(("messages", "expected"), TERMS.values(), ids=TERMS)
def test_search_terms_come_from_recent_messages(messages: tuple[Message, ...], expected: list[str]) -> None:
    assert list(search_terms(messages)) == expected


@LAW
@given(st.lists(st.text(max_size=300), max_size=8))
def test_search_terms_are_few_and_short_for_any_text(texts: list[str]) -> None:
    terms = search_terms(tuple(map(user, texts)))
    assert len(terms) <= MAX_TERMS + MAX_TERMS_PER_MESSAGE - 1
    assert all(term.isprintable() and len(term.encode()) <= 160 for term in terms)
    assert all(len(part) <= 40 for term in terms for part in term.split("/"))


def calling(*arguments: dict[str, Any]) -> Message:
    return Message.of("assistant", calls=[ToolCall(call_id="c", name="any", arguments=each) for each in arguments])


CALLED: dict[str, tuple[tuple[Message, ...], list[str]]] = {
    "the newest first, each once": (
        (calling({"path": "src/a.py"}, {"path": "src/b.py"}), calling({"path": "src/a.py"})),
        ["src/a.py", "src/b.py"],
    ),
    "any name of the argument": ((calling({"text": "of a file", "within": "src/api"}),), ["src/api"]),
    "a file of the root": ((calling({"path": "README.md", "name": "Makefile"}),), ["README.md"]),
    "in a command": ((calling({"command": ["pytest", "-x", "tests/a_test.py"]}),), ["tests/a_test.py"]),
    "an absolute path is kept": ((calling({"path": "/work/shop/src/a.py"}),), ["/work/shop/src/a.py"]),
    "values that are not paths": (
        (calling({"path": ".", "url": "https://example.com/a.py", "text": "see src/a.py", "limit": 3, "to": None}),),
        [],
    ),
    "values that are too long": ((calling({"path": "a/" * 500, "content": "x" * 100_000 + ".py"}),), []),
    "paths in messages are ignored": ((user("src/a.py"), said_by_tool("src/b.py")), []),
    "a limited number": (
        (calling(*({"path": f"src/{n}.py"} for n in range(9))),),
        [f"src/{8 - n}.py" for n in range(MAX_CALL_PATHS)],
    ),
    "old calls are ignored": ((calling({"path": "src/a.py"}), *[user("echo")] * MAX_RECENT_CALLS), []),
}


@pytest.mark.parametrize(("messages", "expected"), CALLED.values(), ids=CALLED)
def test_paths_come_from_recent_calls(messages: tuple[Message, ...], expected: list[str]) -> None:
    assert list(recent_call_paths(messages)) == expected


def a_knowing(*messages: Message, config: LoopConfig = ON, **fields: Any) -> AgentState:
    setup = a_setup(a_spec("store_knowledge", effect="idempotent")).model_copy(update={"config": config})
    state = a_state(setup=setup, **fields)
    for message in messages:
        state = state.with_dialogue(conversation=with_message(state.conversation, message))
    return state


def test_the_same_terms_are_not_searched_again() -> None:
    state = a_knowing(user("warehouse at the harbour"))
    request = due_recall(state)
    assert request is not None
    found = RecalledContext(terms=request.terms)
    known = with_recalled_context(state, found, recall_id(1))
    assert due_recall(known) is None
    again = known.with_dialogue(conversation=with_message(known.conversation, said_by_tool("harbour WAREHOUSE")))
    assert due_recall(again) is None, "another order finds the same"
    other = known.with_dialogue(conversation=with_message(known.conversation, said_by_tool("a crane")))
    assert due_recall(other) is not None


def test_a_new_path_is_looked_up_even_if_the_terms_are_the_same() -> None:
    state = a_knowing(user("warehouse at the harbour"), calling({"path": "src/api/users.py"}))
    request = due_recall(state)
    assert request is not None
    assert (request.terms[:2], request.paths) == (("warehouse", "harbour"), ("src/api/users.py",))
    known = with_recalled_context(state, RecalledContext(terms=request.search_terms), recall_id(1))
    assert due_recall(known) is None
    moved = known.with_dialogue(conversation=with_message(known.conversation, calling({"path": "web/app.ts"})))
    again = due_recall(moved)
    assert again is not None
    assert again.search_terms == ("web/app.ts", "src/api/users.py", *request.terms)


def recalled(state: AgentState, **result: Any) -> AgentState:
    request = due_recall(state)
    assert request is not None
    found = (
        request.failed_recall("Unreachable") if not result else RecalledContext(terms=request.search_terms, **result)
    )
    return with_recalled_context(state, found, recall_id(1))


def talked_on(state: AgentState, text: str) -> AgentState:
    return state.with_dialogue(conversation=with_message(state.conversation, said_by_tool(text)))


def test_a_failed_recall_keeps_the_block_and_is_repeated_once() -> None:
    """Otherwise a short outage of the store would leave the run without knowledge until its topic changes."""
    knows = recalled(a_knowing(user("warehouse")), text="the block", content="c", items=({"id": "1"},))
    failed = recalled(talked_on(knows, "harbour"))
    assert failed.conversation.messages[-2].text == "the block"
    assert (failed.recollection.content, failed.recollection.items) == ("c", 1)
    assert failed.recollection.error == "Unreachable"
    again = recalled(failed, text="", content="")
    assert not any(message.knowledge for message in again.conversation.messages), "an empty result removes the block"
    assert again.recollection.error == ""


def test_a_store_that_stays_down_is_asked_again_only_with_new_terms() -> None:
    down = recalled(recalled(a_knowing(user("warehouse"))))
    assert due_recall(down) is None
    assert due_recall(recalled(talked_on(down, "harbour"))) is None, "the store is known to be down"


@pytest.mark.parametrize("knowledge", [None, RunKnowledge(enabled=False)])
def test_a_run_without_knowledge_recalls_and_learns_nothing(knowledge: RunKnowledge | None) -> None:
    state = a_knowing(user("warehouse at the harbour"), config=LoopConfig(knowledge=knowledge))
    assert due_recall(state) is None
    assert learning_call(a_knowing(config=LoopConfig(knowledge=knowledge)), "green") is None


USERS: dict[str, tuple[dict[str, Any], str]] = {
    "named": ({"user": "ada"}, "ada"),
    "none": ({}, ""),
    "null": ({"user": None}, ""),
    "a number, as its digits": ({"user": 42}, "42"),
    "anything else, as its JSON": ({"user": {"name": "ada", "id": 7}}, '{"id":7,"name":"ada"}'),
}


@pytest.mark.parametrize(("trusted", "name"), USERS.values(), ids=USERS)
def test_the_reader_is_the_trusted_user(trusted: dict[str, Any], name: str) -> None:
    given = AgentInput(task="t", trusted_context=trusted, tenant="acme")
    state = a_knowing(taint=("fetch_url",)).with_task(input=given)
    assert knowledge_reader(state) == Reader(tenant="acme", user=name, agent=state.setup.agent if state.setup else "")
    assert call_behalf(state).taint == ("fetch_url",)


@pytest.mark.parametrize(
    "users", [("a" * 900, "a" * 901), (42, 43), ({"id": 1}, {"id": 2}), (["a" * 300, 1], ["a" * 300, 2])]
)
def test_two_users_never_share_a_name(users: tuple[object, object]) -> None:
    """No user gets the empty name either, because its facts belong to all."""
    given = [AgentInput(task="t", trusted_context={"user": user}) for user in users]
    names = [knowledge_reader(a_knowing().with_task(input=each)).user for each in given]
    assert len({*names, ""}) == 3
    assert max(map(len, names)) <= 200


def test_recalled_taint_is_bounded() -> None:
    state = a_knowing(taint=("store_knowledge",))
    many = with_recalled_taint(state, tuple(f"tool {n}" + "x" * 300 for n in range(90)))
    assert many.taint[0] == "store_knowledge"
    assert len(many.taint) == MAX_RECALLED_TAINT + 1
    assert max(map(len, many.taint)) == 100
    assert with_recalled_taint(many, many.taint) is many


LEARNT: dict[str, tuple[tuple[Message, ...], str]] = {
    "one text as it is": ((assistant(" The door is green. "),), "The door is green."),
    "several, the oldest first": ((assistant("one"), user("and?"), assistant("two")), "one\n\n---\n\ntwo"),
    "a blank text is ignored": ((assistant("  \n"), user("well?")), ""),
    "a single text before an answer": ((assistant("I look."),), "I look."),
    "nothing if the last text is no answer": ((assistant("I look."), assistant("I could not find it.")), ""),
    "texts of people and tools are ignored": ((user("one"), said_by_tool("two")), ""),
}


@pytest.mark.parametrize(("messages", "expected"), LEARNT.values(), ids=LEARNT)
def test_the_learnings_of_a_run_are_its_own_texts(messages: tuple[Message, ...], expected: str) -> None:
    assert learnings_text(a_knowing(*messages)) == expected


NO_ANSWERS = (
    "I could not find that out.",
    "It's not possible to answer this question from the documents.",
    "I have no way to check this.",
    "The information you asked for is missing from the sources.",
    "I couldn't find any information about the deployment day.",
    "I’m sorry, but I couldn’t find that in the documents I have access to.",
    "I was unable to determine when the api is deployed.",
    "I don't know.",
    "I do not have enough information to answer this question.",
    "Unfortunately, I cannot answer that.",
    "The documents do not mention when the api is deployed.",
    "I searched the folder. There is no information about the deployment in the files.",
    "I looked at README.md and docs/api.md, but neither mentions a day.",
    "Nothing was found.",
    "I look for port, deploy. I look for deploy.\n\nI found no passage that contains all of: port, deploy.\n\n"
    "Nearest to it is `a.md:1`.\n\nI called read_file without success: [Policy denied] not here\n\n"
    "offline:extractive: no language model; passages quoted as found",
    "It is unclear. Could you tell me which service you mean?",
    "No answer",
    "unknown",
    "**I wasn't able to find this.** Please provide more details.",
    "The answer could not be determined from the context.",
    "I have no information about that; you may want to ask the team.",
    "We still haven't found it.",
    "I need more information to answer that.",
    "There is nothing about it in the files.",
    "I have no idea.",
    "I checked three pages and found nothing relevant.",
    "I'm afraid I can't help with that.",
    "No relevant documents were found in the knowledge base.",
    "The search returned no results.",
    "It doesn't say.",
    "The provided context does not contain the answer.",
    "There isn't any mention of that in the repository.",
    "I have not been able to find out when it is.",
    "Not specified.",
    "Sorry, no luck. I could not tell.",
    "The information you asked for isn't available in the files.",
    "Das konnte ich nicht herausfinden.",
    "Je n'ai pas trouvé cette information.",
    "No pude encontrar esa información.",
)
ANSWERS = (
    "The door is green.",
    "On Fridays.",
    "The api is deployed on Fridays, I found it in docs/api.md.",
    "I could not find the exact hour, but the api is deployed on Fridays.",
    "I could not find an owner. The api is deployed on Fridays.",
    "It is impossible to deploy on Fridays.",
    "The api key is missing from the config; add it under [auth].",
    "The service does not contain user data.",
    "The API does not provide pagination.",
    "Orders are not available on Sundays.",
    "The build fails because module 'x' is missing from the image.",
    "No, restarts lose no data.",
    "Use `retry = 3`; there is a known bug in version 2.",
    "It is EDIFACT, see north.",
    "The file does not contain secrets.",
    "No errors were found.",
    "There are no retries: a failed job is dropped.",
    "If the disk is full, the worker stops.",
    "Nobody knows the old password; it was reset in May.",
    "42",
    '{"port": 8441}',
)


@pytest.mark.parametrize("text", NO_ANSWERS)
def test_a_reply_without_an_answer_is_not_learnt(text: str) -> None:
    assert is_no_answer(text)
    assert learnings_text(a_knowing(user("when?"), assistant(text))) == ""
    assert learning_call(a_knowing(), text) is None


@pytest.mark.parametrize("text", ANSWERS)
def test_an_answer_is_learnt(text: str) -> None:
    assert not is_no_answer(text)
    assert learnings_text(a_knowing(assistant("I could not find it."), assistant(text))) == text


@LAW
@given(st.text(max_size=3_000))
def test_any_text_can_be_classified(text: str) -> None:
    assert is_no_answer(text) in {True, False}


def test_the_learnings_of_a_turn_start_at_its_message() -> None:
    state = a_knowing(user("first"), assistant("one"), user("second"), assistant("two"))
    assert learnings_text(state, since=3) == "two"
    assert (learning_key(state), learning_key(state, 2)) == (f"learnings/{state.origin}", f"learnings/{state.origin}/2")


def learnt_text(state: AgentState, text: str) -> str:
    call = learning_call(state, text)
    assert call is not None
    return str(call.arguments["object"])


@pytest.mark.parametrize("character", ["a", "é", "漢", "😀"])
def test_learnings_are_cut_between_characters(character: str) -> None:
    text = learnt_text(a_knowing(), character * 3_000)
    assert text.endswith(f"{character}...")
    assert MAX_LEARNINGS_BYTES - 4 <= len(text.encode()) <= MAX_LEARNINGS_BYTES


def test_learning_needs_permission_to_store() -> None:
    assert learnt_text(a_knowing(), "green") == "green"
    assert learning_call(a_knowing(), " \n") is None
    assert learning_call(a_knowing().with_task(setup=a_setup().model_copy(update={"config": ON})), "green") is None


def happened(kind: HappeningKind, name: str, value: Any, key: str = "") -> Happening:
    plain = value.model_dump(mode="json", exclude_unset=True) if isinstance(value, Record) else value
    return Happening(kind=kind, at=at(0), event_id=1, name=name, key=key, value=plain)


FINDS = st.sampled_from(["", "same", "the warehouse", "x" * 900, "an invoice"])


@LAW
@given(st.lists(st.tuples(st.lists(FINDS, max_size=2), st.booleans()), min_size=1, max_size=9))
def test_every_context_is_rebuilt_with_its_block(steps: list[tuple[list[str], bool]]) -> None:
    """Some recalls are repeated, some runs continue as new, and there is at most one block."""
    state, setup = a_knowing(user("go")), a_knowing().setup
    assert setup is not None
    fold = ContextFold()
    fold.feed(happened("started", "", [{"task": "go"}]))
    fold.feed(happened("finished", "prepare", setup))
    for finds, rolls_over in steps:
        number = state.iteration + 1
        for text in finds or [""]:
            has_block = any(message.knowledge for message in state.conversation.messages)
            found = RecalledContext(
                terms=("go",), text="" if text == "same" else text, same=text == "same" and has_block
            )
            fold.feed(happened("finished", "recall_context", found, recall_id(number)))
            state = with_recalled_context(state, found, recall_id(number))
            context, seen = reference_and_seen(state.conversation)
            fold.feed(happened("scheduled", "reason", request_for(context, setup, number)))
            assert fold.messages == seen.messages
            assert sum(message.knowledge for message in seen.messages) <= 1
        _check_sizes(state)
        _, seen = reference_and_seen(state.conversation)
        reply = Reply.of(f"step {number}")
        fold.feed(happened("finished", "reason", reply))
        state = with_reply(state, reply, seen)
        state = state.with_dialogue(
            conversation=with_message(state.conversation, reply.message(), MessageRef(reply=number))
        )
        if rolls_over:
            state = continue_as_new_state(state, "run")
            fold = ContextFold()
            fold.feed(happened("started", "", [None, state.model_dump(mode="json", exclude_unset=True)]))


def _check_sizes(state: AgentState) -> None:
    messages, conversation = state.conversation.messages, state.conversation
    assert conversation.size == sum(map(message_size, messages))
    assert conversation.tokens == sum(estimated_tokens(message_size(message)) for message in messages)
    assert conversation.unseen == sum(map(message_json_bytes, messages[conversation.sent :]))
