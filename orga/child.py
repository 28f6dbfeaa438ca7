"""Starts children of a worker, which run the code that the worker holds. They get it in memory and read no file."""

import marshal
import os
import sys
import tempfile
from dataclasses import dataclass

from orga.finder import HeldLoader
from orga.own_code import child_modules

_LAUNCH = """
import marshal, os, sys
number = int(sys.argv[1])
path, held = marshal.loads(os.pread(number, os.fstat(number).st_size, 0))
os.close(number)
module = sys.modules["orga.finder"] = type(sys)("orga.finder")
exec(marshal.loads(held["orga.finder"][1]), module.__dict__)
module.run(path, held, sys.argv[2:])
"""
"""The first code of a child. It reads the packed modules and passes them to `orga.finder`."""


@dataclass(frozen=True)
class HeldProgram:
    """The command that starts a child."""

    argv: tuple[str, ...]
    number: int
    """The file descriptor of the packed modules. The child must inherit it."""


def held_program(module: str, *arguments: str, site: bool = True) -> HeldProgram:
    """Return a program that runs `main` of our module. Without `site`, it starts faster, without installed packages."""
    number = _packed_modules.descriptor(child_modules())
    flags = ("-I",) if site else ("-I", "-S")
    return HeldProgram((sys.executable, *flags, "-u", "-c", _LAUNCH, str(number), module, *arguments), number)


class _PackedModules:
    """The packed modules for children. They are packed on first use, and again if they or `sys.path` have changed."""

    def __init__(self) -> None:
        self._loaders: dict[str, HeldLoader] = {}
        self._path: list[str] = []
        self._descriptor = -1

    def descriptor(self, loaders: dict[str, HeldLoader]) -> int:
        """Return the descriptor. An older one stays open, because a child may be about to inherit it."""
        if (loaders, sys.path) != (self._loaders, self._path):
            self._loaders, self._path = loaders, [*sys.path]
            held = {name: (loader.path, marshal.dumps(loader.get_code(name))) for name, loader in loaders.items()}
            self._descriptor = _memory_file(marshal.dumps((self._path, held)))
        return self._descriptor


_packed_modules = _PackedModules()


def _memory_file(content: bytes) -> int:
    if sys.platform == "linux":
        descriptor = os.memfd_create("orga")
        with open(descriptor, "wb", closefd=False) as file:
            file.write(content)
        return descriptor
    with tempfile.TemporaryFile() as file:
        file.write(content)
        file.flush()
        return os.dup(file.fileno())
