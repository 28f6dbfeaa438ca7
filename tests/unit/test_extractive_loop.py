"""The offline reader plays whole conversations over a real folder."""

import asyncio
import re
from pathlib import Path

import pytest

from orga.activities.adapters.models.extractive import ExtractiveProvider
from orga.activities.adapters.models.reader.answer import SIGNATURE
from orga.activities.ports import ModelRequest
from orga.workflows.types.messages import Message, Reply
from orga.workflows.types.tools import ToolSpec
from tests.support.model.reading import ALL, FILES, LIST, READ, SEARCH, Run, folder, tools_over

__all__ = ["folder"]


@pytest.mark.parametrize(
    ("question", "quote", "source"),
    [
        pytest.param(
            "How does the gate decide?",
            "> The gate decides by policy: a tool that is not listed is denied.\n— `docs/manual.md:7`",
            "docs/manual.md:7",
            id="prose before tests and lock files",
        ),
        pytest.param(
            "What is the default timeout?",
            "> The default timeout of a tool is 30 seconds.\n— `docs/manual.md:11`, under “Time”",
            "docs/manual.md:11",
            id="a number under its heading",
        ),
        pytest.param(
            "where is retry-after parsed",
            "> def parse_retry_after(value: str) -> float:",
            "src/retry.py:4-6",
            id="code",
        ),
        pytest.param(
            "Wo liegt der Käse?", "> Der Käse liegt im Kühlschrank 🧀 neben der Milch.", "docs/küche.md:3", id="accents"
        ),
        pytest.param("実行制限は?", "> 実行制限は三十秒です。", "docs/küche.md:5", id="unspaced script"),
        pytest.param(
            "What is the defualt tiemout?",
            "> The default timeout of a tool is 30 seconds.",
            "docs/manual.md:11",
            id="misspelt",
        ),
    ],
)
async def test_it_quotes_the_lines_that_answer(folder: Path, question: str, quote: str, source: str) -> None:
    run = Run(question, tools_over(folder))

    text = await run.to_the_end()

    assert text.startswith(f"The closest passage is in `{source}`")
    assert quote in text


async def test_every_quote_stands_in_the_file_at_its_lines(folder: Path) -> None:
    text = await Run("How do the gate and the default timeout work?", tools_over(folder)).to_the_end()

    cited = re.findall(r"((?:^>.*\n)+)— `(.+?):(\d+)(?:-(\d+))?`", text, re.MULTILINE)
    assert cited
    for quoted, path, first, last in cited:
        lines = FILES[path].split("\n")[int(first) - 1 : int(last or first)]
        assert [row.removeprefix("> ") for row in quoted.splitlines()] == lines


async def test_it_is_deterministic_and_repeats_no_call(folder: Path) -> None:
    first, second = (Run("How is honey counted by bees at the gate?", tools_over(folder)) for _ in range(2))

    assert await first.to_the_end() == await second.to_the_end()
    assert first.calls == second.calls
    asked = [(call.name, str(call.arguments)) for call in first.calls]
    assert len(asked) == len(set(asked)) == len({call.call_id for call in first.calls})


async def test_the_first_turn_searches_several_terms_at_once(folder: Path) -> None:
    reply = await Run("How does the gate decide?", tools_over(folder)).step()

    assert [call.name for call in reply.calls].count("search_text") >= 2
    assert reply.finish == "tool_calls"


async def test_a_question_on_everything_opens_with_the_readme(folder: Path) -> None:
    text = await Run("What does this project do?", tools_over(folder)).to_the_end()

    assert text.startswith("`README.md`: Hive · Use")
    assert "> Hive keeps bees and counts their honey every day.\n— `README.md:3`" in text


async def test_a_listing_names_the_files(folder: Path) -> None:
    text = await Run("List the files, please.", tools_over(folder)).to_the_end()

    assert text.startswith("7 files:")
    assert "- `docs/küche.md`" in text


async def test_nothing_found_says_what_was_searched(folder: Path) -> None:
    text = await Run("What about zeppelins?", tools_over(folder)).to_the_end()

    assert text.startswith("Not found: zeppelins. Nothing answers the question (searched for zeppelins; 7 files listed")


async def test_what_is_not_found_comes_first_and_what_does_not_answer_is_not_quoted(folder: Path) -> None:
    text = await Run("Does the gate decide on zeppelins?", tools_over(folder)).to_the_end()

    assert text.startswith("Not found: zeppelins.")
    assert "Nearest to it, and not quoted, is `docs/manual.md:" in text
    assert "\n>" not in text


async def test_a_denied_tool_is_not_called_again_and_the_answer_says_so(folder: Path) -> None:
    tools = tools_over(folder)
    denied = "[Policy denied] reading is not allowed here"
    run = Run("How does the gate decide?", lambda call: denied if call.name == "read_file" else tools(call))

    text = await run.to_the_end()

    turns = [message.calls for message in run.messages if message.calls]
    assert sum(any(call.name == "read_file" for call in calls) for calls in turns) == 1
    assert "> The gate decides by policy" in text
    assert f"Refused: read_file, {[c.name for c in run.calls].count('read_file')} call" in text
    assert denied in text


async def test_when_all_is_denied_it_ends_at_once() -> None:
    run = Run("How does the gate decide?", lambda call: "[Policy denied] no")

    text = await run.to_the_end()

    assert len([message for message in run.messages if message.calls]) <= 2
    assert text.startswith("Not found: gate, decide. Nothing answers the question")
    assert "Refused: search_text" in text


async def test_a_failed_read_of_one_file_does_not_stop_the_others(folder: Path) -> None:
    tools = tools_over(folder)
    run = Run(
        "How does the gate decide?",
        lambda call: "[Error] timed out" if call.arguments.get("path") == "tests/test_gate.py" else tools(call),
    )

    assert "> The gate decides by policy" in await run.to_the_end()


@pytest.mark.parametrize("text", ["", "\x00\xff\n::::", "null", "[]", "x" * 50_000, "a:1\nb-2- \n\t\n(lines 1-2 of 3)"])
@pytest.mark.parametrize("question", ["How does the gate decide?", "Summarise it", "List the files"])
async def test_garbage_from_tools_ends_in_an_honest_answer(text: str, question: str) -> None:
    answer = await Run(question, lambda call: text).to_the_end()

    assert answer.endswith(SIGNATURE)


@pytest.mark.parametrize(
    ("tools", "expected"),
    [
        pytest.param((), "No tool that lists, searches or reads files is offered in this step.", id="none"),
        pytest.param((LIST,), "These files match by name:\n\n- `tests/test_gate.py`", id="listing only"),
        pytest.param((SEARCH,), "> The gate decides by policy", id="search only"),
        pytest.param((READ,), "Not found: gate, decide. Nothing answers", id="reading only: it knows no names"),
        pytest.param((LIST, READ), "> The gate decides by policy", id="no search: the likely files are read"),
        pytest.param((SEARCH, READ), "> The gate decides by policy", id="no listing"),
        pytest.param((ToolSpec(name="send_mail"), *ALL), "> The gate decides by policy", id="a tool it does not know"),
    ],
)
async def test_any_subset_of_tools_will_do(folder: Path, tools: tuple[ToolSpec, ...], expected: str) -> None:
    run = Run("How does the gate decide?", tools_over(folder), tools)

    assert expected in await run.to_the_end()
    assert {call.name for call in run.calls} <= {spec.name for spec in tools} & {spec.name for spec in ALL}


async def test_files_that_match_by_name_are_offered_when_nothing_can_be_read(folder: Path) -> None:
    text = await Run("Where is the retry logic?", tools_over(folder), (LIST,)).to_the_end()

    assert "- `src/retry.py`" in text


async def test_guidance_midway_turns_the_search(folder: Path) -> None:
    run = Run("How does the gate decide?", tools_over(folder))
    await run.step()
    run.messages.append(Message.of("user", "Tell me about honey and bees instead."))

    text = await run.to_the_end()

    assert text.startswith("The closest passage is in `README.md:3`")
    assert "gate" not in text


async def test_guidance_after_many_turns_gets_turns_of_its_own(folder: Path) -> None:
    run = Run("What about zeppelins and airships?", tools_over(folder))
    await run.to_the_end()
    run.messages.append(Message.of("user", "How does the gate decide?"))

    assert (await run.to_the_end()).startswith("The closest passage is in `docs/manual.md:7`")


async def test_a_compacted_conversation_is_answered_from_what_is_left(folder: Path) -> None:
    run = Run("How does the gate decide?", tools_over(folder))
    await run.step()
    await run.step()
    results = [message for message in run.messages if message.role == "tool" and message.tool == "read_file"]
    run.messages = [run.messages[0], *results]

    text = await run.to_the_end()

    assert text.startswith("The closest passage is in `docs/manual.md:7`")


async def test_compaction_after_every_step_cannot_make_it_read_for_ever(folder: Path) -> None:
    """The call ids tell the turn, so one remaining result is enough to know how far the reader got."""
    run = Run("What about zeppelins, gates and hidden airships?", tools_over(folder))

    for _ in range(6):
        reply = await run.step()
        if not reply.calls:
            return
        run.messages = [run.messages[0], run.messages[-1]]
    raise AssertionError("the reader did not come to an end")


async def test_added_context_is_material(folder: Path) -> None:
    run = Run("Who wrote the hymn?", tools_over(folder), ())
    run.messages.append(Message.of("user", "Note.\nThe hymn was written by Ada.", pinned=True))

    text = await run.to_the_end()

    assert "> The hymn was written by Ada." in text
    assert "— `conversation message 2:" in text


async def test_without_a_question_it_says_so(folder: Path) -> None:
    run = Run("   ", tools_over(folder))

    assert (await run.to_the_end()).startswith("There is no question in the conversation.")


async def test_tool_choice_none_answers_at_once(folder: Path) -> None:
    reply = await Run("How does the gate decide?", tools_over(folder)).step(tool_choice="none")

    assert (reply.calls, reply.finish) == ((), "stop")


async def test_tool_choice_any_always_calls(folder: Path) -> None:
    run = Run("How does the gate decide?", tools_over(folder))
    await run.to_the_end()

    assert len((await run.step(tool_choice="any")).calls) == 1


async def test_an_answer_stays_within_the_output_limit(folder: Path) -> None:
    """Quotes are left out first; what it is remains said."""
    run = Run("How does the gate decide?", tools_over(folder))
    while (await run.step()).calls:
        pass
    full = run.messages.pop()

    short = await run.step(max_output_tokens=60)
    run.messages.pop()
    cut = await run.step(max_output_tokens=10)

    assert len(short.text) <= 240 < len(full.text)
    assert (short.text.endswith(SIGNATURE), short.finish) == (True, "stop")
    assert (len(cut.text), cut.finish) == (40, "length")


async def test_usage_grows_with_the_conversation_and_costs_nothing(folder: Path) -> None:
    run = Run("How does the gate decide?", tools_over(folder))

    first, second = await run.step(), await run.step()

    assert 0 < first.usage.input_tokens < second.usage.input_tokens
    assert first.usage.output_tokens > 0
    assert first.cost_usd == 0.0


async def test_an_abort_between_pieces_is_heeded(folder: Path) -> None:
    run = Run("How does the gate decide?", tools_over(folder))
    while (await run.step()).calls:
        pass
    run.messages.pop()
    pieces: list[str] = []
    request = ModelRequest(model="extractive", messages=tuple(run.messages), tools=ALL)
    task: asyncio.Task[Reply]

    def first_piece(piece: str) -> None:
        pieces.append(piece)
        task.cancel()

    task = asyncio.create_task(ExtractiveProvider().complete(request, first_piece))
    with pytest.raises(asyncio.CancelledError):
        await task
    assert len(pieces) == 1
