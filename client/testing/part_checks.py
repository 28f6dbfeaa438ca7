"""Checks for the parts that an application gives its worker as objects (docs/own-parts.md).

Each check calls the object as a run would, and raises AssertionError with what is wrong.
"""

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from orga.activities.gate.gate import recordable_verdicts
from orga.activities.knowledge.ports import KnowledgeError, KnowledgeStore
from orga.activities.media import MAX_DOCUMENT_BYTES, digest_of
from orga.activities.ports import (
    BlobStore,
    CodeCritic,
    ModelProvider,
    ModelRequest,
    PolicyEngine,
    ReviewedWork,
    Summarizer,
)
from orga.workflows.types.critics import Critic
from orga.workflows.types.knowledge import Erasure, KnowledgeItem, Reader, Recall
from orga.workflows.types.messages import Message, Reply
from orga.workflows.types.parts import ToolCall
from orga.workflows.types.tool_calls.gate import GateRequest, Verdict
from orga.workflows.types.tool_calls.tools import ToolSpec

CANCEL_S = 1.0
"""Seconds in which a cancelled call must end."""

_LOOK = ToolSpec(
    name="look_up",
    description="Look up a word.",
    parameters={"type": "object", "properties": {"word": {"type": "string"}}, "required": ["word"]},
    effect="read_only",
)


async def check_model(model: ModelProvider, name: str = "any") -> None:
    """Check a model: it replies, streams the text of its reply or nothing, calls only offered tools, can be cancelled.

    Args:
        model: The object.
        name: The name after `code:`.

    Raises:
        AssertionError: What is wrong.
    """
    asked = Message.of("user", "Look up the word lamp, then say what it means.")
    call = ToolCall(call_id="c1", name=_LOOK.name, arguments={"word": "lamp"})
    found = Message.of_result("lamp: a source of light", "c1", _LOOK.name)
    conversations = ((asked,), (asked, Reply.of("", [call]).message(), found))
    for messages in conversations:
        for tools in ((), (_LOOK,)):
            pieces: list[str] = []
            request = ModelRequest(model=name, system=("Be brief.",), messages=messages, tools=tools)
            reply = await model.complete(request, pieces.append)
            _require_kind(reply, Reply, "complete")
            streamed = "".join(pieces)
            _require(not streamed or streamed == reply.text, "complete: on_text got another text than the reply has")
            unknown = {each.name for each in reply.calls} - {tool.name for tool in tools}
            _require(not unknown, f"complete: called {', '.join(sorted(unknown))}, which was not offered")
    running = asyncio.ensure_future(model.complete(ModelRequest(model=name, messages=(asked,)), lambda _: None))
    await asyncio.sleep(0)
    running.cancel()
    done, _ = await asyncio.wait([running], timeout=CANCEL_S)
    _require(bool(done), f"complete: still ran {CANCEL_S:g} s after it was cancelled")


async def check_policy(engine: PolicyEngine, proposals: Sequence[GateRequest] = ()) -> None:
    """Check a policy: it judges a call and an answer, always in the same way, and does not deny an approved call.

    Args:
        engine: The object.
        proposals: More proposals to judge, such as a plan.

    Raises:
        AssertionError: What is wrong.
    """
    _require_kind(engine.is_embedded, bool, "is_embedded")
    call = ToolCall(call_id="c1", name=_LOOK.name, arguments={"word": "lamp"})
    common = GateRequest(agent="default", iteration=1, specs=(_LOOK,), offered=(_LOOK.name,))
    given = (common.with_calls((call,)), GateRequest(agent="default", iteration=1, answer="done"), *proposals)
    for proposal in given:
        verdict = await engine.judge(proposal)
        _require_kind(verdict, Verdict, "judge")
        _require(recordable_verdicts([verdict]) == (verdict,), "judge: the verdict cannot be recorded as JSON")
        _require(await engine.judge(proposal) == verdict, "judge: decided the same proposal in two ways")
        if verdict.decision == "approval":
            approvers = verdict.approval.approvers if verdict.approval else ()
            approved = proposal.with_approval(approvers[0] if approvers else "ann", verdict.version)
            again = await engine.judge(approved)
            _require(again.decision != "deny", "judge: denied a call that a person had approved")


async def check_critic(critic: CodeCritic, settings: Critic) -> None:
    """Check a critic: it scores each dimension of its rubric, for answers and calls, even for strange ones.

    Args:
        critic: The object.
        settings: The settings of an agent's critic that names the object.

    Raises:
        AssertionError: What is wrong.
    """
    messages = (Message.of("user", "What is a lamp?"),)
    for subject, tool in (("A source of light.", ""), ("", ""), ("\u202e\0{", ""), ('{"word": "lamp"}', _LOOK.name)):
        review = await critic.review(ReviewedWork("What is a lamp?", subject, tool, messages))
        _require(review.scores.keys() == settings.rubric.keys(), f"review: scored {sorted(review.scores)}")
        _require(all(0 <= each <= 1 for each in review.scores.values()), "review: a score is not from 0 to 1")
        _require_kind(review.feedback, str, "review: feedback")


async def check_summarizer(summarizer: Summarizer) -> None:
    """Check a summarizer: it returns a text for any messages.

    Raises:
        AssertionError: What is wrong.
    """
    call = ToolCall(call_id="c1", name=_LOOK.name, arguments={"word": "lamp"})
    messages = (Message.of("user", "What is a lamp?"), Reply.of("I look it up.", [call]).message())
    for given in ((), messages):
        _require_kind(await summarizer.summarise("What is a lamp?", given, 1_000), str, "summarise")


async def check_knowledge_store(store: KnowledgeStore) -> None:
    """Check an empty store: it keeps, replaces, finds and forgets items, and hides those of others and expired ones.

    Raises:
        AssertionError: What is wrong.
    """
    anna, bert = Reader(tenant="acme", user="anna"), Reader(tenant="acme", user="bert")

    def item(text: str, **more: object) -> KnowledgeItem:
        return KnowledgeItem.model_validate({"kind": "document", "text": text, "scope": "user", "owner": anna, **more})

    async def found(words: str, reader: Reader = anna) -> list[str]:
        return [each.item.text for each in await store.recall(Recall(text=words, reader=reader, threshold=0))]

    [first, _] = await store.store([item("lamps give light", key="lamp"), item("trains run on rails")])
    _require(first.change == "added", "store: a new item is not reported as added")
    _require("lamps give light" in await found("lamps"), "recall: a stored item is not found")
    _require(await found("lamps", bert) == [], "recall: somebody else's item is found")
    _require(await found("lamps", Reader(tenant="other", user="anna")) == [], "recall: another tenant's item is found")
    [again] = await store.store([item("lamps shine", key="lamp")])
    _require((again.change, again.id) == ("updated", first.id), "store: an item with the same key is not replaced")
    _require("lamps give light" not in await found("lamps"), "recall: a replaced item is found")
    past = datetime.now(UTC) - timedelta(seconds=1)
    await store.store([item("ships sink", key="ship", expires_at=past)])
    _require("ships sink" not in await found("ships"), "recall: an expired item is found")
    kept = [each.id async for each in store.items()]
    _require(kept == sorted(kept) and len(kept) == 3, "items: must yield every item once, ordered by id")
    stored = await store.get(first.id)
    _require(stored is not None and stored.text == "lamps shine", "get: the item is not as it was stored")
    gone = await store.forget(Erasure(ids=(first.id,)))
    _require(gone.get("document") == 1 and await store.get(first.id) is None, "forget: the item is still there")
    try:
        await store.forget(Erasure())
    except KnowledgeError:
        pass
    else:
        raise AssertionError("forget: must raise KnowledgeError if nothing is named")
    await store.reindex(lambda _done, _all: None)
    await store.purge()
    _require((await store.facts()).counts.get("document") == 2, "facts: counts must be those of the stored items")


async def check_blob_store(store: BlobStore) -> None:
    """Check a store of pictures and documents: it keeps bytes of any size under their digest, even if put twice.

    Raises:
        AssertionError: What is wrong.
    """
    unknown = await store.get(digest_of(b"never stored"))
    _require(unknown is None, "get: must return None for a digest that was never stored")
    small, large = b"%PDF-1.4 small", b"%PDF-1.4".ljust(MAX_DOCUMENT_BYTES, b" ")
    for data in (small, large):
        digests = await asyncio.gather(*(store.put(data, "application/pdf") for _ in range(2)))
        _require({*digests} == {digest_of(data)}, "put: must return sha256: and the 64 hex characters of the digest")
        _require(await store.get(digest_of(data)) == data, f"get: {len(data):,} bytes are not as they were stored")


def _require_kind(value: object, kind: type, place: str) -> None:
    _require(isinstance(value, kind), f"{place}: is {type(value).__name__}, not {kind.__name__}")


def _require(holds: bool, why: str) -> None:
    if not holds:
        raise AssertionError(why)
