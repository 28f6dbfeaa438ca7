"""How one run's sandbox imports: what is there at once, modules of ours from their held code, all else as the SDK does.

The SDK (temporalio 1.35) takes each `import` of a module that is there already through Python's whole importer, and
each module of ours through its finders and locks besides. Nothing is shared that was not: the code of our modules is
run for each sandbox as ever, and the SDK goes on to say what is restricted and what is passed through. What it passed
through to one run is there for the next from the beginning (`passed.py`).

The SDK's restricted builtins are found by thread, at each use, since all programs share Python's. A module of ours has
them for itself, and is restricted in whatever thread it runs.
"""

import builtins
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import Any

from temporalio.worker.workflow_sandbox._importer import Importer

from orga.client.runners.passed import Passed
from orga.own_code import is_ours, pin


def quick_import(importer: Importer, passed: Passed) -> Callable[..., ModuleType]:
    """Return what stands for `__import__` in one sandbox, which was given what was passed through to another."""
    quick = _QuickImport(importer, passed)
    modules, plain, find = importer.new_modules, quick.plain, quick.find

    def import_(
        name: str,
        given: Mapping[str, object] | None = None,
        local: Mapping[str, object] | None = None,
        fromlist: Sequence[str] | None = (),
        level: int = 0,
    ) -> ModuleType:
        module = plain.get(name)
        if module is not None and fromlist and not level and modules.get(name) is module:
            return module
        return find(name, given, local, fromlist, level)

    quick.builtins["__import__"] = import_
    return import_


class _QuickImport:
    def __init__(self, importer: Importer, passed: Passed) -> None:
        self._passed = passed
        self._finder = pin()
        self._modules = importer.new_modules
        self._looked_at = importer.modules_checked_for_restrictions
        self._is_passed_through = importer.module_configured_passthrough
        self._careful: Callable[..., ModuleType] = importer.import_func
        self.plain = dict(passed.plain)
        """Modules, no packages, that were found to be ready: a restricted module is slow to say so."""
        self._packages: dict[str, ModuleType] = {}
        """Packages that were found to be ready."""
        restricted: list[tuple[str, Any, Any]] = importer.restricted_builtins  # pyright: ignore
        self.builtins: dict[str, Any] = vars(builtins) | {name: function for name, _, function in restricted}

    def find(
        self,
        name: str,
        given: Mapping[str, object] | None,
        local: Mapping[str, object] | None,
        fromlist: Sequence[str] | None,
        level: int,
    ) -> ModuleType:
        """Return what an import statement asks for."""
        module = None if level else self._module(name)
        if module is not None and self._is_ready(name, module):
            if not fromlist:
                top = name.partition(".")[0]
                if top in self._modules and self._is_ready(top, self._modules[top]):
                    return self._modules[top]
            elif name not in self._packages or self._has_all(module, fromlist):
                return module
        return self._careful(name, given, local, fromlist or (), level)

    def _module(self, name: str) -> ModuleType | None:
        """Return a module that is there, or one of ours, whose code is run for it; None where the SDK is to say."""
        if (there := self._modules.get(name)) is not None:
            return there
        if not is_ours(name) or self._is_passed_through(name):
            return None
        parent, _, child = name.rpartition(".")
        package = self._module(parent) if parent else None
        if parent and package is None:
            return None
        module = self._run(name)
        if module is not None:
            self._looked_at.add(name)
            if package is not None:
                setattr(package, child, module)
        return module

    def _is_ready(self, name: str, module: ModuleType) -> bool:
        """Return whether its code was run to the end, and the SDK has looked whether it is to be restricted."""
        if self.plain.get(name) is module or self._packages.get(name) is module:
            return True
        spec = module.__spec__
        if spec is None or module.__name__ not in self._looked_at or getattr(spec, "_initializing", False):
            return False
        ready = self.plain if spec.submodule_search_locations is None else self._packages
        ready[name] = module
        return True

    def _has_all(self, package: ModuleType, names: Sequence[str]) -> bool:
        """Return whether all that is imported from it is there; modules of ours, in a package of ours, are brought."""
        if type(package) is not ModuleType:  # the SDK's proxy of a restricted package says what may be had of it
            return False
        held = vars(package)
        return all(name in held or self._module(f"{package.__name__}.{name}") is not None for name in names)

    def _run(self, name: str) -> ModuleType | None:
        """Run the code of a module of ours, for this sandbox alone; return None where there is no such module."""
        try:
            spec = self._finder.find_spec(name)
        except ModuleNotFoundError:
            return None
        if spec is None or spec.loader is None:
            return None
        module = ModuleType(name)
        held: dict[str, Any] = vars(module)
        held["__builtins__"] = self.builtins
        held |= {"__spec__": spec, "__loader__": spec.loader, "__file__": spec.origin, "__package__": spec.parent}
        if spec.submodule_search_locations is not None:
            held["__path__"] = spec.submodule_search_locations
        self._modules[name] = module
        spec._initializing = True  # pyright: ignore
        try:
            exec(spec.loader.get_code(name), held)  # pyright: ignore
        except BaseException:
            self._modules.pop(name, None)
            raise
        spec._initializing = False  # pyright: ignore
        held |= self._passed.below.get(name, {})
        return module
