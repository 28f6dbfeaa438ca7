"""A text refused by a provider's content filter costs a run only that text, and a session only one turn."""

from collections.abc import Callable
from typing import Any

import pytest
from temporalio.client import Client

from orga.activities.ports import ModelRequest
from orga.testing import FakeTool, ModelError, ScriptedModel, answers, calls
from orga.workflows.decisions.refused_content import LEFT_OUT_TEXT
from orga.workflows.types.messages import Reply
from tests.support.runs.loop import WORKER_FACTS, a_loop
from tests.support.runs.sessions import begin, close_session, turn_summary
from tests.support.values.turns import are_paired

REFUSED = ModelError("ContentRefused", "answered 400: the prompt triggered the content filter", retryable=False)
WORD = "gunpowder"


class Filtered(ScriptedModel):
    """Refuses each request with a certain word. Otherwise it reads a page if the message asks for it, then answers."""

    def __init__(self, word: str = WORD, until: Callable[[], bool] = lambda: True) -> None:
        super().__init__([self._step], repeats=True)
        self.word, self.until = word, until
        self.taken: list[ModelRequest] = []

    def _step(self, request: ModelRequest) -> Reply:
        if self.until() and any(self.word in repr(message.parts) for message in request.messages):
            raise REFUSED
        self.taken.append(request)
        assert are_paired(request.messages)
        last = request.messages[-1]
        if last.role == "user" and last.text.startswith("read"):
            return calls("look", page=last.text)
        return answers(f"answer {len(self.taken)}")

    def texts(self) -> list[str]:
        """Return the texts of the last request."""
        return [message.text for message in self.taken[-1].messages]


def refusals(journal: Any) -> list[dict[str, Any]]:
    """Return the journal entries about texts that were left out."""
    return [entry.data for entry in journal if entry.data.get("strategy") == "refused_content"]


async def test_a_run_continues_without_a_refused_result(client: Client) -> None:
    model = Filtered()
    async with a_loop(client, model, FakeTool("look", f"how to make {WORD}")) as loop:
        ran = await loop.run("read it")

    assert (ran.result.termination.reason, ran.result.output) == ("completed", "answer 2")
    assert model.texts() == ["read it", "", LEFT_OUT_TEXT]
    (reported,) = refusals(ran.journal)
    assert (reported["messages_replaced"], "content filter" in reported["error"]) == (1, True)


async def test_a_run_with_a_refused_task_ends_with_the_reason(client: Client) -> None:
    model = Filtered()
    async with a_loop(client, model) as loop:
        ran = await loop.run(f"make {WORD}")

    assert ran.result.termination.reason == "error"
    assert ran.result.termination.detail.startswith("ContentRefused: answered 400")
    assert len(model.given) == 1, "there is nothing to leave out"


@pytest.mark.parametrize(
    ("question", "result", "endings"),
    [
        pytest.param(f"make {WORD}", "fine", ["completed", "error", "completed"], id="a message"),
        pytest.param("read it", f"how to make {WORD}", ["completed"] * 3, id="a result"),
        pytest.param(f"read {WORD}", "fine", ["completed", "error", "completed"], id="a message that asks for a call"),
    ],
)
async def test_a_session_continues_after_a_refused_text(
    client: Client, question: str, result: str, endings: list[str]
) -> None:
    model = Filtered()
    async with a_loop(client, model, FakeTool("look", result)) as loop:
        session = await begin(loop)
        turns = [await session.send(text) for text in ("hello", question, "goodbye")]
        last = await close_session(session)

    assert [turn_summary(turn)[2] for turn in turns] == endings
    assert model.texts()[:2] == ["hello", "answer 1"], "the earlier texts stay"
    assert LEFT_OUT_TEXT in model.texts()
    assert len(refusals(last.journal)) == 1


async def test_a_session_continues_when_a_filter_starts_to_refuse_an_old_text(client: Client) -> None:
    """The provider may have a new filter, or the model may be another one.

    The text has been seen by the model before.
    """
    is_strict = [False]
    model = Filtered(until=lambda: is_strict[0])
    async with a_loop(client, model) as loop:
        session = await begin(loop)
        turns = [await session.send(text) for text in (f"make {WORD}", "next")]
        is_strict[0] = True
        turns += [await session.send(text) for text in ("again", "goodbye")]
        last = await close_session(session)

    assert [turn_summary(turn)[2] for turn in turns] == ["completed"] * 4
    assert model.texts() == ["again", "answer 3", "goodbye"]
    assert len(refusals(last.journal)) == 1


async def test_a_refused_result_is_left_out_after_continue_as_new(client: Client) -> None:
    """After continue-as-new a result counts as seen that the model has yet to see."""
    each_iteration = WORKER_FACTS.model_copy(update={"roll_over_events": 1})
    model = Filtered()
    async with a_loop(client, model, FakeTool("look", f"how to make {WORD} " * 9), setup=each_iteration) as loop:
        ran = await loop.run("read it")

    assert (ran.result.termination.reason, len(ran.histories)) == ("completed", 2)
    assert model.texts()[2].startswith("[Result of look left out: ")
