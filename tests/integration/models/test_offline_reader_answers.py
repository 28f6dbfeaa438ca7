"""The offline model answers one of its questions in a whole run, with real tools and a real server."""

from collections.abc import Callable

import pytest
from temporalio.client import Client

from bench.knowledge.reading import CALLS, DOCUMENTS, Asked
from orga.activities.adapters.offline.reader import ExtractiveProvider
from orga.activities.adapters.tools.file_search import ListFiles, SearchText
from orga.activities.adapters.tools.read_file import ReadFile
from orga.activities.adapters.tools.root import FileRoot
from orga.activities.ports import ModelRequest
from orga.workflows.types.messages import Reply
from tests.support.runs.goals import start, wait_for_goal
from tests.support.runs.loop import a_loop
from tests.support.runs.pipelines import TaskModel, a_pipeline, run_pipeline

ASKED = Asked("office", "What is Maria Keller's extension?", ("417",), ("471", "714"))


async def test_a_run_answers_with_few_calls(client: Client) -> None:
    root = FileRoot(DOCUMENTS[ASKED.set])
    async with a_loop(client, ExtractiveProvider(), ListFiles(root), SearchText(root), ReadFile(root)) as loop:
        ran = await loop.run(ASKED.question)

    assert ASKED.is_right(ran.result.output), ran.result.output
    assert ran.result.tool_calls.run <= CALLS


@pytest.mark.parametrize(
    ("question", "reason"), [(ASKED.question, "completed"), ("Where do penguins sleep in winter?", "stuck")]
)
async def test_a_goal_without_an_answer_is_stuck_with_a_low_score(client: Client, question: str, reason: str) -> None:
    """A passage with similar words but no answer must not be scored as good."""
    root = FileRoot(DOCUMENTS[ASKED.set])
    async with a_loop(client, ExtractiveProvider(), ListFiles(root), SearchText(root), ReadFile(root)) as loop:
        result = (await wait_for_goal(await start(loop, question), client)).result
    assert result.termination.reason == reason
    assert (result.confidence >= 0.6, "I found no passage" in result.output) == (
        reason == "completed",
        reason == "stuck",
    )


class SearchRecordingModel(ExtractiveProvider):
    """The offline model. It records its searches."""

    def __init__(self) -> None:
        self.searched = ""

    async def complete(self, request: ModelRequest, on_text: Callable[[str], None]) -> Reply:
        """Return the reply of the offline model."""
        reply = await super().complete(request, on_text)
        self.searched += "".join(str(call.arguments.get("query", "")) for call in reply.calls)
        return reply


async def test_each_step_of_a_pipeline_searches_for_its_own_words(client: Client) -> None:
    root = FileRoot(DOCUMENTS[ASKED.set])
    own, mapped, teller = SearchRecordingModel(), SearchRecordingModel(), TaskModel(lambda task: task)
    chain = {"kind": "chain", "steps": [{"agent": "own", "task": ASKED.question}, "teller"]}
    async with a_pipeline(
        client, chain, {"own": own, "teller": teller}, ListFiles(root), SearchText(root), ReadFile(root)
    ) as (loop, _, _):
        await run_pipeline(loop, "Tell newcomers all that they have to know of rooms, holidays and expenses")
    assert ASKED.is_right(teller.tasks[0]), teller.tasks[0]
    survey = {"kind": "map_reduce", "map": "reader", "reduce": "teller", "inputs": ["staff.md"]}
    async with a_pipeline(
        client, survey, {"reader": mapped, "teller": teller}, ListFiles(root), SearchText(root), ReadFile(root)
    ) as (loop, _, _):
        await run_pipeline(loop, ASKED.question)
    assert ASKED.is_right(teller.tasks[1]), teller.tasks[1]
    for searched in (own.searched, mapped.searched):
        assert "keller" in searched
        assert not [word for word in ("goal", "instruct", "begin", "input", "newcom", "holid") if word in searched]
