"""Import paths of functions, `package.module:function`."""

import importlib
from collections.abc import Callable
from typing import Any


def imported(path: str) -> Callable[..., Any]:
    """Return the function of an import path.

    Raises:
        ValueError: With what is wrong and what to change.
    """
    module_name, colon, attribute = path.partition(":")
    if not (module_name and colon and attribute):
        raise ValueError("an import path is written package.module:function")
    try:
        found: Any = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        raise ValueError(f"there is no module {error.name}; check the spelling and PYTHONPATH") from error
    for name in attribute.split("."):
        if not hasattr(found, name):
            raise ValueError(f"module {module_name} has no {attribute}; check the spelling")
        found = getattr(found, name)
    if not callable(found):
        raise ValueError(f"{attribute} is {type(found).__name__}, not a function")  # noqa: TRY004
    return found


def path_of(function: Callable[..., Any]) -> str:
    """Return the import path of a function.

    Raises:
        ValueError: It has none, being made inside another function, a method of an object, or in a script.
    """
    module, name = getattr(function, "__module__", "__main__"), getattr(function, "__qualname__", "<object>")
    path = f"{module}:{name}"
    if module == "__main__" or "<" in name or imported(path) is not function:
        raise ValueError("a process of its own cannot import it; define it at the top of a module")
    return path
