"""The reader of `offline:extractive` answers from what a run has recalled."""

from orga.activities.adapters.models.extractive import ExtractiveProvider
from orga.activities.adapters.models.reader.recalled import recalled_text
from orga.activities.ports import ModelRequest
from orga.workflows.types.conversation import knowledge_message
from orga.workflows.types.messages import Message
from orga.workflows.types.text import delimited

LEARNT = """\
- memory, relevance=0.90, source=agent default, run=agent-1, iteration=3, model=offline:extractive
  Task: When is the harbour closed?
  Searching for harbour, closed.

  ---

  Not found: closed. Nothing answers the question (searched for harbour, closed).

  ---

  The closest passage is in `docs/harbour.md:3`.

  ---

  > The harbour is closed when the wind blows from the east.
  — `docs/harbour.md:3`

  offline:extractive: no language model; passages quoted as found
- fact, relevance=0.50, confidence=0.90, source=ada
  Searching for a berth takes an hour."""

BLOCK = f"[KNOWLEDGE_CONTEXT] What was stored before:\n{delimited(LEARNT, 'recalled knowledge')}"


def test_a_block_says_its_statements_alone() -> None:
    """What a reader said of its search is none: quoted to whoever asks again, it would answer by its own question."""
    assert list(filter(None, recalled_text(BLOCK).split("\n"))) == [
        "The harbour is closed when the wind blows from the east.",
        "— `docs/harbour.md:3`",
        "Searching for a berth takes an hour.",
    ]


async def test_a_question_is_answered_from_what_was_recalled() -> None:
    question = Message.of("user", "When is the harbour closed?", pinned=True)
    request = ModelRequest(model="extractive", messages=(question, knowledge_message(BLOCK)))
    reply = await ExtractiveProvider().complete(request, lambda _: None)
    answer = " ".join(reply.text.split())
    assert "The harbour is closed when the wind blows from the east. > — `docs/harbour.md:3`" in answer
    assert "— `recalled knowledge:" in answer
    assert "Task:" not in answer
