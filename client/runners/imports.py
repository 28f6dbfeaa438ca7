"""How one run's sandbox imports: what is there at once, modules of ours from their held code, all else as the SDK does.

The SDK (temporalio 1.35) takes each `import` of a module that is there already through Python's whole importer, and
each module of ours through its finders and locks besides. Nothing is shared that was not: the code of our modules is
run for each sandbox as ever, and the SDK goes on to say what is restricted and what is passed through.
"""

from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import Any

from temporalio.worker.workflow_sandbox._importer import Importer

from orga.own_code import is_ours, pin


class QuickImport:
    """What stands for `__import__` in one sandbox."""

    def __init__(self, importer: Importer) -> None:
        self._modules = importer.new_modules
        self._looked_at = importer.modules_checked_for_restrictions
        self._is_passed_through = importer.module_configured_passthrough
        self._careful: Callable[..., ModuleType] = importer.import_func
        self._ready: dict[str, ModuleType] = {}
        """Those that were found to be ready: a restricted module is slow to say so."""
        self._packages: set[str] = set()
        """Those of them that have modules below."""

    def __call__(
        self,
        name: str,
        given: Mapping[str, object] | None = None,
        local: Mapping[str, object] | None = None,
        fromlist: Sequence[str] | None = (),
        level: int = 0,
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
        module = _run(name, self._modules)
        if module is not None:
            self._looked_at.add(name)
            if package is not None:
                setattr(package, child, module)
        return module

    def _is_ready(self, name: str, module: ModuleType) -> bool:
        """Return whether its code was run to the end, and the SDK has looked whether it is to be restricted."""
        if self._ready.get(name) is module:
            return True
        spec = module.__spec__
        if spec is None or module.__name__ not in self._looked_at or getattr(spec, "_initializing", False):
            return False
        self._ready[name] = module
        if spec.submodule_search_locations is not None:
            self._packages.add(name)
        return True

    def _has_all(self, package: ModuleType, names: Sequence[str]) -> bool:
        """Return whether all that is imported from it is there; modules of ours, in a package of ours, are brought."""
        if type(package) is not ModuleType:  # the SDK's proxy of a restricted package says what may be had of it
            return False
        held = vars(package)
        return all(name in held or self._module(f"{package.__name__}.{name}") is not None for name in names)


def _run(name: str, modules: dict[str, ModuleType]) -> ModuleType | None:
    """Run the code of a module of ours, for this sandbox alone; return None where there is no such module."""
    try:
        spec = pin().find_spec(name)
    except ModuleNotFoundError:
        return None
    if spec is None or spec.loader is None:
        return None
    module = ModuleType(name)
    held: dict[str, Any] = vars(module)
    held |= {"__spec__": spec, "__loader__": spec.loader, "__file__": spec.origin, "__package__": spec.parent}
    if spec.submodule_search_locations is not None:
        held["__path__"] = spec.submodule_search_locations
    modules[name] = module
    spec._initializing = True  # pyright: ignore
    try:
        spec.loader.exec_module(module)
    except BaseException:
        modules.pop(name, None)
        raise
    spec._initializing = False  # pyright: ignore
    return module
