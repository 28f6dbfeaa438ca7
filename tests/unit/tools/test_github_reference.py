"""The accepted names of issues and pull requests."""

import pytest

from orga.activities.adapters.tools.github import parse_reference
from orga.activities.ports import ToolError


@pytest.mark.parametrize(
    ("reference", "repo", "expected"),
    [
        pytest.param("#42", "ann/app", "ann/app#42", id="short"),
        pytest.param("42", "ann/app", "ann/app#42", id="only the number"),
        pytest.param("PR #55", "ann/app", "ann/app#55", id="pull request"),
        pytest.param("pr#55", "ann/app", "ann/app#55", id="without a space"),
        pytest.param("issue 7", "ann/app", "ann/app#7", id="with its kind"),
        pytest.param("o-x/n.m_1#9", None, "o-x/n.m_1#9", id="full"),
        pytest.param("PR o/n#9", "ann/app", "o/n#9", id="full wins over the default"),
    ],
)
def test_references_are_parsed(reference: str, repo: str | None, expected: str) -> None:
    assert str(parse_reference(reference, repo)) == expected


@pytest.mark.parametrize(
    "reference",
    [
        "",
        "#",
        "#x",
        "o/n",
        "o/n/m#1",
        "../..#1",
        "o/..#1",
        "o/n9",
        "#1?x=2",
        "#1/../2",
        "https://a.io/1",
        "#12345678901",
    ],
)
def test_an_invalid_reference_is_refused(reference: str) -> None:
    with pytest.raises(ToolError) as caught:
        parse_reference(reference, "ann/app")
    assert caught.value.kind == "InvalidArguments"


def test_a_short_reference_without_a_default_repository_names_the_remedy() -> None:
    with pytest.raises(ToolError, match=r"write owner/name#42, or set \[tools.github\] repo"):
        parse_reference("#42", None)
