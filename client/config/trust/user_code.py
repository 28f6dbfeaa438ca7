"""Files of the operator's own that run as programs: modules of tools with all that they import, scripts of commands."""

import ast
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from orga.workflows.types.sandbox import can_exist

_MAX_BYTES = 2_000_000
_BETWEEN_WORDS = re.compile(r"[\s;&|()<>'\"`=]+")
"""In the code of a shell, as far as it names files."""


def modules(import_paths: Iterable[str], folders: Iterable[Path]) -> set[Path]:
    """Return the files that importing would run, so far as they would lie in `folders`, whether they are there or not.

    Imports are followed as they are written; what a module computes the name of is not known.

    Args:
        import_paths: `package.module`, and whatever stands behind a colon.
        folders: Where modules are looked for.
    """
    wanted = [path.partition(":")[0].split(".") for path in import_paths]
    found: set[Path] = set()
    for base in folders:
        found |= _with_imports((file for names in wanted for file in _candidates(base, names)), base)
    return found


def scripts(words: Sequence[str], folder: Path) -> set[Path]:
    """Return the files among the words of a command, in its code too, with what those of Python import.

    What stands beside a script of Python is imported before what is installed, so the names that it imports count
    although nothing may be there; so does the module behind `-m`.
    """
    texts = {text for word in words for text in (word, *_BETWEEN_WORDS.split(word)) if text and "\0" not in text}
    files = {path for text in texts if _is_file(path := folder / text)}
    named = [words[at + 1] for at, word in enumerate(words[:-1]) if word == "-m"]
    of_python = {path for path in files if path.suffix == ".py"}
    return files | modules(named, [folder]).union(*(_with_imports([path], path.parent) for path in of_python))


def _with_imports(files: Iterable[Path], base: Path) -> set[Path]:
    found: set[Path] = set()
    waiting = [*files]
    while waiting:
        file = waiting.pop()
        if file not in found:
            found.add(file)
            waiting += _imported(file, base)
    return found


def _candidates(base: Path, names: Sequence[str]) -> Iterator[Path]:
    """Yield what importing a dotted name may run: the packages on the way, and the module itself."""
    for depth in range(1, len(names) + 1):
        place = base.joinpath(*names[:depth])
        files = (place.with_name(f"{place.name}.py"), place / "__init__.py")
        yield from (file for file in files if can_exist(file))


def _imported(file: Path, base: Path) -> Iterator[Path]:
    if not _is_file(file) or file.stat().st_size > _MAX_BYTES:
        return
    try:
        tree = ast.parse(file.read_bytes())
    except (OSError, ValueError, SyntaxError, RecursionError, MemoryError):
        return  # cannot be imported either
    for node in ast.walk(tree):
        match node:
            case ast.Import():
                for alias in node.names:
                    yield from _candidates(base, alias.name.split("."))
            case ast.ImportFrom() if node.level <= len(file.parents):
                above = file.parents[node.level - 1] if node.level else base
                names = node.module.split(".") if node.module else []
                for alias in node.names:
                    yield from _candidates(above, [*names, alias.name])
            case _:
                pass


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:  # a name that is too long, say
        return False
