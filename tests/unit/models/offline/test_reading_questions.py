"""The offline reader is measured by its question set, with the real tools and the documents of the repository."""

from pathlib import Path

import pytest

from bench.knowledge.reading import CALLS, DOCUMENTS, RIGHT, Answered, Asked, answered, answers, questions

HELD_OUT = 7
"""Right answers among the ten held-out questions. Eight are right today, but the guides change."""


async def test_it_answers_most_questions_with_six_calls_each() -> None:
    found = await answers("asked")

    assert (len(found), sum(each.is_right for each in found) >= RIGHT) == (28, True), _wrong_answers_text(found)
    assert max(len(each.calls) for each in found) <= CALLS


async def test_it_answers_most_held_out_questions() -> None:
    found = await answers("held_out")

    assert (len(found), sum(each.is_right for each in found) >= HELD_OUT) == (10, True), _wrong_answers_text(found)


def test_the_questions_cover_three_sets_and_some_have_no_answer() -> None:
    asked = questions("asked")

    assert {each.set for each in asked} == DOCUMENTS.keys()
    assert 10 <= sum(not each.expects for each in asked) <= 15
    assert not {each.question for each in asked} & {each.question for each in questions("held_out")}


@pytest.mark.parametrize("asked", [pytest.param(each, id=each.question) for each in questions("asked") if each.expects])
def test_each_expected_fact_is_in_its_documents(asked: Asked) -> None:
    documents = [path for path in DOCUMENTS[asked.set].rglob("*") if path.suffix in {".md", ".txt"}]
    texts = [path.read_text(encoding="utf-8") for path in documents]

    assert any(all(fact in " ".join(text.split()) for fact in asked.expects) for text in texts)


@pytest.mark.parametrize(
    ("answer", "is_right"),
    [
        pytest.param("> it is 417\n— `a.md:1`", True, id="the first quote has it"),
        pytest.param("It is 417.", False, id="only a quote counts"),
        pytest.param("> nothing\n— `a.md:1`\n\n> it is 417\n— `a.md:2`", False, id="the second quote has it"),
        pytest.param("> it is 417\n> or 471\n— `a.md:1`", False, id="next to a wrong one"),
    ],
)
def test_an_answer_is_right_if_the_first_quote_has_only_the_fact(answer: str, is_right: bool) -> None:
    assert Asked("office", "?", ("417",), ("471",)).is_right(answer) is is_right


@pytest.mark.parametrize(
    ("answer", "is_right"),
    [
        pytest.param("I found no passage that contains all of: Kafka.", True, id="refused"),
        pytest.param(
            "I found no passage that contains all of: Kafka.\n\n> events\n— `a.md:1`", False, id="refused, and quoted"
        ),
        pytest.param(
            "> events\n— `a.md:1`\n\nI found no passage that contains all of: Kafka.", False, id="refused last"
        ),
    ],
)
def test_an_unanswerable_question_must_be_refused_first_and_without_a_quote(answer: str, is_right: bool) -> None:
    assert Asked("docs", "?").is_right(answer) is is_right


NOTES = """# Notes

Mario Keller has room 7. Invoice 4711 is paid, invoice 4712 is open.

Maria Lund lives in Kiel. Mario Lund lives in Bonn.

| who | room |
|---|---|
| Anna Berg | 12 |
| Anne Berg | 21 |

- Peter pays twelve euros
- Petra pays nothing

Anna Lund nimmt im Mai Urlaub.

The new van cost 900 euros. It starts at 6.

Lift, check by Ahrens, due on 9 June.

The lift is checked on 2 May.

Ramp - gravel is laid on 3 May.

A lift costs nerves. Ein Lift kostet Nerven.
"""


@pytest.mark.parametrize(
    ("question", "quoted"),
    [
        pytest.param("Which room has Mario Keller?", "Mario Keller has room 7", id="the name"),
        pytest.param("Which room has Maria Keller?", "", id="another name"),
        pytest.param("Where does Maria Lund live?", "Maria Lund lives in Kiel", id="one of two on a line"),
        pytest.param("Does Maria Lund live in Bonn?", "", id="the town of another"),
        pytest.param("Is invoice 4713 paid?", "", id="another number"),
        pytest.param("What is the room of Anne Berg?", "| Anne Berg | 21 |", id="a row, by the name of its column"),
        pytest.param("Who pays 12 euros?", "- Peter pays twelve euros", id="a number in words"),
        pytest.param(
            "Wann hat Anna Lund Urlaub?", "Anna Lund nimmt im Mai Urlaub", id="in German: a noun after a name"
        ),
        pytest.param("Wann hat Tante Anna Lund Urlaub?", "", id="in German: with a word that the notes do not use"),
        pytest.param("Wann hat Anna Mario Lund Urlaub?", "", id="in German: a name made of parts of other names"),
        pytest.param("What did the old van cost?", "", id="the other one of two vans"),
        pytest.param("What did the new van cost?", "The new van cost 900 euros", id="this one of two vans"),
        pytest.param(
            "When is the lift checked?", "The lift is checked on 2 May", id="the sentence closest to the question"
        ),
        pytest.param(
            "When is gravel laid?", "Ramp - gravel is laid on 3 May", id="a dash within a line is no list item"
        ),
        pytest.param("How many stars has the van?", "", id="a word that is near"),
        pytest.param("What does a lift cost?", "", id="a price without an amount"),
        pytest.param("Was kostet ein Lift?", "", id="in German: a price without an amount"),
        pytest.param("Welchen Raum hat Frau Keller?", "", id="in German: a name after its title, and no raum"),
    ],
)
async def test_names_and_numbers_must_match_or_nothing_is_quoted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, question: str, quoted: str
) -> None:
    (tmp_path / "notes.md").write_text(NOTES, encoding="utf-8")
    monkeypatch.setitem(DOCUMENTS, "notes", tmp_path)

    found = await answered(Asked("notes", question))
    quotes = [line for line in found.answer.splitlines() if line.startswith(">")]

    assert (quoted in "".join(quotes[:1]), bool(quotes)) == (True, bool(quoted)), found.answer
    assert quoted or found.answer.startswith("I found no passage that contains all of: ")


def _wrong_answers_text(found: list[Answered]) -> str:
    return "\n\n".join(f"{each.asked.question}\n{each.answer}" for each in found if not each.is_right)
