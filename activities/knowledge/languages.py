"""Programming languages, by the suffix of their files and by their names."""

import re
from collections.abc import Iterable
from posixpath import splitext

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
"""A language with the noun after it, since a word such as `go` alone need not mean the language."""


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
