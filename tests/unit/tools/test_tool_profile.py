"""Tool profiles apply include, exclude, verified and the maximum, in that order."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orga.workflows.types.tool_calls.tools import ToolProfile, exclude_only, include_only
from tests.support.values.core import a_spec
from tests.support.values.strategies import LAW

TOOLS = tuple(
    a_spec(name, verified=name in {"read_file", "list_files"})
    for name in ("read_file", "write_file", "list_files", "web.get", "Web")
)
ALL = ["read_file", "write_file", "list_files", "web.get", "Web"]


@pytest.mark.parametrize(
    ("profile", "expected"),
    [
        pytest.param({}, ALL, id="an empty profile"),
        pytest.param({"include": ["read_file"]}, ["read_file"], id="a whole name"),
        pytest.param({"include": ["read"]}, [], id="part of a name does not match"),
        pytest.param({"include": ["*_file"]}, ["read_file", "write_file"], id="a star"),
        pytest.param({"include": ["?ead_*"]}, ["read_file"], id="a question mark matches one character"),
        pytest.param({"include": ["list_file?"]}, ["list_files"], id="a question mark at the end"),
        pytest.param({"include": ["read_file?"]}, [], id="a question mark matches exactly one character"),
        pytest.param({"include": ["web.*"]}, ["web.get"], id="a dot is a dot"),
        pytest.param({"include": ["web?get"]}, ["web.get"], id="a question mark matches a dot"),
        pytest.param({"include": ["[rw]*", "(read)_file", "{read,web}*"]}, [], id="no classes, groups or braces"),
        pytest.param({"include": ["web*"]}, ["web.get"], id="case matters"),
        pytest.param({"include": [""]}, [], id="an empty pattern"),
        pytest.param({"include": ["list_files", "read_file"]}, ["read_file", "list_files"], id="the tools' own order"),
        pytest.param({"exclude": ["*_file"]}, ["list_files", "web.get", "Web"], id="exclude"),
        pytest.param({"exclude": ["*"]}, [], id="all excluded"),
        pytest.param({"include": ["*_file"], "exclude": ["write*"]}, ["read_file"], id="exclude wins over include"),
        pytest.param({"require_verified": True}, ["read_file", "list_files"], id="verified"),
        pytest.param({"max_tools": 2}, ["read_file", "write_file"], id="the first two"),
        pytest.param({"max_tools": 0}, [], id="none at all"),
        pytest.param({"max_tools": 9}, ALL, id="more than there are"),
        pytest.param(
            {"require_verified": True, "exclude": ["read*"], "max_tools": 1},
            ["list_files"],
            id="the maximum is applied last",
        ),
    ],
)
def test_a_profile_shows_these_tools(profile: dict[str, Any], expected: list[str]) -> None:
    assert [tool.name for tool in ToolProfile(**profile).offered_tools(TOOLS)] == expected


def test_no_tools_remain_no_tools() -> None:
    assert ToolProfile(include=("*",)).offered_tools(()) == ()


def test_the_helpers_make_a_profile() -> None:
    assert [tool.name for tool in include_only("read_file", "web.*").offered_tools(TOOLS)] == ["read_file", "web.get"]
    assert [tool.name for tool in exclude_only("*file*").offered_tools(TOOLS)] == ["web.get", "Web"]


names = st.text("abé.*?[\n", max_size=5)


@LAW
@given(
    st.lists(names, max_size=6, unique=True), st.lists(names, max_size=3), st.lists(names, max_size=3), st.booleans()
)
def test_a_profile_can_only_hide_tools(
    tools: list[str], include: list[str], exclude: list[str], verified: bool
) -> None:
    specs = [a_spec(name, verified=index % 2 == 0) for index, name in enumerate(tools)]
    profile = ToolProfile(include=tuple(include), exclude=tuple(exclude), require_verified=verified)
    visible = profile.offered_tools(specs)
    assert list(visible) == [spec for spec in specs if spec in visible]
    assert profile.offered_tools(visible) == visible


@LAW
@given(names)
def test_a_name_without_wildcards_matches_only_itself(name: str) -> None:
    name = name.replace("*", "").replace("?", "")
    shown = include_only(name).offered_tools([a_spec(name), a_spec(f"{name}x"), a_spec(f"x{name}")])
    assert [tool.name for tool in shown] == [name]
