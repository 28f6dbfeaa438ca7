"""The `search_text` tool."""

import time
from pathlib import Path

import pytest

from orga.activities.adapters.tools.file_search import SearchText
from orga.activities.adapters.tools.root import FileRoot
from tests.support.tools.calls import failure, result


@pytest.fixture(name="tool")
def a_tool(tmp_path: Path) -> SearchText:
    (tmp_path / "a.txt").write_text("one\nTwo words\nthree\nfour\ntwo again\n")
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "b.py").write_text("x = 'two'\r\ny = 1.5\r\n")
    (tmp_path / "sub" / "c.md").write_text("größer\nGRÖSSER a.b axb\n\nlast")
    return SearchText(FileRoot(tmp_path))


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        pytest.param(
            {"query": "two"}, ["a.txt:2: Two words", "a.txt:5: two again", "sub/b.py:1: x = 'two'"], id="any case"
        ),
        pytest.param(
            {"query": "two", "ignore_case": False}, ["a.txt:5: two again", "sub/b.py:1: x = 'two'"], id="exact case"
        ),
        pytest.param({"query": "two", "path": "sub"}, ["sub/b.py:1: x = 'two'"], id="below a folder"),
        pytest.param(
            {"query": "two", "path": "a.txt", "limit": 9}, ["a.txt:2: Two words", "a.txt:5: two again"], id="in a file"
        ),
        pytest.param({"query": "two", "pattern": "*.py"}, ["sub/b.py:1: x = 'two'"], id="in files that match"),
        pytest.param({"query": "a.b"}, ["sub/c.md:2: GRÖSSER a.b axb"], id="a dot is a dot"),
        pytest.param({"query": "^a?x", "regex": True}, ["sub/b.py:1: x = 'two'"], id="regular expression"),
        pytest.param(
            {"query": "(er|5)$", "regex": True},
            ["sub/b.py:2: y = 1.5", "sub/c.md:1: größer"],
            id="end of a line of any kind",
        ),
        pytest.param({"query": "GRÖß", "regex": True}, ["sub/c.md:1: größer"], id="ignored case outside ASCII"),
        pytest.param({"query": "^$", "regex": True}, ["sub/c.md:3: "], id="an empty line, none after the last end"),
        pytest.param(
            {"query": "one\\sTwo", "regex": True}, ["No match for 'one\\\\sTwo' in ."], id="no match across lines"
        ),
        pytest.param(
            {"query": "three", "context": 1},
            ["a.txt-2- Two words", "a.txt:3: three", "a.txt-4- four"],
            id="context on both sides",
        ),
        pytest.param(
            {"query": "two", "path": "a.txt", "context": 1},
            ["a.txt-1- one", "a.txt:2: Two words", "a.txt-3- three", "a.txt-4- four", "a.txt:5: two again"],
            id="contexts that touch are one group",
        ),
        pytest.param(
            {"query": "one|again", "regex": True, "path": "a.txt", "context": 1},
            ["a.txt:1: one", "a.txt-2- Two words", "--", "a.txt-4- four", "a.txt:5: two again"],
            id="groups that do not touch are separated",
        ),
    ],
)
async def test_matching_lines_are_shown(tool: SearchText, arguments: dict[str, object], expected: list[str]) -> None:
    assert (await result(tool, **arguments)).splitlines() == expected


async def test_a_search_without_matches_is_reported(tool: SearchText) -> None:
    assert await result(tool, query="nowhere") == "No match for 'nowhere' in ."


async def test_skipped_binary_and_large_files_are_counted(tool: SearchText, tmp_path: Path) -> None:
    (tmp_path / "image.png").write_bytes(b"\x89PNG\0two")
    (tmp_path / "large.log").write_bytes(b"two\n" * 1_500_000)
    assert (await result(tool, query="three")).splitlines() == [
        "a.txt:3: three",
        "[skipped files: 1 binary, 1 over 5 MB]",
    ]


async def test_a_reached_limit_is_reported(tool: SearchText) -> None:
    lines = (await result(tool, query="two", limit=2)).splitlines()
    assert lines[:2] == ["a.txt:2: Two words", "a.txt:5: two again"]
    assert lines[2].startswith("[cut here")


async def test_a_long_line_is_cut_around_its_match(tool: SearchText, tmp_path: Path) -> None:
    (tmp_path / "min.js").write_text("a" * 5_000 + "NEEDLE" + "b" * 5_000)
    line = await result(tool, query="needle")
    assert "NEEDLE" in line
    assert len(line) < 330
    assert line.endswith("…")


async def test_the_whole_result_is_bounded(tool: SearchText, tmp_path: Path) -> None:
    (tmp_path / "many.txt").write_text(("needle" + "x" * 290 + "\n") * 1_000)
    found = await result(tool, query="needle", limit=500, context=5)
    assert len(found) < 17_000
    assert "[cut here" in found


async def test_text_that_is_not_utf8_is_searched(tool: SearchText, tmp_path: Path) -> None:
    (tmp_path / "latin.txt").write_bytes(b"caf\xe9 needle\n")
    assert await result(tool, query="needle") == "latin.txt:1: caf\ufffd needle"


@pytest.mark.parametrize(
    "query",
    ["(a+)+$", "(a|aa)+$", "(.*)*b", "(?:a?){500}a{500}", "(x+x+)+y"],
)
async def test_no_regular_expression_hangs(tool: SearchText, tmp_path: Path, query: str) -> None:
    (tmp_path / "evil.txt").write_text("a" * 20_000 + "c\n" + "x" * 20_000)
    started = time.monotonic()
    await result(tool, query=query, regex=True)
    assert time.monotonic() - started < 5


@pytest.mark.parametrize(
    "query", ["(", "(?=a)", "(a)\\1", "a{2000}", "((a{100}){100}){100}", "", "a\nb", "x" * 2_000, "\ud800"], ids=repr
)
async def test_an_invalid_query_is_an_error(tool: SearchText, query: str) -> None:
    assert (await failure(tool, query=query, regex=True)).kind == "InvalidPattern"
