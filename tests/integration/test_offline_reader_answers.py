"""The offline reader answers one of its questions in a whole run: real tools, a real server."""

from temporalio.client import Client

from bench.reading import CALLS, DOCUMENTS, Asked
from orga.activities.adapters.models.extractive import ExtractiveProvider
from orga.activities.adapters.tools.list_files import ListFiles
from orga.activities.adapters.tools.read_file import ReadFile
from orga.activities.adapters.tools.root import Root
from orga.activities.adapters.tools.search_text import SearchText
from tests.support.runs.loop import a_loop

ASKED = Asked("office", "What is Maria Keller's extension?", ("417",), ("471", "714"))


async def test_a_run_answers_with_few_calls(client: Client) -> None:
    root = Root(DOCUMENTS[ASKED.set])
    async with a_loop(client, ExtractiveProvider(), ListFiles(root), SearchText(root), ReadFile(root)) as loop:
        ran = await loop.run(ASKED.question)

    assert ASKED.is_right(ran.result.output), ran.result.output
    assert ran.result.tool_calls.run <= CALLS
