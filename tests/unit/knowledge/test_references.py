"""The references in a task."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from orga.workflows.decisions.hydration import find_references
from orga.workflows.types.input import CustomPattern, PreHydration
from tests.support.values.strategies import LAW

TICKETS = PreHydration(custom_patterns=(CustomPattern(ref_type="ticket", pattern=r"OPS-\d+"),))
PIECES = ["https://a.io/x", "http://[::1]/", "./a.md", "~/b", "#7", "PR #5", "pr\n#6", "o/n#8", "OPS-1", "see", "é"]
GLUE = [" ", "\n", ".", ",", "(", ")", "[", "](", "#", "/", "\x00", "PR ", "`", "://"]


def found(task: str, config: PreHydration = TICKETS) -> list[tuple[str, str]]:
    return [(reference.ref_type, reference.value) for reference in find_references(task, config)]


@pytest.mark.parametrize(
    ("task", "expected"),
    [
        pytest.param("See https://a.io/x.", ["https://a.io/x"], id="a full stop ends a sentence, not a URL"),
        pytest.param("https://a.io/x?, b", ["https://a.io/x"], id="several marks"),
        pytest.param("(see https://a.io/x).", ["https://a.io/x"], id="the bracket of a remark"),
        pytest.param("https://a.io/A_(b)", ["https://a.io/A_(b)"], id="balanced brackets are its own"),
        pytest.param("(https://a.io/A_(b))", ["https://a.io/A_(b)"], id="its own brackets within a remark's"),
        pytest.param("[a](https://a.io/x) b", ["https://a.io/x"], id="Markdown link"),
        pytest.param(
            "[https://a.io](https://b.io)", ["https://a.io", "https://b.io"], id="Markdown link that is a URL"
        ),
        pytest.param("**https://a.io** <https://b.io>", ["https://a.io", "https://b.io"], id="marked up"),
        pytest.param("`https://a.io/x` 'https://b.io'", ["https://a.io/x", "https://b.io"], id="quoted"),
        pytest.param("http://[::1]:80/a[0]", ["http://[::1]:80/a[0]"], id="square brackets of its own"),
        pytest.param("HTTPS://A.io/x", ["HTTPS://A.io/x"], id="capitals"),
        pytest.param("见https://a.io/x。然后", ["https://a.io/x"], id="no spaces around it"),
        pytest.param("https:// http://. xhttps://a.io ftp://a.io", [], id="no URL"),
    ],
)
def test_urls_are_found(task: str, expected: list[str]) -> None:
    assert found(task) == [("url", value) for value in expected]


@pytest.mark.parametrize(
    ("task", "expected"),
    [
        pytest.param("read ./x.y, ../x and ~/x", ["./x.y", "../x", "~/x"], id="relative"),
        pytest.param("/abs/x.ext", ["/abs/x.ext"], id="absolute with an extension"),
        pytest.param("./src/main.rs.", ["./src/main.rs"], id="the sentence's full stop"),
        pytest.param("./a.tar.gz", ["./a.tar.gz"], id="two extensions"),
        pytest.param("(`./a.md`) [doc](./b.md)", ["./a.md", "./b.md"], id="quoted and linked"),
        pytest.param("./x.py:12", ["./x.py"], id="with a line number"),
        pytest.param(".github/ci.yml", [".github/ci.yml"], id="in a hidden folder"),
        pytest.param("/help and/or //x.y ./src/ /a.d/b ... ./ .. word./x", [], id="no file"),
    ],
)
def test_files_are_found(task: str, expected: list[str]) -> None:
    assert found(task) == [("file", value) for value in expected]


@pytest.mark.parametrize(
    ("task", "expected"),
    [
        pytest.param("fix #42.", [("issue", "#42")], id="issue"),
        pytest.param("PR #55", [("pr", "PR #55")], id="a pull request is one reference"),
        pytest.param("PR #55 closes #55", [("issue", "#55"), ("pr", "PR #55")], id="both, when both are written"),
        pytest.param("pr#55 Pr\n#56", [("pr", "pr#55"), ("pr", "Pr #56")], id="however it is spaced"),
        pytest.param("a-b/c.d#7", [("issue", "a-b/c.d#7")], id="in another repository"),
        pytest.param("PR a/c#7", [("pr", "PR a/c#7")], id="pull request in another repository"),
        pytest.param("project/app#5", [("issue", "project/app#5")], id="a repository that begins with pr"),
        pytest.param("C#7 &#42; ##5 #1.5 #12ab x/y/z#3 word#3", [], id="no issue"),
        pytest.param("https://a.io/x#42 #43", [("url", "https://a.io/x#42"), ("issue", "#43")], id="not inside a URL"),
        pytest.param("PR https://a.io #5", [("url", "https://a.io"), ("issue", "#5")], id="not across a URL"),
        pytest.param("OPS-1, OPS-2", [("ticket", "OPS-1"), ("ticket", "OPS-2")], id="custom"),
        pytest.param("https://a.io/OPS-1", [("url", "https://a.io/OPS-1")], id="no custom one inside a URL"),
    ],
)
def test_issues_pull_requests_and_custom_types_are_found(task: str, expected: list[tuple[str, str]]) -> None:
    assert found(task) == expected


def test_references_are_ordered_by_type_then_by_position() -> None:
    task = "OPS-9 PR #3 #2 ./b ./a https://b.io https://a.io"
    assert [value for _, value in found(task)] == ["https://b.io", "https://a.io", "./b", "./a", "#2", "PR #3", "OPS-9"]


def test_a_value_counts_once_regardless_of_its_type() -> None:
    twice = PreHydration(custom_patterns=(CustomPattern(ref_type="bug", pattern=r"#\d+"),))
    assert found("#1 #1 https://a.io #1, https://a.io", twice) == [("url", "https://a.io"), ("issue", "#1")]


def test_the_limit_keeps_the_first_references() -> None:
    capped = TICKETS.model_copy(update={"max_references": 2})
    assert found("OPS-1 #1 ./x", capped) == [("file", "./x"), ("issue", "#1")]


def test_a_match_of_2000_characters_is_a_reference_and_a_longer_one_is_not() -> None:
    url = "https://a.io/".ljust(2_000, "x")
    assert found(url) == [("url", url)]
    assert found(url + "x") == []


@pytest.mark.parametrize(
    ("pattern", "why"),
    [
        pytest.param("(", "missing \\)", id="no regular expression"),
        pytest.param(r"(?=x)", "no look-around", id="look-around"),
        pytest.param(r"(a)\1", "no back-references", id="back-reference"),
        pytest.param(r"(?:\pL\pN?){40}", "too large", id="a program that is too large"),
        pytest.param("\ud800", "valid string", id="a lone surrogate"),
        pytest.param("", "at least 1", id="nothing"),
    ],
)
def test_an_invalid_pattern_is_refused_at_validation(pattern: str, why: str) -> None:
    with pytest.raises(ValidationError, match=why):
        CustomPattern(ref_type="x", pattern=pattern)


@pytest.mark.parametrize(
    ("pattern", "task"),
    [
        pytest.param(r"(a+)+$", "a" * 199_000 + "!", id="nested quantifiers"),
        pytest.param(r"\w*\w*\w*\w*!", "a" * 199_000, id="many quantifiers"),
        pytest.param(r"a.*z|a", "a" * 199_000, id="matches that each scan the rest"),
        pytest.param(r"(?:a|b)*a(?:a|b){500}c", "ab" * 99_500, id="more states than fit"),
        pytest.param(r"[ab]{1,400}[ab]{0,400}c", "ab" * 99_500, id="a large program"),
    ],
)
def test_no_pattern_blocks_a_workflow_task(pattern: str, task: str) -> None:
    """The deadlock detector allows 2 s. The test measures processor time because the machine is shared."""
    hostile = tuple(CustomPattern(ref_type="x", pattern=pattern) for _ in range(20))
    start = time.process_time()
    find_references(task, PreHydration(custom_patterns=hostile, max_references=100))
    assert time.process_time() - start < 1.5


@pytest.mark.parametrize("piece", ["a/", "-.", "#1", "PR ", "PR\n#", "http://a)", "http://[:", "./a.", "((", "a/b#"])
def test_no_task_blocks_a_workflow_task(piece: str) -> None:
    start = time.process_time()
    find_references(piece * (200_000 // len(piece)), PreHydration(max_references=100))
    assert time.process_time() - start < 1.5


@LAW
@given(st.lists(st.sampled_from(PIECES + GLUE), max_size=30).map("".join), st.integers(1, 5))
def test_references_are_unique_ordered_bounded_and_part_of_the_task(task: str, most: int) -> None:
    config = TICKETS.model_copy(update={"max_references": most})
    references = find_references(task, config)
    values = [reference.value for reference in references]
    kinds = [reference.ref_type for reference in references]

    assert len(values) == len(set(values)) <= most
    assert kinds == sorted(kinds, key=["url", "file", "issue", "pr", "ticket"].index)
    assert references == find_references(task, TICKETS)[:most]
    whole = " ".join(task.split())
    for reference in references:
        assert reference.value in whole
        assert reference.value == reference.value.strip()
        assert "\x00" not in reference.value
        assert reference.ref_type != "url" or reference.value[-1] not in ".,;:!?"


@LAW
@given(st.text(max_size=200))
def test_any_text_is_accepted(task: str) -> None:
    find_references(task, TICKETS)
