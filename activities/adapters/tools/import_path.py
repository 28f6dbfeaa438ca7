"""Import paths of functions, `package.module:function`."""

import hashlib
import importlib
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from orga.activities.adapters.tools.tool_modules import hold_module


def imported(path: str, folders: Sequence[Path] = ()) -> tuple[Callable[..., Any], str]:
    """Return the function of an import path, and the digest of the code that it was read from.

    Args:
        path: Of the function.
        folders: Where modules are that are not installed.

    Raises:
        ValueError: With what is wrong and what to change.
    """
    module_name, colon, attribute = path.partition(":")
    if not (colon and attribute and all(name.isidentifier() for name in module_name.split("."))):
        raise ValueError("an import path is written package.module:function")
    digest = hold_module(module_name, folders)
    try:
        found: Any = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        where = "".join(f" in {folder}," for folder in folders[:1])
        raise ValueError(
            f"there is no module {error.name}{where} and none is installed; check the spelling and PYTHONPATH"
        ) from error
    for name in attribute.split("."):
        if not hasattr(found, name):
            raise ValueError(f"module {module_name} has no {attribute}; check the spelling")
        found = getattr(found, name)
    if not callable(found):
        raise ValueError(f"{attribute} is {type(found).__name__}, not a function")  # noqa: TRY004
    return found, digest or _digest_of_installed(module_name)


def _digest_of_installed(module_name: str) -> str:
    try:
        return f"sha256:{hashlib.sha256(Path(sys.modules[module_name].__file__ or '').read_bytes()).hexdigest()}"
    except (OSError, AttributeError):
        return ""


def path_of(function: Callable[..., Any]) -> str:
    """Return the import path of a function.

    Raises:
        ValueError: It has none, being made inside another function, a method of an object, or in a script.
    """
    module, name = getattr(function, "__module__", "__main__"), getattr(function, "__qualname__", "<object>")
    path = f"{module}:{name}"
    if module == "__main__" or "<" in name or imported(path)[0] is not function:
        raise ValueError("a process of its own cannot import it; define it at the top of a module")
    return path
