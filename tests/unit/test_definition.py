"""A run's class is the workflow that the SDK's own decorator would make of it, with the run's own functions."""

import sys
from importlib import import_module
from typing import Any, cast

import pytest
from temporalio import workflow

from orga.workflows.types import definition

DEFINITION = cast(Any, workflow)._Definition


@pytest.fixture
def made_anew(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Make a workflow's class once more, as each sandbox does."""

    def make(module: str, name: str) -> tuple[Any, Any]:
        before = getattr(import_module(module), name)
        for each in [one for one in sys.modules if one.startswith("orga.workflows.") and ".types" not in one]:
            monkeypatch.delitem(sys.modules, each)
        again = getattr(import_module(module), name)
        assert again is not before
        return before, again

    return make


def told(defn: Any, *, by_function: bool) -> dict[str, Any]:
    """Return all that a definition says; functions by what they are called."""

    def shown(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: shown(each) for key, each in cast("dict[Any, Any]", value).items()}
        if hasattr(value, "__dataclass_fields__") and not isinstance(value, type):
            return {field: shown(getattr(value, field)) for field in value.__dataclass_fields__}
        if callable(value) and hasattr(value, "__qualname__"):
            return value if by_function else value.__qualname__
        return value

    return shown(defn)


@pytest.mark.parametrize(
    ("module", "name"), [("orga.workflows.agent", "AgentWorkflow"), ("orga.workflows.goal", "GoalWorkflow")]
)
def test_it_is_what_the_sdk_makes_of_the_same_class(
    made_anew: Any, monkeypatch: pytest.MonkeyPatch, module: str, name: str
) -> None:
    _, quick = made_anew(module, name)
    monkeypatch.setattr(definition, "_known", {})
    _, by_sdk = made_anew(module, name)
    one, other = (DEFINITION.must_from_class(each) for each in (quick, by_sdk))
    assert told(one, by_function=False) == told(other, by_function=False)
    assert one.signals
    assert one.queries
    assert one.updates
    assert one.run_fn is quick.run
    assert DEFINITION.must_from_run_fn(quick.run) is one


def test_no_function_of_another_run_is_in_it(made_anew: Any) -> None:
    before, again = made_anew("orga.workflows.agent", "AgentWorkflow")
    one, other = (DEFINITION.must_from_class(each) for each in (before, again))
    assert other.cls is again
    for handlers in ("signals", "queries", "updates"):
        for key, each in getattr(other, handlers).items():
            assert each.fn is not getattr(one, handlers)[key].fn
            assert each.fn.__globals__ is not getattr(one, handlers)[key].fn.__globals__


def test_another_sdk_makes_it_itself(made_anew: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    looked_through: list[type[Any]] = []
    defn = workflow.defn

    def noting(*, name: str) -> Any:
        def decorate(cls: type[Any]) -> Any:
            looked_through.append(cls)
            return defn(name=name)(cls)

        return decorate

    monkeypatch.setattr(workflow, "defn", noting)
    made_anew("orga.workflows.agent", "AgentWorkflow")
    assert looked_through == []
    monkeypatch.setattr(definition, "knows_sdk", lambda: False)
    _, again = made_anew("orga.workflows.agent", "AgentWorkflow")
    assert looked_through == [again]


def test_the_sdk_that_is_locked_is_known() -> None:
    """Another one is left to itself, and sandboxes cost three times as much: look through `light.py` and go on."""
    assert definition.knows_sdk()
