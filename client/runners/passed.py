"""What the SDK passed through to a run of a kind, kept for the next: it looks at each such module by name, for long.

Only modules of the worker's own that nothing restricts are kept. What is restricted is restricted for each run anew.
"""

from types import ModuleType
from typing import NamedTuple

from temporalio.worker.workflow_sandbox._importer import Importer, _thread_local_sys_modules


class Passed(NamedTuple):
    """Modules by name."""

    modules: dict[str, ModuleType]
    plain: dict[str, ModuleType]
    """Those that are no packages."""
    below: dict[str, dict[str, ModuleType]]
    """Those that lie in a package which is made anew: by the package, and by their names in it."""


NOTHING = Passed({}, {}, {})


def passed_through(importer: Importer) -> Passed:
    """Return what a sandbox has of its worker, as the worker has it."""
    worker, looked_at = _thread_local_sys_modules.orig, importer.modules_checked_for_restrictions
    modules = {
        name: module
        for name, module in importer.new_modules.items()
        if module is worker.get(name)
        and module.__name__ == name
        and name in looked_at
        and not getattr(module.__spec__, "_initializing", False)
        and importer.module_configured_passthrough(name)
    }
    below: dict[str, dict[str, ModuleType]] = {}
    for name, module in modules.items():
        parent, _, child = name.rpartition(".")
        if parent and parent not in modules:
            below.setdefault(parent, {})[child] = module
    return Passed(modules, {name: each for name, each in modules.items() if not hasattr(each, "__path__")}, below)


def pass_through(importer: Importer, passed: Passed) -> bool:
    """Give them to a new sandbox, unless the worker has others by now; return whether that was done."""
    worker = _thread_local_sys_modules.orig
    if any(worker.get(name) is not module for name, module in passed.modules.items()):
        return False
    importer.new_modules |= passed.modules
    importer.modules_checked_for_restrictions |= passed.modules.keys()
    return True
