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

Import = Callable[..., ModuleType]


def quick_import(importer: Importer) -> Import:
    """Return what stands for `__import__` in the sandbox of this importer."""
    modules, known = importer.new_modules, importer.modules_checked_for_restrictions
    careful: Import = importer.import_func

    def load(name: str) -> ModuleType | None:
        """Return a module that is there, or one of ours, whose code is run for it; None where the SDK is to say."""
        if (there := modules.get(name)) is not None:
            return there
        if not is_ours(name) or importer.module_configured_passthrough(name):
            return None
        parent, _, child = name.rpartition(".")
        package = load(parent) if parent else None
        module = _run(name, modules) if package is not None or not parent else None
        if module is None:
            return None
        known.add(name)
        if package is not None:
            setattr(package, child, module)
        return module

    def quick(
        name: str,
        given: Mapping[str, object] | None = None,
        local: Mapping[str, object] | None = None,
        fromlist: Sequence[str] | None = (),
        level: int = 0,
    ) -> ModuleType:
        module = None if level else load(name)
        if module is not None and _is_ready(module, known):
            if not fromlist:
                top = modules.get(name.partition(".")[0])
                if top is not None and _is_ready(top, known):
                    return top
            elif _has_all(module, fromlist, load):
                return module
        return careful(name, given, local, fromlist or (), level)

    return quick


def _run(name: str, modules: dict[str, ModuleType]) -> ModuleType | None:
    """Run the code of a module of ours, for this sandbox alone; return None where there is no such module."""
    try:
        spec = pin().find_spec(name)
    except ModuleNotFoundError:
        return None
    if spec is None or spec.loader is None:
        return None
    module = ModuleType(name)
    held: dict[str, Any] = module.__dict__
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


def _is_ready(module: ModuleType, known: set[str]) -> bool:
    """Return whether its code was run to the end, and the SDK has looked whether it is to be restricted."""
    if module.__name__ not in known or module.__spec__ is None:
        return False
    return not getattr(module.__spec__, "_initializing", False)


def _has_all(module: ModuleType, names: Sequence[str], load: Callable[[str], ModuleType | None]) -> bool:
    """Return whether all that is imported from it is there; modules of ours, in a package of ours, are brought."""
    if module.__spec__ is None or module.__spec__.submodule_search_locations is None:
        return True
    if type(module) is not ModuleType:  # the SDK's proxy of a restricted package says what may be had of it
        return False
    return all(name in module.__dict__ or load(f"{module.__name__}.{name}") is not None for name in names)
