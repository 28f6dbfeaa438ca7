"""Modules of tools: read once from the configuration's folder, with all that they import from there.

The folder is not on `sys.path`: what a run writes there is imported by nothing.
"""

import ast
import hashlib
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from orga.finder import HeldLoader
from orga.own_code import found_elsewhere, is_ours, pin


def hold_module(name: str, folders: Sequence[Path]) -> str:
    """Hold a module of the first folder that has it, and what it imports from there; return the digest of it all.

    Empty where no folder has it.

    Raises:
        ValueError: Its name belongs to another module, or a file cannot be read as Python.
    """
    folder = next((folder for folder in folders if _file(folder, name)), None)
    if folder is None:
        return ""
    top = name.partition(".")[0]
    if is_ours(top):
        raise ValueError(f"the name {top} belongs to orga itself; give the module in {folder} another one")
    if elsewhere := _elsewhere(top, folder):
        raise ValueError(f"there are two modules {top}, in {folder} and {elsewhere}; give yours another name")
    found = _closure(name, folder)
    for each, loader in found.items():
        _hold(each, loader)
    return _digest(found)


def _closure(name: str, folder: Path) -> dict[str, HeldLoader]:
    """Return the module, its packages, and all in the folder that they import, inside functions, too."""
    elsewhere: dict[str, str] = {}
    found: dict[str, HeldLoader] = {}
    wanted = [name]
    while wanted:
        parts = wanted.pop().split(".")
        if parts[0] not in elsewhere:
            elsewhere[parts[0]] = _elsewhere(parts[0], folder)
        if elsewhere[parts[0]]:
            continue
        for each in (".".join(parts[: end + 1]) for end in range(len(parts))):
            if each not in found and (loader := _loader(folder, each)):
                found[each] = loader
                wanted += _imports(each, loader)
    return found


def _elsewhere(top: str, folder: Path) -> str:
    if is_ours(top):
        return "orga"
    place = found_elsewhere(top)
    own = _file(folder, top)
    return "" if place is None or (own and own.resolve() == Path(place).resolve()) else place


def _file(folder: Path, name: str) -> Path | None:
    place = folder.joinpath(*name.split("."))
    files = (place / "__init__.py", place.with_name(f"{place.name}.py"))
    return next((file for file in files if file.is_file()), None)


def _loader(folder: Path, name: str) -> HeldLoader | None:
    file, place = _file(folder, name), folder.joinpath(*name.split("."))
    if file is None:  # a folder without __init__.py is a package, too
        return HeldLoader(name, str(place / "__init__.py"), b"") if place.is_dir() else None
    return HeldLoader(name, str(file), file.read_bytes())


def _imports(name: str, loader: HeldLoader) -> Iterator[str]:
    """Yield what may be modules among all that a module imports."""
    try:
        tree = ast.parse(loader.source or b"", loader.path)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:  # nested too deeply for the parser
        raise ValueError(f"{loader.path} is no Python: {error}") from error
    package = name if loader.is_package(name) else name.rpartition(".")[0]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            module = ".".join((*above, *filter(None, [node.module])))
            yield from (".".join(filter(None, (module, *rest))) for rest in ([], *([a.name] for a in node.names)))


def _hold(name: str, loader: HeldLoader) -> None:
    held = pin().loaders
    before = held.get(name)
    if before is not None and (before.path, before.source) == (loader.path, loader.source):
        return
    held[name] = loader
    if before is not None:  # another folder's, or an older one
        sys.modules.pop(name, None)


def _digest(found: dict[str, HeldLoader]) -> str:
    digest = hashlib.sha256()
    for name, loader in sorted(found.items()):
        digest.update(f"{name}\0{hashlib.sha256(loader.source or b'').hexdigest()}\n".encode())
    return f"sha256:{digest.hexdigest()}"
