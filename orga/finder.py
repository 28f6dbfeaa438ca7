"""A finder of modules whose code is kept: what stands in their files later is never run.

It is all that a child process needs to begin with, so it imports next to nothing.
"""

import sys
from importlib.machinery import ModuleSpec, SourceFileLoader

TYPE_CHECKING = False
if TYPE_CHECKING:  # importing typing takes longer than all else here
    from collections.abc import Callable
    from types import CodeType
    from typing import Any


class HeldLoader(SourceFileLoader):
    """Loads one module, whose code is kept. Code cannot be changed, so those who load it share nothing."""

    def __init__(self, fullname: str, path: str, source: bytes | None = None, code: "CodeType | None" = None) -> None:
        super().__init__(fullname, path)
        self.source = source
        """None: read when the code is first wanted."""
        self._code = code
        self._is_package = super().is_package(fullname)

    def is_package(self, fullname: str) -> bool:
        """Return whether modules lie below it."""
        return self._is_package

    def get_code(self, fullname: str) -> "CodeType | None":
        """Return the code, always the same."""
        if self._code is None:
            of_file = self.source is None
            self._code = super().get_code(fullname) if of_file else self.source_to_code(self.source, self.path)  # pyright: ignore
        return self._code


class HeldCode:
    """Finds the modules that it holds, before anything on `sys.path` is asked."""

    def __init__(self, look: "Callable[[str], HeldLoader | None]") -> None:
        """Ask `look`, once for each name, for the loader of a module that is not held yet.

        It returns None for what others may find, and raises ModuleNotFoundError for what nobody may.
        """
        self.loaders: dict[str, HeldLoader] = {}
        self._look = look

    def find_spec(self, fullname: str, path: "Any" = None, target: "Any" = None) -> ModuleSpec | None:
        """Return where a module of ours is; None leaves it to others."""
        loader = self.loader(fullname)
        if loader is None:
            return None
        spec = ModuleSpec(fullname, loader, origin=loader.path, is_package=loader.is_package(fullname))
        spec.has_location = True
        if spec.submodule_search_locations is not None:
            spec.submodule_search_locations.append(loader.path.rpartition("/")[0])
        return spec

    def loader(self, fullname: str) -> HeldLoader | None:
        """Return the one loader of a module."""
        if fullname not in self.loaders:
            found = self._look(fullname)
            if found is None:
                return None
            self.loaders[fullname] = found
        return self.loaders[fullname]


def installed_finder() -> HeldCode | None:
    """Return the finder of this process, if it has one."""
    return next((finder for finder in sys.meta_path if isinstance(finder, HeldCode)), None)


def missing_module_error(fullname: str) -> ModuleNotFoundError:
    """Return the error of a module that nobody may find."""
    return ModuleNotFoundError(f"No module named {fullname!r}", name=fullname)


def run(path: list[str], held: "dict[str, tuple[str, bytes]]", arguments: list[str]) -> None:
    """Run `main` of a module, in a process that was handed the code of all modules of ours and of tools.

    Args:
        path: What `sys.path` is to be.
        held: File and code by module.
        arguments: The module, and what `sys.argv` holds behind it.
    """
    import marshal

    names = {name.partition(".")[0] for name in held}

    def look(fullname: str) -> HeldLoader | None:
        if fullname in held:
            file, code = held[fullname]
            return HeldLoader(fullname, file, code=marshal.loads(code))
        if fullname.partition(".")[0] in names:
            raise missing_module_error(fullname)
        return None

    sys.meta_path.insert(0, HeldCode(look))  # pyright: ignore[reportArgumentType]
    sys.path[:] = path
    sys.argv = arguments
    __import__(arguments[0])
    sys.modules[arguments[0]].main()
