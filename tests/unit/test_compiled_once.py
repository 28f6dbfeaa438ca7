"""Workflow modules are imported anew for each run, and compiled once for all of them."""

import sys
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import module_from_spec
from types import CodeType, ModuleType

import pytest

import workflows.decisions
from client.compiled_once import _Finder, compile_once


def found(finder: _Finder, name: str) -> ModuleSpec | None:
    return finder.find_spec(name, list(workflows.decisions.__path__))


def imported(finder: _Finder, name: str) -> ModuleType:
    spec = found(finder, name)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_runs_share_code_and_nothing_else() -> None:
    finder = _Finder()
    one, other = (imported(finder, "workflows.decisions.limits") for _ in range(2))

    assert one is not other
    assert one.stop_reason is not other.stop_reason
    assert one.stop_reason.__code__ is other.stop_reason.__code__
    assert one.__file__ == other.__file__
    assert one.__spec__ is not other.__spec__


def test_it_is_compiled_once(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: list[str] = []
    compile_for_real = SourceFileLoader.get_code

    def counted(loader: SourceFileLoader, name: str) -> CodeType | None:
        compiled.append(name)
        return compile_for_real(loader, name)

    monkeypatch.setattr(SourceFileLoader, "get_code", counted)
    finder = _Finder()
    for _ in range(3):
        imported(finder, "workflows.decisions.clock")
    assert compiled == ["workflows.decisions.clock"]


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("activities.ports", id="no workflow module"),
        pytest.param("workflows.decisions.nothing", id="no module at all"),
    ],
)
def test_what_it_does_not_find_others_may(name: str) -> None:
    assert found(_Finder(), name) is None


def test_it_is_set_up_once() -> None:
    compile_once()
    compile_once()
    assert [type(finder) for finder in sys.meta_path].count(_Finder) == 1
