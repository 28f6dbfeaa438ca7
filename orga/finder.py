"""A finder of modules whose code is held in memory, so that later changes of their files have no effect.

A child process starts with this module alone, so this module imports almost nothing.
"""

import sys
from importlib.machinery import ModuleSpec, SourceFileLoader

TYPE_CHECKING = False
if TYPE_CHECKING:  # importing typing takes longer than all else here
    from collections.abc import Callable
    from types import CodeType
    from typing import Any


class HeldLoader(SourceFileLoader):
    """Loads one module from held code. Code objects are immutable, so several importers can use the same one."""

    def __init__(self, fullname: str, path: str, source: bytes | None = None, code: "CodeType | None" = None) -> None:
        super().__init__(fullname, path)
        self.source = source
        """The source. If it is None, the file is read when the code is first needed."""
        self._code = code
        self._is_package = super().is_package(fullname)

    def is_package(self, fullname: str) -> bool:
        """Return whether the module is a package."""
        return self._is_package

    def get_code(self, fullname: str) -> "CodeType | None":
        """Return the code, which is always the same."""
        if self._code is None:
            if self.source is None:
                self._code = super().get_code(fullname)
            else:
                self._code = self.source_to_code(self.source, self.path)  # pyright: ignore
        return self._code


class HeldCode:
    """Finds the modules that it holds before anything on `sys.path` is searched."""

    def __init__(self, find_loader: "Callable[[str], HeldLoader | None]") -> None:
        """Create a finder that calls `find_loader` for each module that it does not hold yet.

        `find_loader` returns None for a module that other finders may find. It raises ModuleNotFoundError for a module
        that must not be found.
        """
        self.loaders: dict[str, HeldLoader] = {}
        self._find_loader = find_loader

    def find_spec(self, fullname: str, path: "Any" = None, target: "Any" = None) -> ModuleSpec | None:
        """Return the spec of one of our modules, or None for others."""
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
            loader = self._find_loader(fullname)
            if loader is None:
                return None
            self.loaders[fullname] = loader
        return self.loaders[fullname]


def installed_finder() -> HeldCode | None:
    """Return the finder of this process, or None."""
    return next((finder for finder in sys.meta_path if isinstance(finder, HeldCode)), None)


def missing_module_error(fullname: str) -> ModuleNotFoundError:
    """Return the error for a module that must not be found."""
    return ModuleNotFoundError(f"No module named {fullname!r}", name=fullname)


def run(path: list[str], held: "dict[str, tuple[str, bytes]]", arguments: list[str]) -> None:
    """Run `main` of a module in a child, which was given the code of our modules and of those of tools.

    Args:
        path: The future `sys.path`.
        held: File and code by module.
        arguments: The module, followed by the rest of `sys.argv`.
    """
    import marshal

    packages = {name.partition(".")[0] for name in held}

    def find_loader(fullname: str) -> HeldLoader | None:
        if fullname in held:
            file, code = held[fullname]
            return HeldLoader(fullname, file, code=marshal.loads(code))
        if fullname.partition(".")[0] in packages:
            raise missing_module_error(fullname)
        return None

    sys.meta_path.insert(0, HeldCode(find_loader))  # pyright: ignore[reportArgumentType]
    sys.path[:] = path
    sys.argv = arguments
    __import__(arguments[0])
    sys.modules[arguments[0]].main()
