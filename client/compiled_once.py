"""Workflow modules are compiled once in a process, although the sandbox imports them anew for every run."""

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from importlib.util import spec_from_file_location
from types import CodeType, ModuleType

PACKAGE = "workflows."


def compile_once() -> None:
    """See to it that workflow modules share their code: where Python keeps no bytecode, that is most of an import.

    It also keeps a worker whole while its files change: all its runs get the code that its first one got.
    """
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())


class _Finder(MetaPathFinder):
    """Finds workflow modules; where they are is looked up once."""

    def __init__(self) -> None:
        self._found: dict[str, tuple[_Loader, list[str] | None]] = {}

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if not fullname.startswith(PACKAGE):
            return None
        if fullname not in self._found:
            spec = PathFinder.find_spec(fullname, path, target)
            if spec is None or type(spec.loader) is not SourceFileLoader:
                return spec
            self._found[fullname] = (_Loader(fullname, spec.loader.path), spec.submodule_search_locations)
        loader, locations = self._found[fullname]
        return spec_from_file_location(fullname, loader.path, loader=loader, submodule_search_locations=locations)


class _Loader(SourceFileLoader):
    """Loads one module, whose code is kept. Code cannot be changed, so runs still share nothing."""

    _code: CodeType | None = None

    def get_code(self, fullname: str) -> CodeType | None:
        self._code = self._code or super().get_code(fullname)
        return self._code
