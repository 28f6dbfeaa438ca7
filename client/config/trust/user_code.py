"""Finds the user's own files that run as programs: tool modules, scripts of commands, and all that they import.

Trust covers their content, and no tool of an agent may write them.
"""

import ast
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import chain, pairwise, product
from pathlib import Path

from orga.activities.adapters.rules import module_files
from orga.workflows.types.tool_calls.sandbox import can_exist

_MAX_BYTES = 2_000_000
_BETWEEN_WORDS = re.compile(r"[\s;&|()<>'\"`=,]+")
"""Separates file names from the other words of shell code."""
_PYTHON = re.compile(r"(?:.*/)?(?:python|pypy|ipython|uv)[\d.]*(?:t|d|-dbg)?")
"""The word of a command that starts Python."""
_SHEBANG_OF_PYTHON = re.compile(rb"#![^\n]*(?:python|pypy|\buv\b)")
_SHEBANG_OF_SHELL = re.compile(rb"#![^\n]*\b(?:ba|da|z|k|a)?sh\b")
_IMPORTS = re.compile(r"\b(?:from|import)\b[^\n(]*(?:\([^()]*\))?")
"""Finds imports in source that this version of Python cannot parse."""
_MODULE = re.compile(r"-[bBdEiIOPqRsSuvx]*m(.*)")
"""Python's `-m`. The same word may have flags before it and the module after it."""
_CODE = re.compile(r"-[bBdEiIOPqRsSuvx]*c.*", re.DOTALL)
"""Python's `-c`. The same word may have flags before it and the code after it."""
_MODULE_OPTIONS = frozenset({"-m", "--module", "-A", "--app"})
"""Options of Python and of web servers that take a module."""
_FOLDER_OPTIONS = frozenset({"cd", "pushd", "-C", "--chdir", "--cwd", "--directory", "--prefix", "--project"})
"""Commands and options that change the folder. The next word is the folder."""
_OBJECT = re.compile(r"([A-Za-z_][\w.]*):[A-Za-z_]\w*(?:\(\))?")
"""`package.module:app`, as web servers name an application."""
_NAMES = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*")
_SCRIPTS = frozenset(
    [".py", ".pyw", ".pyz", ".sh", ".bash", ".js", ".mjs", ".cjs", ".ts", ".rb", ".pl", ".php", ".lua", ".jar"]
)
"""Suffixes of code. If a command names a file with such a suffix, the file counts even before it exists."""
_STARTUP_MODULES = ("sitecustomize", "usercustomize")
"""Modules that Python imports when it starts."""
_RUN_SUFFIXES = ("", ".__main__")
"""Suffixes of the modules that `-m NAME` may run: `NAME` itself, or `NAME.__main__` if it is a package."""
_OPTIONS_WITH_VALUE = frozenset({"-W", "-X", "-Q", "--check-hash-based-pycs"})
"""Options of Python that take a value."""


@dataclass(frozen=True)
class UserCode:
    """The code that runs. Some of it may not exist yet."""

    files: frozenset[Path] = frozenset()
    modules: frozenset[Path] = frozenset()
    """Paths of Python modules without a suffix: `lib/tool` for `lib/tool.py` and for `lib/tool/__init__.py`."""

    def __or__(self, other: "UserCode") -> "UserCode":
        return UserCode(self.files | other.files, self.modules | other.modules)

    def existing_files(self) -> Iterator[Path]:
        """Yield the existing files that would run.

        Compiled code in `__pycache__` counts only if it is marked as unchecked. Other compiled code belongs to the
        source next to it.
        """
        yield from filter(_is_file, self.files)
        for file in module_files(self.modules):
            if _is_file(file) and (file.parent.name != "__pycache__" or _is_unchecked(file)):
                yield file


def modules(import_paths: Iterable[str], folders: Iterable[Path]) -> UserCode:
    """Return the modules in `folders` that these imports would run, even if a module does not exist yet.

    Imports are followed as they are written. A name that a module computes is not known.

    Args:
        import_paths: `package.module`, optionally with a colon and more.
    """
    dotted_names = [path.partition(":")[0].split(".") for path in import_paths]
    return _union(
        _with_imports((), chain.from_iterable(_module_paths(base, names) for names in dotted_names), base)
        for base in folders
    )


def scripts(words: Sequence[str], folder: Path, env: Mapping[str, str] | None = None) -> UserCode:
    """Return what a command runs: files among its words and in its code, and what its Python files import.

    A module next to a Python script replaces an installed module, or one of Python's own, of the same name. So all
    names that the script imports count even if no such file exists yet, and so do the names of Python's own modules.

    Args:
        env: Variables that the command sets.
    """
    on_path = [folder / entry for entry in (env or {}).get("PYTHONPATH", "").split(":") if entry]
    code = _Command(words).code_in(folder, on_path)
    unread, read = [*code.files], set[Path]()
    while unread:
        script = unread.pop()
        if script not in read and _is_shell_script(script):
            command = _Command(_script_words(script))
            started = _union(command.code_in(base, on_path) for base in (folder, script.parent))
            unread += started.files
            code |= started
        read.add(script)
    return code


class _Command:
    """The words of a command, sorted by their possible meaning."""

    def __init__(self, words: Sequence[str]) -> None:
        self._words = words
        lines = [words, *(_BETWEEN_WORDS.split(word) for word in words)]  # a word may be shell code, with its own words
        texts = [text for text in dict.fromkeys(chain.from_iterable(lines)) if text and "\0" not in text]
        self._texts = dict.fromkeys([*texts, *(part for text in texts for part in text.split(":") if part)])
        """All texts that may name files."""
        self._python_scripts = {operand for line in lines for operand in _python_operands(line)}
        """The scripts or folders that the command passes to Python."""
        self._is_python = any(map(_PYTHON.fullmatch, texts))
        pairs = [pair for line in lines for pair in pairwise(line)]
        self._folders = [name for option, name in pairs if option in _FOLDER_OPTIONS]
        """Folders that the command may change into."""
        entries = chain.from_iterable(value.split(":") for name, value in pairs if name == "PYTHONPATH")
        self._on_path = [*filter(None, entries)]
        """Module folders that the command itself names: `env PYTHONPATH=lib python3 ...`."""
        self._modules = {*filter(_NAMES.fullmatch, self._module_names(texts, pairs))}

    def _module_names(self, texts: Sequence[str], pairs: Sequence[tuple[str, str]]) -> Iterator[str]:
        """Yield what may name a module: `--app NAME`, `NAME:app`, `python -m NAME`, and names in the code of `-c`."""
        yield from (name for option, name in pairs if option in _MODULE_OPTIONS)
        yield from (match[1] for text in texts if (match := _OBJECT.fullmatch(text)))
        if self._is_python:
            yield from (match[1] for text in texts if (match := _MODULE.fullmatch(text)))
            yield from (name for flags, name in pairs if (match := _MODULE.fullmatch(flags)) and not match[1])
            if any(map(_CODE.fullmatch, texts)):
                yield from (name for word in self._words if not word.isidentifier() for name in _NAMES.findall(word))

    def code_in(self, folder: Path, on_path: Sequence[Path]) -> UserCode:
        """Return the code that runs if the command starts in `folder` and Python also imports from `on_path`."""
        on_path = [*on_path, *(folder / entry for entry in self._on_path)]
        folders = [folder, *filter(_is_folder, (folder / name for name in self._folders))]
        return _union(self._started_in(base, on_path) for base in dict.fromkeys(folders))

    def _started_in(self, folder: Path, on_path: Sequence[Path]) -> UserCode:
        files = {path for text in self._texts if _is_file(path := folder / text)}
        run_by_python = {folder / text for text in self._python_scripts}
        run_directly = run_by_python | {folder / text for text in self._words[:1]}
        code = UserCode(frozenset({*files, *filter(can_exist, self._possible_scripts(folder))}))
        for file in files:
            if file in run_by_python or _is_python_script(file):
                is_started = self._is_python or file in run_directly
                code |= _imported_by_script(file, on_path, is_started=is_started)
        names = [f"{name}{suffix}" for name, suffix in product(self._modules, _RUN_SUFFIXES)]
        modules = [*product((folder, *on_path), names), *product(on_path, _STARTUP_MODULES)]
        modules += [(base, "__main__") for base in run_directly if _is_folder(base)]
        for base, name in modules:
            shadowing = _shadowing_modules(base)
            code |= _with_imports((), chain(_module_paths(base, name.split(".")), shadowing), base, *on_path)
        return code

    def _possible_scripts(self, folder: Path) -> Iterator[Path]:
        """Yield the files that the command would run, and that may not exist yet."""
        for index, word in enumerate(self._words):
            is_program = index == 0 and "/" in word
            if is_program or Path(word).suffix in _SCRIPTS:
                yield folder / word


def _python_operands(line: Sequence[str]) -> Iterator[str]:
    """Yield the first operand after each `python`. Yield all after `uv`, whose options may have values among them."""
    for index, program in enumerate(line):
        if not _PYTHON.fullmatch(program):
            continue
        rest = iter(line[index + 1 :])
        for word in rest:
            if _MODULE.fullmatch(word) or _CODE.fullmatch(word):
                break
            if word in _OPTIONS_WITH_VALUE:
                next(rest, None)
            elif not word.startswith("-") and word != "run":  # as in `uv run`
                yield word
                if not program.endswith("uv"):
                    break


def _script_words(script: Path) -> list[str]:
    """Return the words of a shell script, and possible paths from its own folder: `$(dirname "$0")/serve`."""
    words = [word for word in _BETWEEN_WORDS.split(_first_bytes(script, _MAX_BYTES).decode(errors="replace")) if word]
    return [*words, *(word.partition("/")[2] for word in words if word.startswith(("$", "/")))]


def _is_shell_script(file: Path) -> bool:
    if not _is_file(file) or file.stat().st_size > _MAX_BYTES:
        return False
    return file.suffix in {".sh", ".bash"} or bool(_SHEBANG_OF_SHELL.match(_first_bytes(file, 200)))


def _is_python_script(file: Path) -> bool:
    return file.suffix in {".py", ".pyw"} or bool(_SHEBANG_OF_PYTHON.match(_first_bytes(file, 200)))


def _imported_by_script(script: Path, on_path: Iterable[Path], *, is_started: bool) -> UserCode:
    """Return what the script imports. If a command starts it, Python also imports its own modules from that folder."""
    code = UserCode()
    for base in dict.fromkeys((script.parent, script.resolve().parent)):
        shadowing = _shadowing_modules(base) if is_started else ()
        code |= _with_imports([script], shadowing, base, *on_path)
    return code


def _shadowing_modules(folder: Path) -> Iterator[Path]:
    """Yield the paths in this folder at which a file would replace one of Python's own modules."""
    return (folder / name for name in sys.stdlib_module_names)


def _with_imports(files: Iterable[Path], modules: Iterable[Path], *bases: Path) -> UserCode:
    """Return the modules, and all that they and the files import from these folders, also indirectly."""
    found: set[Path] = set()
    unread_files = [*files]
    new_modules = [*modules]
    while unread_files or new_modules:
        for module in new_modules:
            if module not in found:
                found.add(module)
                unread_files += (module.with_name(f"{module.name}.py"), module / "__init__.py")
        new_modules = [module for file in unread_files for module in _imported_modules(file, bases)]
        unread_files = []
    return UserCode(frozenset(), frozenset(found))


def _module_paths(base: Path, names: Sequence[str]) -> Iterator[Path]:
    """Yield the modules that importing a dotted name may run: its packages and the module itself."""
    for depth in range(1, len(names) + 1):
        module = base.joinpath(*names[:depth])
        if can_exist(module.with_name(f"{module.name}.py")):
            yield module


def _imported_modules(file: Path, bases: Sequence[Path]) -> Iterator[Path]:
    try:
        source = file.read_bytes() if _is_file(file) else b""
    except OSError:
        return
    tree = _syntax_tree(source)
    if tree is None:
        lines = _IMPORTS.findall(source.decode(errors="replace").replace("\\\n", " "))
        for name in {name for line in lines for name in _NAMES.findall(line)}:
            for folder in dict.fromkeys((*bases, *file.parents[:2])):
                yield from _module_paths(folder, name.split("."))
        return
    for node in ast.walk(tree):
        match node:
            case ast.Import():
                for base, alias in product(bases, node.names):
                    yield from _module_paths(base, alias.name.split("."))
            case ast.ImportFrom() if node.level <= len(file.parents):
                folders = (file.parents[node.level - 1],) if node.level else bases
                names = node.module.split(".") if node.module else []
                for folder, alias in product(folders, node.names):
                    yield from _module_paths(folder, [*names, alias.name])
            case _:
                pass


def _syntax_tree(source: bytes) -> ast.AST | None:
    """Return the tree, or None if the source is too large or needs another version of Python."""
    try:
        return ast.parse(source) if len(source) <= _MAX_BYTES else None
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        return None


def _is_unchecked(bytecode: Path) -> bool:
    """Return whether the flags of a compiled file make Python run it without checking its source (PEP 552)."""
    return int.from_bytes(_first_bytes(bytecode, 8)[4:], "little") & 0b11 == 0b01


def _first_bytes(file: Path, size: int) -> bytes:
    try:
        with file.open("rb") as opened:
            return opened.read(size)
    except OSError:
        return b""


def _union(codes: Iterable[UserCode]) -> UserCode:
    return reduce(UserCode.__or__, codes, UserCode())


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:  # for example, the name is too long
        return False


def _is_folder(path: Path) -> bool:
    try:
        return path.is_dir()
    except OSError:
        return False
