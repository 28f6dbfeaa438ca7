"""Finds the conventions that apply to a file: those of its folder, then of the folders above, then of its language."""

import re
from collections.abc import AsyncIterator, Collection, Iterable, Sequence
from posixpath import splitext

from orga.activities.knowledge.ports import KnowledgeStore
from orga.workflows.types.knowledge import DEFAULT_RECALLED, KnowledgeItem, Reader, Recall, Recalled

_LANGUAGE_OF_SUFFIX = {
    **dict.fromkeys(("py", "pyi"), "python"),
    **dict.fromkeys(("js", "jsx", "mjs", "cjs"), "javascript"),
    **dict.fromkeys(("ts", "tsx", "mts", "cts"), "typescript"),
    **dict.fromkeys(("c", "h"), "c"),
    **dict.fromkeys(("cc", "cpp", "cxx", "hpp", "hxx"), "c++"),
    **dict.fromkeys(("kt", "kts"), "kotlin"),
    **dict.fromkeys(("sh", "bash"), "shell"),
    **{"rs": "rust", "go": "go", "java": "java", "rb": "ruby", "cs": "c#", "swift": "swift", "php": "php"},
    **{"scala": "scala", "ex": "elixir", "exs": "elixir", "lua": "lua", "sql": "sql", "zig": "zig"},
    **{"css": "css", "html": "html"},
}

_LANGUAGE_OF_SETTINGS = {
    **dict.fromkeys(("pyproject.toml", "ruff.toml", ".ruff.toml", "pylintrc.toml", "pyrightconfig.json"), "python"),
    **dict.fromkeys((".flake8", "mypy.ini", ".mypy.ini", ".pylintrc", ".isort.cfg", ".style.yapf"), "python"),
    **dict.fromkeys(("tox.ini", "pytest.ini", ".python-version"), "python"),
    **dict.fromkeys(("Cargo.toml", "rustfmt.toml", ".rustfmt.toml", "clippy.toml", ".clippy.toml"), "rust"),
    **dict.fromkeys(("rust-toolchain", "rust-toolchain.toml"), "rust"),
    **dict.fromkeys(("tsconfig.json", "tslint.json"), "typescript"),
    **dict.fromkeys((".golangci.yml", ".golangci.yaml", ".golangci.toml"), "go"),
    **dict.fromkeys((".rubocop.yml", ".ruby-version"), "ruby"),
    **{"stylua.toml": "lua", ".scalafmt.conf": "scala", ".swiftlint.yml": "swift", ".swift-format": "swift"},
    **{".formatter.exs": "elixir", ".credo.exs": "elixir", ".shellcheckrc": "shell", ".sqlfluff": "sql"},
    **{"detekt.yml": "kotlin", "phpcs.xml": "php", ".php-cs-fixer.php": "php"},
}
"""Languages by the name of a settings file."""

_LANGUAGES = frozenset(_LANGUAGE_OF_SUFFIX.values())
_NAMED_LANGUAGE = re.compile(r"([\w+#]+)[ \t]+(?:code|conventions?|files?|modules?|rules?|style)\b")
"""A language and the noun after it. A word such as `go` alone need not mean the language."""


def language_of_path(path: str) -> str:
    """Return the language of a file by its name, or "" if the name does not show it."""
    return language_of_suffixes([splitext(path)[1].removeprefix(".")])


def language_of_settings(path: str) -> str:
    """Return the language that a settings file is for, or "" for other files and files for several languages."""
    return _LANGUAGE_OF_SETTINGS.get(path.rpartition("/")[2], "")


def language_of_suffixes(suffixes: Iterable[str]) -> str:
    """Return the language that all suffixes share, in lower case, or "" if there is none."""
    found = {_LANGUAGE_OF_SUFFIX.get(each.lower(), "") for each in suffixes}
    return found.pop() if len(found) == 1 else ""


def named_language(text: str) -> str:
    """Return the first language whose code, files or conventions a text names, or ""."""
    words = (match[1] for match in _NAMED_LANGUAGE.finditer(text.casefold()))
    return next((word for word in words if word in _LANGUAGES), "")


MAX_DEPTH = 32
"""Depth of directories. Deeper ones have no conventions of their own."""

MAX_PER_PLACE = 100
"""Conventions of one directory that are read: those with the highest confidence."""


async def conventions_for(
    store: KnowledgeStore, reader: Reader, directory: str, language: str = "", limit: int = DEFAULT_RECALLED
) -> list[Recalled]:
    """Return the conventions for a directory, the nearest first: its own, its parents' up to the root, its language's.

    - A repeated convention counts only in its nearest directory.
    - A convention of a language holds for that language in every directory, and for no other language. At the root,
      conventions of a language come after those without one.
    - Within a directory, those with the highest confidence come first. Those from one file keep their order.

    Args:
        directory: Relative to the project's root. The path of a file means its directory.
        language: Empty if it is unknown.
    """
    found: dict[str, Recalled] = {}
    async for each in _nearest_first(store, reader, directory, language.strip().lower()):
        found.setdefault(" ".join(each.item.text.split()).casefold(), each)
        if len(found) == limit:
            break
    return list(found.values())


def may_hold_for(item: KnowledgeItem, languages: Collection[str]) -> bool:
    """Return whether a convention may hold for one of these languages. An empty name is an unknown language.

    A convention without a language may come from a settings file. Then it holds for the language of that file.
    """
    own = item.language or language_of_settings(item.provenance.source)
    known = [language for language in languages if language]
    return not own or not known or own in known


def directories_above(path: str) -> list[str]:
    """Return a path's own directory and all above it. The root is "" and comes last.

    `.` and a leading `/` are ignored. `..` leads up, but never above the root.
    """
    parts: list[str] = []
    for part in path.replace("\\", "/").split("/"):
        if part == "..":
            del parts[-1:]
        elif part not in {"", "."}:
            parts.append(part)
    del parts[MAX_DEPTH:]
    return ["/".join(parts[:length]) for length in range(len(parts), -1, -1)]


async def _nearest_first(
    store: KnowledgeStore, reader: Reader, directory: str, language: str
) -> AsyncIterator[Recalled]:
    for above in directories_above(directory):
        for each in await _directory_conventions(store, reader, above, language):
            yield each
    if language:
        for each in await _recalled_conventions(store, reader, language=language):
            yield each


async def _directory_conventions(
    store: KnowledgeStore, reader: Reader, directory: str, language: str
) -> list[Recalled]:
    found = await _recalled_conventions(store, reader, directory=directory)
    if language and len(found) == MAX_PER_PLACE:  # conventions of other languages may have taken the room
        general = await _recalled_conventions(store, reader, directory=directory, language="")
        own = await _recalled_conventions(store, reader, directory=directory, language=language)
        found = sorted((*general, *own), key=_confidence_order)
    found = [each for each in found if may_hold_for(each.item, {language})]
    is_root = directory == ""
    return sorted(found, key=lambda each: bool(each.item.language)) if is_root else found


async def _recalled_conventions(
    store: KnowledgeStore, reader: Reader, *, directory: str | None = None, language: str | None = None
) -> list[Recalled]:
    query = Recall(
        text="",
        reader=reader,
        limit=MAX_PER_PLACE,
        threshold=0,
        kinds=("convention",),
        directory=directory,
        language=language,
    )
    return sorted(await store.recall(query), key=_confidence_order)


def _confidence_order(each: Recalled) -> tuple[float, str]:
    return -each.item.confidence, each.item.key


MAX_PLACES = 3
"""Files and directories of a conversation that are looked up: the first that it names."""

_PATH = re.compile(r"[\w@+.-]+(?:/[\w@+.-]+)*")
_SUFFIX = re.compile(r"\.[A-Za-z]\w{0,7}")


class NamedPlaces:
    """The files and directories that a conversation names, with the conventions that hold there."""

    def __init__(self) -> None:
        self.conventions: dict[str, Recalled] = {}
        """Conventions by id. Those of the first place come first. Within a place, the nearest come first."""
        self._directories = set[str]()
        self._languages = set[str]()

    def add(self, path: str, found: Sequence[Recalled]) -> None:
        self._directories.update(directories_above(path))
        if language := language_of_path(path):
            self._languages.add(language)
        for each in found:
            self.conventions.setdefault(each.item.id, each)

    def with_conventions(self, found: Sequence[Recalled], limit: int) -> list[Recalled]:
        """Return conventions of the named places, then the `found` items. Together they are at most `limit`.

        Conventions get half of the limit, or more if fewer items were found. A convention that holds only elsewhere is
        left out. If no place is named, conventions of a directory are left out.
        """
        others = [each for each in found if self._may_hold(each)]
        conventions = [each for each in self.conventions.values() if self._may_hold(each)]
        taken = conventions[: max(limit // 2, limit - len(others))]
        ids = {each.item.id for each in taken}
        return [*taken, *(each for each in others if each.item.id not in ids)][:limit]

    def _may_hold(self, each: Recalled) -> bool:
        item = each.item
        if item.kind != "convention":
            return True
        if not may_hold_for(item, self._languages):
            return False
        if not self._directories:
            return not item.directory or bool(item.language)
        return item.directory in self._directories or item.language in self._languages


def path_from_root(path: str, root: str) -> str:
    """Return a path relative to the project's root, or "" for an absolute path that leads elsewhere.

    A path from a conversation may have lost its leading `/`. If `root` is "", the root is unknown.
    """
    if not root:
        return path
    start, bare_path = f"{root}/".lstrip("/"), path.lstrip("/")
    if bare_path.startswith(start):
        return bare_path.removeprefix(start)
    return "" if path.startswith("/") else path


async def named_places(
    store: KnowledgeStore, reader: Reader, terms: Sequence[str], limit: int, root: str = ""
) -> NamedPlaces:
    """Return the files and directories that these words name. Absolute paths within the project's root count.

    A file is recognised by its suffix. Any other word with `/` counts only if it has conventions: `and/or` has none.
    """
    places = NamedPlaces()
    for path in _possible_paths(terms, root):
        found = await conventions_for(store, reader, path, language_of_path(path), limit)
        if _is_file(path) or any(each.item.directory for each in found):
            places.add(path, found)
    return places


def _possible_paths(terms: Sequence[str], root: str) -> list[str]:
    """Return the first words that can be a path, without a line number at the end. An address is no path."""
    paths = [path_from_root(term.partition(":")[0], root) for term in terms if "://" not in term]
    possible = [path for path in dict.fromkeys(paths) if _PATH.fullmatch(path) and ("/" in path or _is_file(path))]
    return possible[:MAX_PLACES]


def _is_file(path: str) -> bool:
    return bool(language_of_path(path)) or ("/" in path and _SUFFIX.fullmatch(splitext(path)[1]) is not None)
