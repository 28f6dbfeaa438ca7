"""Each field of the state has one owner and changes only through its owner's typed method."""

# pyright: reportUnnecessaryTypeIgnoreComment=true

import ast
from collections.abc import Callable
from pathlib import Path
from typing import get_type_hints

import pytest
from pydantic import BaseModel

from orga.workflows.types.control import Control, ControlChanges
from orga.workflows.types.conversation import ConversationChanges
from orga.workflows.types.messages import Reply, ReplyChanges, ToolCall
from orga.workflows.types.models.usage import MoreCalls, ToolCallCounts, Usage, UsageChanges
from orga.workflows.types.parts import CallChanges
from orga.workflows.types.record import Record
from orga.workflows.types.state import (
    AgentState,
    Budget,
    BudgetChanges,
    Conversation,
    Dialogue,
    DialogueChanges,
    Failures,
    FailuresChanges,
    Family,
    FamilyChanges,
    Task,
    TaskChanges,
)
from tests.support.values.core import a_state

ROOT = Path(__file__).parents[3]
CODE = ("workflows", "activities", "client", "worker.py")

IMPLEMENTATION = "workflows/types/record.py"
"""The file that may set fields by name. All other code uses a record's typed methods."""

OWN_SETTER = "activities/adapters/mcp/login.py"
"""The file with a subclass of the SDK's metadata, which ignores one assignment. It has no record."""

OWNERS: dict[type[Record], type] = {
    Control: ControlChanges,
    Task: TaskChanges,
    Dialogue: DialogueChanges,
    Budget: BudgetChanges,
    Failures: FailuresChanges,
    Family: FamilyChanges,
}

CHANGES: dict[type[Record], type] = {
    **OWNERS,
    Conversation: ConversationChanges,
    ToolCallCounts: MoreCalls,
    Usage: UsageChanges,
    ToolCall: CallChanges,
    Reply: ReplyChanges,
}

BY_KEYWORD = frozenset({*(f"with_{owner.__name__.lower()}" for owner in OWNERS), "with_fields", "with_differences"})
"""Methods whose keywords the type checker reads. `**changes` would hide them from it."""

COPIES = frozenset({"replace_fields", "replace_differing_fields"})
"""They take fields by name. Only a record's own methods may use them, for `self`."""

UNCHECKED = frozenset({"model_copy", "model_construct", "__dict__", "__setattr__"})
"""Attributes that could change a record without its methods. A `model_copy()` without changes is allowed."""


def own_fields(owner: type[BaseModel]) -> dict[str, object]:
    hints = get_type_hints(owner)
    return {name: hints[name] for name in owner.model_fields}


def by(state: AgentState, owner: type) -> Callable[..., AgentState]:
    return getattr(state, f"with_{owner.__name__.lower()}")


def test_each_field_of_the_state_has_exactly_one_owner() -> None:
    owned = [name for owner in OWNERS for name in owner.model_fields]
    assert sorted(owned) == sorted(AgentState.model_fields)
    assert set(AgentState.__bases__) == set(OWNERS)


@pytest.mark.parametrize("owner", CHANGES, ids=lambda owner: owner.__name__)
def test_the_changes_of_an_owner_have_the_types_of_its_fields(owner: type[Record]) -> None:
    assert get_type_hints(CHANGES[owner]) == own_fields(owner)


def test_the_type_checker_refuses_wrong_names_types_and_owners() -> None:
    """If one of them were accepted, its `ignore` would be unnecessary, which is an error in this file."""
    state = a_state()
    with pytest.raises(TypeError):
        state.with_budget(over_buget=1)  # pyright: ignore[reportCallIssue]
    with pytest.raises(TypeError):
        state.with_control(over_budget=1)  # pyright: ignore[reportCallIssue]
    state.with_budget(over_budget="1")  # pyright: ignore[reportArgumentType]
    state.with_control(stop=("done", ""))  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("owner", OWNERS, ids=lambda owner: owner.__name__)
def test_a_misspelt_key_raises(owner: type[Record]) -> None:
    with pytest.raises(TypeError, match="over_buget"):
        by(a_state(), owner)(over_buget=1)


@pytest.mark.parametrize("owner", OWNERS, ids=lambda owner: owner.__name__)
def test_an_owner_changes_its_own_fields_and_refuses_those_of_others(owner: type[Record]) -> None:
    state = a_state()
    for name in AgentState.model_fields:
        if name in owner.model_fields:
            assert by(state, owner)(**{name: "other"}).__dict__ == state.__dict__ | {name: "other"}
        else:
            with pytest.raises(TypeError, match=name):
                by(state, owner)(**{name: "other"})


def test_a_change_leaves_the_earlier_state_unchanged_and_is_serialised() -> None:
    before = a_state()
    after = before.with_control(doing="acting")
    assert (before.phase, after.phase) == ("preparing", "acting")
    assert after.model_fields_set - before.model_fields_set == {"doing"}


def test_a_record_refuses_a_field_that_it_does_not_have() -> None:
    with pytest.raises(TypeError, match="Conversation has no such field here: mesages"):
        Conversation().with_fields(**{"mesages": ()})  # pyright: ignore[reportArgumentType]


def test_any_workflow_can_inherit_the_control() -> None:
    """Its own fields are next to the control, and the control depends on nothing of an agent."""

    class Other(Control):
        goal: str = ""

    clock = a_state().clock
    other = Other(origin="o", clock=clock, goal="g").with_control(paused=True)
    assert (type(other), other.goal, other.paused) == (Other, "g", True)
    assert known_to(Control.__module__) == {
        *("control", "questions", "record", "text"),
    }


def known_to(module: str) -> set[str]:
    """Return the names of the type modules that a module imports, directly or not, including itself."""
    package, _, name = module.rpartition(".")
    found, left = set[str](), [name]
    while left:
        found.add(at := left.pop())
        tree = ast.parse((ROOT / package.replace(".", "/") / f"{at}.py").read_text())
        imported = [node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
        left += [each.rpartition(".")[2] for each in imported if each.startswith(f"{package}.")]
        left = [each for each in left if each not in found]
    return found


def untyped_updates(source: str) -> list[int]:
    """Return the lines that change fields by names that no type checker reads."""
    nodes = list(ast.walk(ast.parse(source)))
    calls = [node for node in nodes if isinstance(node, ast.Call)]
    harmless = {
        id(call.func) for call in calls if name_of(call.func) == "model_copy" and not (call.args or call.keywords)
    }
    own = {id(call.func) for call in calls if call.args and name_of(call.args[0]) == "self"}
    found = [node for node in nodes if name_of(node) in UNCHECKED and id(node) not in harmless]
    found += [node for node in nodes if isinstance(node, ast.Name | ast.Attribute) and is_copy(node, own)]
    found += [
        call for call in calls if name_of(call.func) in BY_KEYWORD and any(word.arg is None for word in call.keywords)
    ]
    return sorted(node.lineno for node in found if isinstance(node, ast.expr))


def name_of(node: ast.AST) -> str:
    match node:
        case ast.Attribute(attr=name) | ast.Name(id=name):
            return name
        case _:
            return ""


def is_copy(node: ast.AST, own: set[int]) -> bool:
    return name_of(node) in COPIES and id(node) not in own


def misspelt(source: str) -> list[str]:
    """Return the changes in a class's own methods whose name is not an annotated field."""
    found: list[str] = []
    for kind in (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.ClassDef)):
        fields = {
            each.target.id
            for each in kind.body
            if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name)
        }
        calls = (node for node in ast.walk(kind) if isinstance(node, ast.Call) and name_of(node.func) in COPIES)
        literals = (argument for call in calls for argument in call.args if isinstance(argument, ast.Dict))
        keys = (key for literal in literals for key in literal.keys)
        found += [
            f"{kind.name}.{ast.unparse(key)}" if key else f"{kind.name}: **"
            for key in keys
            if not is_one_of(key, fields)
        ]
    return found


def is_one_of(key: ast.expr | None, fields: set[str]) -> bool:
    return isinstance(key, ast.Constant) and key.value in fields


def files() -> list[Path]:
    paths = [ROOT / part for part in CODE]
    return sorted(file for path in paths for file in ([path] if path.suffix else path.rglob("*.py")))


def test_no_update_is_untyped() -> None:
    places = {file.relative_to(ROOT).as_posix(): untyped_updates(file.read_text()) for file in files()}
    assert len(places.pop(IMPLEMENTATION)) == 2, "the updating function and its caller"
    assert len(places.pop(OWN_SETTER)) == 1, "a class of the MCP SDK with a setter of its own"
    assert {path: lines for path, lines in places.items() if lines} == {}


def test_records_change_only_fields_that_they_have() -> None:
    assert [found for file in files() for found in misspelt(file.read_text())] == []


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        pytest.param('state.model_copy(update={"over_buget": 1})', [1], id="an update by names"),
        pytest.param("x = 1\nstate.model_copy(update=changes)", [2], id="an update by names made elsewhere"),
        pytest.param("partial(state.model_copy, deep=True)", [1], id="an update passed as a function"),
        pytest.param("AgentState.model_construct(**fields)", [1], id="a record without validation"),
        pytest.param('replace_fields(state, {"phase": "x"})', [1], id="a copy of another record"),
        pytest.param("change(replace_fields)", [1], id="a copy passed as a function"),
        pytest.param('record.replace_fields(state, {"phase": "x"})', [1], id="a copy by its module"),
        pytest.param("state.with_budget(**changes)", [1], id="keywords that are not checked"),
        pytest.param('state.__dict__["phase"] = "x"', [1], id="past the methods"),
        pytest.param('object.__setattr__(state, "phase", "x")', [1], id="past the record"),
        pytest.param('replace_fields(self, {"phase": "x"})', [], id="a record's own"),
        pytest.param('state.with_control(doing="x").with_budget(under_way=0)', [], id="typed methods"),
        pytest.param("config.model_copy()", [], id="a plain copy"),
    ],
)
def test_an_untyped_update_is_found_by_its_line(source: str, expected: list[int]) -> None:
    assert untyped_updates(source) == expected


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        pytest.param('{"text": text}', [], id="a field"),
        pytest.param('{"txet": text}', ["Message.'txet'"], id="misspelt"),
        pytest.param('{"text": text, **more}', ["Message: **"], id="names that are not checked"),
    ],
)
def test_a_misspelt_field_of_a_record_is_found(changes: str, expected: list[str]) -> None:
    method = f"def with_text(self, text):\n        return replace_fields(self, {changes})"
    assert misspelt(f"class Message(Record):\n    text: str = ''\n    {method}") == expected
