"""Imports functions by their path `package.module:function`, and returns a digest of their code."""

import ast
import hashlib
import importlib
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from itertools import accumulate
from pathlib import Path
from typing import Any

from orga.finder import HeldLoader
from orga.own_code import is_ours, outside_module_path, pin


def _hold_module(name: str, folders: Sequence[Path]) -> str:
    """Read a module and its imports from the first folder that has it, and hold them for Python's imports.

    Return a digest of all of them, or "" if no folder has the module. Python then runs the code of this digest, even if
    the files change. Raise ValueError if another module has the same name, or a file is not valid Python.
    """
    folder = next((folder for folder in folders if _module_file(folder, name)), None)
    if folder is None:
        return ""
    top = name.partition(".")[0]
    if is_ours(top):
        raise ValueError(f"the name {top} belongs to orga itself; give the module in {folder} another one")
    if elsewhere := _other_location(folder, top):
        raise ValueError(f"there are two modules {top}, in {folder} and {elsewhere}; give yours another name")
    found = _module_closure(name, folder)
    digest = hashlib.sha256()
    for found_name, loader in sorted(found.items()):
        _hold(found_name, loader)
        digest.update(f"{found_name}\0{hashlib.sha256(loader.source or b'').hexdigest()}\n".encode())
    return f"sha256:{digest.hexdigest()}"


def _module_closure(name: str, folder: Path) -> dict[str, HeldLoader]:
    """Return the module, its packages, and all modules of the folder that they import, also inside functions."""
    other_location = cache(partial(_other_location, folder))
    found: dict[str, HeldLoader] = {}
    wanted = [name]
    while wanted:
        parts = wanted.pop().split(".")
        if other_location(parts[0]) is not None:
            continue
        for package_or_module in accumulate(parts, "{}.{}".format):
            if package_or_module not in found and (loader := _module_loader(folder, package_or_module)):
                found[package_or_module] = loader
                wanted += _imported_names(package_or_module, loader)
    return found


def _other_location(folder: Path, top: str) -> str | None:
    """Return where Python finds a top-level module if that is not in the folder, or None."""
    if is_ours(top):
        return "orga"
    outside, own = outside_module_path(top), _module_file(folder, top)
    if outside and own and own.resolve() == Path(outside).resolve():  # the folder is on `sys.path`
        return None
    return outside


def _module_file(folder: Path, name: str) -> Path | None:
    package = folder.joinpath(*name.split("."))
    files = (package / "__init__.py", package.with_name(f"{package.name}.py"))
    return next((file for file in files if file.is_file()), None)


def _module_loader(folder: Path, name: str) -> HeldLoader | None:
    file, package = _module_file(folder, name), folder.joinpath(*name.split("."))
    if file is None:  # a folder without __init__.py is also a package
        return HeldLoader(name, str(package / "__init__.py"), b"") if package.is_dir() else None
    return HeldLoader(name, str(file), file.read_bytes())


def _imported_names(name: str, loader: HeldLoader) -> Iterator[str]:
    try:
        tree = ast.parse(loader.source or b"", loader.path)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:  # the last two if it is nested too deeply
        raise ValueError(f"{loader.path} is no Python: {error}") from error
    package = name if loader.is_package(name) else name.rpartition(".")[0]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package.rsplit(".", node.level - 1)[0] if node.level else ""  # one dot means the package itself
            module = _dotted_name(base, node.module)
            yield module
            yield from (_dotted_name(module, alias.name) for alias in node.names)


def _dotted_name(*names: str | None) -> str:
    return ".".join(filter(None, names))


def _hold(name: str, loader: HeldLoader) -> None:
    held = pin().loaders
    before = held.get(name)
    if before is not None and (before.path, before.source) == (loader.path, loader.source):
        return
    held[name] = loader
    if before is not None:  # a module of another folder, or an older version
        sys.modules.pop(name, None)


def import_function(path: str, folders: Sequence[Path] = ()) -> tuple[Callable[..., Any], str]:
    """Return the function, and the digest of its code, or "" if no file has its code. Raise ValueError with the remedy.

    The folders are searched before the installed modules.
    """
    module_name, colon, attribute = path.partition(":")
    if not (colon and attribute and all(name.isidentifier() for name in module_name.split("."))):
        raise ValueError("an import path is written package.module:function")
    digest = _hold_module(module_name, folders)
    try:
        found: Any = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        where = f" in {folders[0]}," if folders else ""
        raise ValueError(
            f"there is no module {error.name}{where} and none is installed; check the spelling and PYTHONPATH"
        ) from error
    for name in attribute.split("."):
        if not hasattr(found, name):
            raise ValueError(f"module {module_name} has no {attribute}; check the spelling")
        found = getattr(found, name)
    if not callable(found):
        raise ValueError(f"{attribute} is {type(found).__name__}, not a function")  # noqa: TRY004
    return found, digest or _installed_digest(module_name)


def _installed_digest(module_name: str) -> str:
    try:
        return f"sha256:{hashlib.sha256(Path(sys.modules[module_name].__file__ or '').read_bytes()).hexdigest()}"
    except (OSError, AttributeError):
        return ""


def import_path_of(function: Callable[..., Any]) -> str:
    """Return a function's import path. Raise ValueError if it is a method, or is defined in a function or a script."""
    module, name = getattr(function, "__module__", "__main__"), getattr(function, "__qualname__", "<object>")
    path = f"{module}:{name}"
    if module == "__main__" or "<" in name or import_function(path)[0] is not function:
        raise ValueError("a process of its own cannot import it; define it at the top of a module")
    return path
