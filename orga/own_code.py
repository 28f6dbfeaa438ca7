"""Finds our own modules next to our package, whatever is on `sys.path`, and keeps the code that they had first."""

import os
import sys
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from site import getsitepackages
from sysconfig import get_path

from orga.finder import HeldCode, HeldLoader, installed_finder, missing_module_error

ROOT = Path(__file__).absolute().parents[1]
PACKAGE = "orga"
NOT_FOR_CHILDREN = ("orga.client", "orga.worker")
"""Packages that the children of a worker do not need."""


class _OwnCode:
    def __init__(self) -> None:
        self.is_sealed = False

    def find_loader(self, fullname: str) -> HeldLoader | None:
        """Return the loader of one of our modules, or None for others."""
        if not is_ours(fullname):
            return None
        file = None if self.is_sealed else _module_file(fullname)
        if file is None:
            raise missing_module_error(fullname)
        return HeldLoader(fullname, file)


_own = _OwnCode()
removed_folders: list[Path] = []
"""Folders that were removed from `sys.path` because runs may write there."""


def is_ours(module: str) -> bool:
    """Return whether the name belongs to our package, even if there is no such module."""
    return module.partition(".")[0] == PACKAGE


def pin() -> HeldCode:
    """Install the finder of our modules, if it is missing, and return it. A module keeps the code that it had first."""
    finder = installed_finder()
    if finder is None:
        finder = HeldCode(_own.find_loader)
        sys.meta_path.insert(0, finder)  # pyright: ignore[reportArgumentType]
    return finder


def seal() -> None:
    """Hold the code of all modules that a worker or its children need. After this, no file of ours is read."""
    if not _own.is_sealed:
        _hold(_module_names())
        _own.is_sealed = True


def sources() -> Iterator[tuple[str, bytes]]:
    """Yield the name and the source of each module that a worker or its children need, sorted by name."""
    for name in sorted(_module_names()):
        if (file := _module_file(name)) is not None:
            yield name, Path(file).read_bytes()


def child_modules() -> dict[str, HeldLoader]:
    """Return the modules that a child may need: our modules, and those of tools."""
    if not _own.is_sealed:
        _hold(name for name in _module_names() if _is_for_children(name))
    return {name: loader for name, loader in list(pin().loaders.items()) if _is_for_children(name)}


def _is_for_children(module: str) -> bool:
    return not any(f"{module}.".startswith(f"{other}.") for other in NOT_FOR_CHILDREN)


def _hold(modules: Iterable[str]) -> None:
    finder = pin()
    for name in modules:
        loader = finder.loader(name)
        assert loader is not None
        loader.get_code(name)


def remove_from_path(*folders: Path) -> None:
    """Remove the entries of `sys.path` below these folders, except Python's own and installed packages.

    After this, no module can be imported that a run has written there.
    """
    resolved = [folder.resolve() for folder in folders]
    for entry in list(sys.path):
        path = Path(entry or ".").resolve()
        if any(path.is_relative_to(folder) for folder in resolved) and not is_installed(path):
            sys.path.remove(entry)
            removed_folders.append(path)


def remove_clone_from_path() -> None:
    """Remove a clone from `sys.path`, because the folders next to our package have common names such as `client`."""
    if not is_installed(ROOT):
        sys.path[:] = [entry for entry in sys.path if Path(entry or ".").resolve() != ROOT.resolve()]


def is_installed(path: Path) -> bool:
    """Return whether a path belongs to Python itself or to its installed packages."""
    return any(path.is_relative_to(folder) for folder in _installed_folders())


@cache
def _installed_folders() -> tuple[Path, ...]:
    """Return the folders of Python and its packages. Cached, because it is slow and needed for thousands of modules."""
    folders = {*map(get_path, ("stdlib", "platstdlib", "purelib", "platlib")), *getsitepackages()}
    return tuple(Path(folder).resolve() for folder in folders)


def bytecode_folder() -> str:
    """Return the folder for the compiled code of Python programs that we start.

    It is used in place of `__pycache__` folders, because Python runs a file there instead of the source next to it.
    """
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")  # noqa: PTH111
    return os.path.abspath(os.path.join(cache, "orga", "bytecode"))  # noqa: PTH100, PTH118


def installed_program(name: str) -> str | None:
    """Return the path of a program. Relative entries of `PATH` depend on the working folder and are ignored."""
    from shutil import which  # few processes need it

    folders = [folder for folder in os.environ.get("PATH", os.defpath).split(os.pathsep) if os.path.isabs(folder)]  # noqa: PTH117
    return which(name, path=os.pathsep.join(folders))


def outside_module_path(name: str) -> str | None:
    """Return the path of a top-level module outside the code that we hold, or None if there is none."""
    if name in sys.builtin_module_names:
        return "Python itself"
    for finder in sys.meta_path:
        spec = None if isinstance(finder, HeldCode) else finder.find_spec(name, None)
        if spec is not None and spec.loader is not None:
            return spec.origin or "Python itself"
    return None


def _module_file(fullname: str) -> str | None:
    """Return the file of a module. It creates no `Path`, because a worker looks for hundreds at its start."""
    path = os.path.join(ROOT, *fullname.split("."))  # noqa: PTH118
    files = (os.path.join(path, "__init__.py"), f"{path}.py")  # noqa: PTH118
    return next(filter(os.path.isfile, files), None)


def _module_names() -> Iterator[str]:
    """Yield the modules of the package. In a clone, most of its folders are links."""
    for folder, below, files in os.walk(ROOT / PACKAGE, followlinks=True):
        below[:] = [name for name in below if name.isidentifier() and name != "__pycache__"]
        parts = Path(folder).relative_to(ROOT).parts
        for file in files:
            stem, dot, ending = file.rpartition(".")
            if dot and ending == "py" and stem.isidentifier():
                yield ".".join(parts if stem == "__init__" else (*parts, stem))
