"""A text that the content filter of a provider refuses costs a run that text alone, and a session one turn."""

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
    """Refuses each request with a word in it; else it reads as long as the message asks for that, then answers."""

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
        """Return what the last request holds."""
        return [message.text for message in self.taken[-1].messages]


def refusals(journal: Any) -> list[dict[str, Any]]:
    """Return what the journal says of texts that were left out."""
    return [entry.data for entry in journal if entry.data.get("strategy") == "refused_content"]


async def test_a_run_goes_on_without_a_result_that_is_refused(client: Client) -> None:
    model = Filtered()
    async with a_loop(client, model, FakeTool("look", f"how to make {WORD}")) as loop:
        ran = await loop.run("read it")

    assert (ran.result.termination.reason, ran.result.output) == ("completed", "answer 2")
    assert model.texts() == ["read it", "", LEFT_OUT_TEXT]
    (told,) = refusals(ran.journal)
    assert (told["messages_replaced"], "content filter" in told["error"]) == (1, True)


async def test_a_run_whose_task_is_refused_says_so(client: Client) -> None:
    model = Filtered()
    async with a_loop(client, model) as loop:
        ran = await loop.run(f"make {WORD}")

    assert ran.result.termination.reason == "error"
    assert ran.result.termination.detail.startswith("ContentRefused: answered 400")
    assert len(model.given) == 1, "there is nothing that could be left out"


@pytest.mark.parametrize(
    ("said", "result", "endings"),
    [
        pytest.param(f"make {WORD}", "fine", ["completed", "error", "completed"], id="a message"),
        pytest.param("read it", f"how to make {WORD}", ["completed"] * 3, id="a result"),
        pytest.param(f"read {WORD}", "fine", ["completed", "error", "completed"], id="a message that asks for a call"),
    ],
)
async def test_a_session_goes_on_after_a_refused_text(
    client: Client, said: str, result: str, endings: list[str]
) -> None:
    model = Filtered()
    async with a_loop(client, model, FakeTool("look", result)) as loop:
        session = await begin(loop)
        turns = [await session.send(text) for text in ("hello", said, "goodbye")]
        last = await close_session(session)

    assert [turn_summary(turn)[2] for turn in turns] == endings
    assert model.texts()[:2] == ["hello", "answer 1"], "what was taken before stays"
    assert LEFT_OUT_TEXT in model.texts()
    assert len(refusals(last.journal)) == 1


async def test_a_session_goes_on_when_a_filter_begins_to_refuse_what_it_took(client: Client) -> None:
    """Another filter of the provider, or another model: the text is among what the model has seen."""
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


async def test_a_result_is_left_out_in_a_run_that_has_continued_as_new(client: Client) -> None:
    """There a result counts as seen that the model has yet to see."""
    each_iteration = WORKER_FACTS.model_copy(update={"roll_over_events": 1})
    model = Filtered()
    async with a_loop(client, model, FakeTool("look", f"how to make {WORD} " * 9), setup=each_iteration) as loop:
        ran = await loop.run("read it")

    assert (ran.result.termination.reason, len(ran.histories)) == ("completed", 2)
    assert model.texts()[2].startswith("[Result of look left out: ")
