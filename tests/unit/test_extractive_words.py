"""How the offline reader understands words, questions and tool results."""

import re

import pytest

from orga.activities.adapters.models.reader.passages import passages_of
from orga.activities.adapters.models.reader.question import question_of
from orga.activities.adapters.models.reader.results import excerpt_of, hits_of, listed, refusal_of
from orga.activities.adapters.models.reader.searches import in_words, loose_queries, queries_of
from orga.activities.adapters.models.reader.toolbox import toolbox_of
from orga.activities.adapters.models.reader.words import stem, words
from orga.workflows.types.messages import Message, ToolCall
from orga.workflows.types.tools import ToolSpec


def user(text: str, *, pinned: bool = False) -> Message:
    return Message.of("user", text, pinned=pinned)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("maxTokens max_tokens MAX-TOKENS", ["max", "tokens"] * 3, id="identifiers are split"),
        pytest.param("HTTPServer v2", ["http", "server", "v2"], id="acronyms stay whole"),
        pytest.param("Café ＡＢＣ", ["cafe", "abc"], id="accents and widths are folded"),
        pytest.param("実行制限", ["実行", "行制", "制限"], id="unspaced text becomes pairs"),
        pytest.param("🙂 — …", [], id="symbols are no words"),
    ],
)
def test_words(text: str, expected: list[str]) -> None:
    assert words(text) == expected


@pytest.mark.parametrize(
    "family",
    [
        pytest.param(("decide", "decides", "decided", "deciding", "decision", "decisions"), id="decide"),
        pytest.param(("deny", "denies", "denied", "denying", "denial"), id="deny"),
        pytest.param(("policy", "policies"), id="policy"),
        pytest.param(("keep", "keeps", "keeping", "kept"), id="keep"),
        pytest.param(("write", "writes", "wrote", "written"), id="write"),
        pytest.param(("parse", "parses", "parsed", "parser", "parsing"), id="parse"),
        pytest.param(("validate", "validation", "validator", "validating"), id="validate"),
        pytest.param(("stop", "stops", "stopped", "stopping"), id="stop"),
        pytest.param(("max", "maximum"), id="short form"),
    ],
)
def test_forms_of_a_word_share_a_stem(family: tuple[str, ...]) -> None:
    assert len({stem(word) for word in family}) == 1


@pytest.mark.parametrize(
    ("messages", "terms"),
    [
        pytest.param([user("How does the gate decide?")], ["gate", "decide"], id="stop words go"),
        pytest.param([user("Please explain the README file.")], [], id="words of the task go"),
        pytest.param(
            [user("where is retry-after parsed")], ["retry-after", "retry", "after", "parsed"], id="compounds first"
        ),
        pytest.param([user("bees"), user("[Guidance] only queens")], ["bees", "queens"], id="guidance refines"),
        pytest.param([user("bees"), user("Look for wasps instead")], ["wasps"], id="guidance replaces"),
        pytest.param([user("bees"), Message.of("assistant", "Done."), user("wasps")], ["wasps"], id="next question"),
        pytest.param([user("bees"), user("wasps sting", pinned=True)], ["bees"], id="added context is no question"),
        pytest.param([], [], id="no message"),
    ],
)
def test_terms_of_a_question(messages: list[Message], terms: list[str]) -> None:
    found = [term.surface for term in question_of(messages).terms]

    assert [one for one in found if one != "after"] == [one for one in terms if one != "after"]


@pytest.mark.parametrize(
    ("text", "wanted", "paths"),
    [
        pytest.param("List the files here", "listing", (), id="listing"),
        pytest.param("Summarise docs/guide.md", "overview", ("docs/guide.md",), id="overview of a file"),
        pytest.param("What does this project do?", "overview", (), id="overview of all"),
        pytest.param("Summarise the README", "overview", ("README",), id="a file without its ending"),
        pytest.param("What does ports.py say of retries, e.g. delays?", "passages", ("ports.py",), id="in a file"),
        pytest.param("What is 3.5 percent, v1.2.3, example.com?", "passages", (), id="numbers and hosts are no files"),
    ],
)
def test_the_kind_of_answer_and_the_files_it_names(text: str, wanted: str, paths: tuple[str, ...]) -> None:
    question = question_of([user(text)])

    assert (question.wanted, question.paths) == (wanted, paths)


def test_queries_are_phrases_then_neighbours_then_words() -> None:
    question = question_of([user("What is the default timeout of `dead letters`?")])

    assert queries_of(question, regex=True) == (
        "dead[-_. ]?letters",
        "(default|timeout).*(default|timeout)",
        "default|timeout",
    )
    assert queries_of(question, regex=False)[:3] == ("dead letters", "default", "timeout")


def test_what_begins_words_is_written_once_as_people_write_it() -> None:
    question = question_of([user("How long may 12 books of the configuration be kept in a room?")])

    assert queries_of(question, regex=True) == (
        r"\b(12|twelve|zwölf)\b",
        r"(config|\b(book|keep|kept|room)).*(config|\b(book|keep|kept|room))",
        r"config|\bbook",
    )
    assert queries_of(question_of([user("How long may a book be kept?")]), regex=True) == (
        r"\b(book|keep|kept).*\b(book|keep|kept)",
        r"\b(book|keep|kept)",
    )


@pytest.mark.parametrize(
    ("question", "told"),
    [
        pytest.param("What is Maria Keller's desk?", ["Maria Keller", "desk"], id="a name"),
        pytest.param(
            "On which day is furniture delivered?",
            ["two of furniture, delivered, day", "furniture or delivered"],
            id="words",
        ),
        pytest.param("How long may a book be kept?", ["two of book, kept", "book or kept"], id="short words"),
        pytest.param("Who has 12?", ["12"], id="a number"),
    ],
)
def test_what_a_search_looks_for_is_told_in_the_words_of_the_question(question: str, told: list[str]) -> None:
    asked = question_of([user(question)])

    assert [in_words(query, asked) for query in queries_of(asked, regex=True)] == told


def test_a_word_that_occurs_nowhere_is_searched_loosely() -> None:
    terms = list(question_of([user("defualt")]).terms)

    assert loose_queries(terms, regex=True) == (r"\b(defu|de\w{3,5}t)",)
    assert loose_queries(terms, regex=False) == ("defu",)


def test_hits_and_their_context_are_read_and_notes_passed_over() -> None:
    hits = hits_of("./a.md-1- before\na.md:2: the: hit\nb c/é.md:30:\ngarbage\n[cut at 25 matching lines]")

    assert [(e.path, e.lines) for e in hits.excerpts] == [
        ("a.md", {1: "before", 2: "the: hit"}),
        ("b c/é.md", {30: ""}),
    ]
    assert (hits.count, hits.is_cut) == (2, True)


def test_no_match_and_skipped_files_are_no_hits() -> None:
    hits = hits_of("No match for 'x' in .\n[skipped files: 3 binary]")

    assert (hits.excerpts, hits.count, hits.is_cut) == ((), 0, False)


@pytest.mark.parametrize(
    ("text", "path", "lines", "total"),
    [
        pytest.param("a.md (lines 3-4 of 9)\n3\tone\n4\t\ttwo", "a.md", {3: "one", 4: "\ttwo"}, 9, id="plain"),
        pytest.param("<data>\na.md (lines 1-1 of 1)\n1\tone\n</data>", "a.md", {1: "one"}, 1, id="delimited"),
        pytest.param("a (b).md (lines 1-1 of 2, not valid UTF-8: x)\n1\t�", "a (b).md", {1: "�"}, 2, id="noted"),
        pytest.param("1\tone", "asked.md", {1: "one"}, None, id="no header: the path asked for"),
    ],
)
def test_lines_of_a_file(text: str, path: str, lines: dict[int, str], total: int | None) -> None:
    excerpt = excerpt_of(text, "asked.md")

    assert excerpt is not None
    assert (excerpt.path, excerpt.lines, excerpt.total) == (path, lines, total)


@pytest.mark.parametrize("text", ["", "\x00\x01", "{}", "<html>", "binary (1 byte)"])
def test_garbage_is_no_file(text: str) -> None:
    assert excerpt_of(text, "asked.md") is None
    assert listed("\x00\x01\n<html>\n{}\n" + "x" * 500) == ((), False)


@pytest.mark.parametrize(
    ("text", "is_error", "expected"),
    [
        pytest.param("[Policy denied] no", True, "denied", id="denied"),
        pytest.param("[Error] timeout", False, "failed", id="failed by its mark"),
        pytest.param("anything", True, "failed", id="failed by its flag"),
        pytest.param("a.md:1: [Error]", False, None, id="a result that tells of an error"),
    ],
)
def test_refusals(text: str, is_error: bool, expected: str | None) -> None:
    assert refusal_of(text, is_error) == expected


def test_passages_end_at_paragraphs_and_know_their_headings() -> None:
    text = "# A\nintro\n\n## B\none\ntwo\n\n```\n# no heading\n```\n## C\n### D\nthree"
    found = [(p.first, p.last, p.headings) for p in passages_of("x.md", dict(enumerate(text.split("\n"), 1)))]

    assert found == [
        (2, 2, ("A",)),
        (5, 6, ("A", "B")),
        (8, 10, ("A", "B")),
        (11, 11, ("A",)),
        (13, 13, ("A", "C", "D")),
    ]


def test_code_is_cut_at_definitions_and_placed_in_them() -> None:
    text = "x = 1\nclass A:\n    @cached\n    def b(\n        self,\n    ):\n        return 1\n\n        y = 2\nz = 3"
    found = [(p.first, p.last, p.headings) for p in passages_of("x.py", dict(enumerate(text.split("\n"), 1)))]

    assert found == [(1, 1, ()), (2, 2, ("A",)), (3, 7, ("A", "b")), (9, 10, ())]


def test_a_gap_ends_a_passage_and_its_headings() -> None:
    found = [(p.first, p.last, p.headings) for p in passages_of("x.md", {1: "# A", 2: "one", 7: "two", 8: "three"})]

    assert found == [(2, 2, ("A",)), (7, 8, ())]


@pytest.mark.parametrize(
    ("first", "fenced"),
    [
        pytest.param(1, [True, False], id="all of it"),
        pytest.param(2, [False, False], id="from amid the code on"),
        pytest.param(5, [False, True], id="from where the next code begins"),
    ],
)
def test_code_that_began_above_what_is_known_ends_at_a_bare_fence(first: int, fenced: list[bool]) -> None:
    text = dict(enumerate(["```sh", "ls", "```", "", "one" if first < 5 else "```sh", "two"], 1))
    known = {n + 50: line for n, line in text.items() if n >= first} | ({40: "before"} if first == 5 else {})
    assert [passage.is_fenced for passage in passages_of("x.md", known)] == fenced


@pytest.mark.parametrize(
    ("first", "header"),
    [
        pytest.param(1, "| term | means |", id="all of it"),
        pytest.param(2, "", id="from its rule on"),
        pytest.param(3, "", id="from its middle on"),
    ],
)
def test_the_header_of_a_table_is_the_row_above_its_rule(first: int, header: str) -> None:
    table = {1: "| term | means |", 2: "|---|:-:|", 3: "| run | one execution |", 4: "| turn | one message |"}
    known = {40: "| another | table |", 41: "|---|---|"} | {n + 50: row for n, row in table.items() if n >= first}
    assert [passage.header for passage in passages_of("x.md", known)][-1] == header


@pytest.mark.parametrize(
    ("parameters", "usable"),
    [
        pytest.param({"properties": {"query": {"type": "string"}}}, True, id="as expected"),
        pytest.param({"properties": {"query": {}, "limit": {}}, "required": ["query"]}, True, id="without types"),
        pytest.param({"properties": {"text": {"type": "string"}}}, False, id="other argument"),
        pytest.param({"properties": {"query": {"type": "array"}}}, False, id="other type"),
        pytest.param(
            {"properties": {"query": {}, "index": {}}, "required": ["index"]}, False, id="needs what is unknown"
        ),
        pytest.param({}, False, id="no schema"),
    ],
)
def test_a_tool_with_another_schema_is_left_alone(parameters: dict[str, object], usable: bool) -> None:
    assert toolbox_of((ToolSpec(name="search_text", parameters=parameters),)).has("search_text") is usable


def test_arguments_that_a_tool_lacks_are_not_sent() -> None:
    toolbox = toolbox_of((ToolSpec(name="search_text", parameters={"properties": {"query": {}, "limit": {}}}),))

    call = toolbox.call("search_text", query="x", regex=True, limit=5)

    assert call == ToolCall(call_id="", name="search_text", arguments={"query": "x", "limit": 5})


def test_forms_of_a_verb_that_no_ending_tells_are_searched_with_it() -> None:
    either = [_hits(each, "A book may be kept.") for each in queries_of(question_of([user(KEEP)]), regex=True)]
    assert any(either)


KEEP = "How long may I keep it?"


def _hits(query: str, line: str) -> bool:
    return re.search(query, line, re.IGNORECASE) is not None
