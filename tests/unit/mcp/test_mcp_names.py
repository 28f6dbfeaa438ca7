"""Names of MCP tools are legal, unique, and always the same."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orga.activities.adapters.mcp.definitions import legal_names
from orga.workflows.types.tool_calls.mcp import meant_server

LEGAL = re.compile(r"[a-zA-Z0-9_-]{1,64}")
NAMES = st.lists(st.text(max_size=80) | st.from_regex(r"[a-z./ ]{0,70}", fullmatch=True), max_size=12)


@pytest.mark.parametrize(
    ("own", "expected"),
    [
        pytest.param("get_time", r"files_get_time", id="a legal name stays"),
        pytest.param("get-time", r"files_get-time", id="a hyphen is legal"),
        pytest.param("a/b", r"files_a_b_[0-9a-f]{8}", id="illegal characters are replaced"),
        pytest.param("über", r"files__ber_[0-9a-f]{8}", id="a letter that is not ASCII is illegal"),
        pytest.param("", r"files_", id="an empty name"),
        pytest.param("x" * 58, r"files_x{58}", id="64 characters fit"),
        pytest.param("x" * 59, r"files_x{49}_[0-9a-f]{8}", id="65 are cut"),
        pytest.param("taken", r"files_taken_[0-9a-f]{8}", id="a name that is taken"),
        pytest.param("a\n", r"files_a__[0-9a-f]{8}", id="a line break at the end"),
    ],
)
def test_a_tool_name_has_its_server_as_prefix(own: str, expected: str) -> None:
    assert re.fullmatch(expected, legal_names("files", [own], {"files_taken"})[own])


def test_names_that_would_collide_are_made_different() -> None:
    names = legal_names("s", ["a/b", "a.b", "a_b"], ())
    assert names["a_b"] == "s_a_b"
    assert len(set(names.values())) == 3


def test_a_tool_named_like_the_replacement_of_another_keeps_its_name() -> None:
    replaced = legal_names("s", ["a/b"], ())["a/b"]
    names = legal_names("s", ["a/b", replaced.removeprefix("s_")], ())
    assert names[replaced.removeprefix("s_")] == replaced
    assert len(set(names.values())) == 2


@given(NAMES, st.sets(st.sampled_from(["s_a", "s_b", "s_"]), max_size=2))
def test_all_names_are_legal_unique_and_free(own: list[str], taken: set[str]) -> None:
    names = legal_names("s", own, taken)
    assert set(names) == set(own)
    assert len(set(names.values())) == len(names)
    assert not taken & set(names.values())
    assert all(LEGAL.fullmatch(name) and name.startswith("s_") for name in names.values())


@given(NAMES, st.randoms())
def test_names_do_not_depend_on_the_order(own: list[str], random: object) -> None:
    mixed = [*own]
    random.shuffle(mixed)  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]
    assert legal_names("s", own, ()) == legal_names("s", mixed, ())


@pytest.mark.parametrize(
    ("name", "server"),
    [
        pytest.param("time_now", "time", id="a tool of a server"),
        pytest.param("time_*", "time", id="all tools of a server"),
        pytest.param("git-hub_a_b", "git-hub", id="a server with a hyphen"),
        pytest.param("read_file", None, id="a tool of the worker"),
        pytest.param("time", None, id="a server is no tool"),
        pytest.param("*", None, id="all tools of all"),
        pytest.param("ti*_now", None, id="tools of several servers"),
    ],
)
def test_the_server_of_a_name_is_found(name: str, server: str | None) -> None:
    assert meant_server(name, ["time", "git-hub"]) == server
