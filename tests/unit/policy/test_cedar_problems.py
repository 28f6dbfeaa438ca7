"""A broken policy refuses the whole set, with file, line and remedy, and misspelled names are found."""

from pathlib import Path

import pytest

from orga.activities.adapters.policy.cedar import CedarPolicies
from orga.activities.adapters.problem import BrokenPolicies
from tests.support.values.policies import PERMIT_ALL, a_folder

CALL = 'permit (principal, action == Action::"tool_call", resource)'


def problems(folder: Path, surface: str | None = None) -> list[tuple[str, str, str]]:
    with pytest.raises(BrokenPolicies) as raised:
        CedarPolicies(folder, surface)
    return [(problem.place, problem.problem, problem.remedy) for problem in raised.value.problems]


@pytest.mark.parametrize(
    ("text", "line", "problem", "remedy"),
    [
        pytest.param("permit (principal, action);", 1, "missing the `resource`", "correct it", id="no resource"),
        pytest.param(f"{CALL}\nwhen {{\n  1 <\n}};", 4, "unexpected token `}`", "correct it", id="half a comparison"),
        pytest.param(f"{PERMIT_ALL}\n\n{CALL}", 3, "unexpected end of input", "correct it", id="no semicolon"),
        pytest.param('@id("a', 1, "cannot be parsed: ", "correct it", id="an open text"),
        pytest.param(
            "permit (principal == ?principal, action, resource);", 1, "templates cannot", "write the", id="a template"
        ),
        pytest.param(
            f"{CALL}\nwhen {{\n  resource.efect == 1 }};", 3, "attribute `efect` on entity type `Tool` not found",
            "orga policy schema", id="an attribute that no tool has",
        ),
        pytest.param(
            "permit (principal, action, resource) when { resource.verified };", 1, "not found", "orga policy schema",
            id="a tool's attribute where no tool is meant",
        ),
        pytest.param(
            f'{CALL} when {{ context.arguments.path like "a" }};', 1, "optional attribute `arguments.path`",
            "write `context.arguments has path && ...` before it", id="an argument that may be missing",
        ),
        pytest.param(
            f'{CALL} when {{ context.trusted has a && context.trusted.a.b == "c" }};', 1, "`trusted.a.b`",
            "write `context.trusted.a has b && ...` before it", id="a nested fact that may be missing",
        ),
        pytest.param(
            f'{CALL} when {{ context.tenant == "acme" }};', 1, "optional attribute `tenant`",
            "write `context has tenant && ...` before it", id="a tenant that may be missing",
        ),
        pytest.param(
            f'{CALL} when {{ context.arguments has n && context.arguments.n > 1 && context.arguments.n like "a" }};', 1,
            "unexpected type", "orga policy schema", id="an argument taken for two things",
        ),
        pytest.param(f"{CALL} when {{ context has tenat }};", 1, "context never has 'tenat'", "did you mean 'tenant'?",
                     id="a misspelled name after has"),
        pytest.param(f"{CALL} when {{ context.left has token }};", 1, "context.left never has 'token'", "'tokens'",
                     id="a misspelled budget after has"),
        pytest.param(f"{CALL} when {{ resource has tag }};", 1, "resource never has 'tag'", "did you mean 'tags'?",
                     id="a misspelled attribute of a tool after has"),
        pytest.param(f'{CALL} when {{ resource.effect == "readonly" }};', 1, "'readonly' is never one of these",
                     "did you mean 'read_only'?", id="an effect that is none"),
        pytest.param(f'{CALL} when {{ ["reply", "lookup"].contains(context.purpose) }};', 1, "'lookup' is never one",
                     "known: reply, hydration", id="a purpose that is none"),
        pytest.param(f"{CALL} when {{ context.arguments == {{}} }};", 1, "context.arguments cannot be used as a whole",
                     "name its attributes", id="all arguments at once"),
        pytest.param('permit (principal, action == Action::"tool_cal", resource);', 1, "unrecognized action", "schema",
                     id="an action that is none"),
        pytest.param('permit (principal == User::"a", action, resource);', 1, "User", "schema", id="no agent"),
        pytest.param(f"@aproval(\"a\")\n{CALL};", 1, "there is no annotation @aproval", "did you mean 'approval'?",
                     id="a misspelled annotation, which would let the call through"),
        pytest.param(f'@approval("")\n@expires("soon")\n{CALL};', 2, "'soon' is no time", '"24h"', id="no time"),
        pytest.param(f'@approval("") @expires("0h") {CALL};', 1, "'0h' is no time", '"24h"', id="no time at all"),
        pytest.param(f'@expires("1h") {CALL};', 1, "@expires without @approval", "@approval", id="a time for nothing"),
        pytest.param(f'@tools("a") {CALL};', 1, "@tools narrows delegations only", "delegate", id="tools of a call"),
        pytest.param(f'@id("x") {CALL};\n@id("x") {CALL};', 2, "the id 'x' is taken by policies/a.cedar:1", "its own",
                     id="an id twice"),
    ],
)  # fmt: skip
def test_a_problem_has_its_line_and_remedy(tmp_path: Path, text: str, line: int, problem: str, remedy: str) -> None:
    found = problems(a_folder(tmp_path, a=text))
    assert found
    assert any(
        place == f"policies/a.cedar:{line}" and problem in shown and remedy in mend for place, shown, mend in found
    ), found


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(
            "forbid (principal, action, resource) when { context.arguments has p && context.arguments.p > 1 };",
            id="in every action",
        ),
        pytest.param('permit (principal, action, resource); // ; "open', id="an end and a text in a comment"),
        pytest.param('@description("a; b // c \\" d") permit (principal, action, resource);', id="an end in a text"),
        pytest.param("permit (principal,\n\n action, // all\n resource)\n\n;;"[:-1], id="over many lines"),
        pytest.param("@inactive forbid (principal, action, resource) when { context.nonsense };", id="inactive"),
        pytest.param(f"{CALL} when {{ context.left has iterations && context.left.iterations > 1 }};", id="a budget"),
        pytest.param(
            f"{CALL} when {{ context.arguments has a && context.trusted has b\n"
            "&& context.arguments.a == context.trusted.b };",
            id="an argument that is a trusted fact",
        ),
        pytest.param(
            f"{CALL} when {{ if context.arguments has a then context.arguments.a else false }};", id="a choice"),
        pytest.param(
            f"{CALL} when {{ context.arguments has a && [1, 2].contains(context.arguments.a) }};", id="one of some"),
        pytest.param(
            f"{CALL} when {{ context.arguments has a && context.arguments.a.containsAny([\"x\"]) }};", id="some"),
        pytest.param(f"{CALL} when {{ context.arguments has a && !context.arguments.a.isEmpty() }};", id="not empty"),
        pytest.param(
            f"{CALL} when {{ context.arguments has a && context.arguments.a * 2 - 1 <= context.depth }};", id="sums"),
        pytest.param(
            f'{CALL} when {{ context.arguments has a && context.arguments.a == {{x: 1, "y": ["a"]}} }};', id="record"),
    ],
)  # fmt: skip
def test_valid_policies_are_accepted(tmp_path: Path, text: str) -> None:
    CedarPolicies(a_folder(tmp_path, a=text))


def test_all_problems_of_all_files_are_reported(tmp_path: Path) -> None:
    folder = a_folder(tmp_path, a=f"nonsense;\n{PERMIT_ALL}\nmore nonsense;", prod__b="@nope " + PERMIT_ALL)
    (folder / "c.cedar").write_bytes(b"// \xff")
    assert [place for place, _, _ in problems(folder, "prod")] == [
        "policies/a.cedar:1",
        "policies/a.cedar:3",
        "policies/c.cedar",
        "policies/prod/b.cedar:1",
    ]


@pytest.mark.parametrize(
    "surface", [pytest.param(None, id="the folder"), pytest.param("prod", id="the folder of the surface")]
)
def test_a_missing_folder_is_a_problem(tmp_path: Path, surface: str | None) -> None:
    folder = a_folder(tmp_path) if surface else tmp_path / "gone"
    missing = folder / surface if surface else folder
    assert problems(folder, surface) == [
        (str(missing), "there is no such folder", "create it, or correct [policy]"),
    ]


def test_an_unreadable_file_is_a_problem(tmp_path: Path) -> None:
    """Otherwise its `forbid` rules would be lost."""
    folder = a_folder(tmp_path, a=PERMIT_ALL)
    (folder / "b.cedar").mkdir()
    assert problems(folder)[0][0] == str(folder / "b.cedar")
