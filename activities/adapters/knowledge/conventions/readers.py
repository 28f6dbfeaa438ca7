"""Reads the conventions of a project: the name of a file decides its reader, which turns the file into rules."""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

from orga.activities.adapters.knowledge.project_files import UnreadableFile
from orga.activities.adapters.toml_text import read_toml
from orga.activities.knowledge.chunks import chunks
from orga.activities.knowledge.conventions import language_of_settings, language_of_suffixes
from orga.workflows.types.json_text import as_object

MAX_CHARS = 1_600
"""Characters of a rule. A longer one is split into several."""


@dataclass(frozen=True)
class ConventionRule:
    text: str
    language: str = ""
    """The language in lower case. Empty if the rule holds for all languages."""


def titled_rules(title: str, lines: Iterable[str], language: str = "") -> Iterator[ConventionRule]:
    """Yield the lines as rules that each begin with the title. Without lines there is no rule."""
    head = title[: MAX_CHARS // 4].rstrip()
    for part in _text_parts(lines, MAX_CHARS - len(head)):
        yield ConventionRule(f"{head}\n{part}" if head else part, language)


def _text_parts(lines: Iterable[str], chars: int) -> Iterator[str]:
    """Yield the lines, joined to texts of fewer than `chars` characters. A longer line is split."""
    part: list[str] = []
    size = 0
    pieces = (line[at : at + chars - 1] for line in lines for at in range(0, max(len(line), 1), chars - 1))
    for piece in pieces:
        if size + len(piece) >= chars:
            yield from _joined_lines(part)
            part, size = [], 0
        part.append(piece)
        size += len(piece) + 1
    yield from _joined_lines(part)


def _joined_lines(lines: list[str]) -> Iterator[str]:
    """Yield the lines as one text, or nothing if they are blank."""
    if text := "\n".join(lines).strip("\n").rstrip():
        yield text


AGENT_CONFIDENCE, PEOPLE_CONFIDENCE, TOOL_CONFIDENCE = 0.95, 0.9, 0.85
"""Confidence in files for agents, in guides for people and in settings of tools. The highest is recalled first."""


_TOOL_FOLDERS = frozenset({".github", ".gitlab", ".claude", ".config"})
"""Folders whose files apply to the folder above them."""


@dataclass(frozen=True)
class FileReader:
    """A function that reads a file's rules, with their confidence."""

    rules: Callable[[str], Iterable[ConventionRule]]
    """Raises `UnreadableFile`."""
    confidence: float


_AGENT_FILES = (
    *("AGENTS.md", "AGENT.md", "CLAUDE.md", "GEMINI.md", "copilot-instructions.md"),
    *(".cursorrules", ".windsurfrules", ".clinerules", ".goosehints"),
)

_PEOPLE_FILES = ("STYLE.md", "CONVENTIONS.md")

_CASELESS_PEOPLE_FILES = (
    *("contributing", "contributing.md", "contributing.rst", "contributing.txt"),
    *("styleguide.md", "style-guide.md", "style_guide.md", "codestyle.md"),
    *("coding-style.md", "code-style.md", "coding_style.md", "code_style.md"),
)

_JSON_FILES = (
    *(".prettierrc.json", "biome.json", "biome.jsonc", ".jsbeautifyrc", "deno.json", ".eslintrc.json", ".jshintrc"),
    *(".stylelintrc.json", ".markdownlint.json", ".swcrc", "tsconfig.json", "tslint.json", "pyrightconfig.json"),
)

_TOML_FILES = (
    *("ruff.toml", ".ruff.toml", "pylintrc.toml", "rustfmt.toml", ".rustfmt.toml", "clippy.toml", ".clippy.toml"),
    *("taplo.toml", ".taplo.toml", ".prettierrc.toml", "typos.toml", "_typos.toml", "stylua.toml"),
)

_VERBATIM_FILES = (
    *(".prettierrc", ".prettierrc.yaml", ".prettierrc.yml", ".eslintrc", ".eslintrc.yml", ".eslintrc.yaml"),
    *(".stylelintrc", ".markdownlint.yaml", ".markdownlint.yml", ".yamllint", ".yamllint.yaml", ".hadolint.yaml"),
    *(".pre-commit-config.yaml", ".tool-versions", ".nvmrc", ".clang-format", ".clang-tidy", ".gitmessage"),
    *(".commitlintrc", ".flake8", "mypy.ini", ".mypy.ini", ".pylintrc", ".isort.cfg", ".style.yapf", "tox.ini"),
    *("pytest.ini", ".python-version", ".golangci.yml", ".golangci.yaml", ".golangci.toml", ".rubocop.yml"),
    *(".ruby-version", ".scalafmt.conf", ".swiftlint.yml", ".swift-format", ".formatter.exs", "rust-toolchain"),
    *("rust-toolchain.toml", ".shellcheckrc", ".sqlfluff", "detekt.yml", "phpcs.xml", ".php-cs-fixer.php"),
    ".credo.exs",
)


def _readers_for(read: Callable[..., Iterable[ConventionRule]], names: Iterable[str]) -> dict[str, FileReader]:
    return {
        name: FileReader(partial(read, name, language=language_of_settings(name)), TOOL_CONFIDENCE) for name in names
    }


def editorconfig_rules(text: str) -> Iterator[ConventionRule]:
    """Yield a rule for each section. A section for files of one language becomes a rule of that language."""
    pattern, lines = "", list[str]()
    for line in map(str.strip, text.splitlines()):
        if line.startswith("[") and line.endswith("]"):
            yield from _section_rules(pattern, lines)
            pattern, lines = line[1:-1].strip(), []
        elif line and line[0] not in "#;" and line.partition("=")[0].strip().lower() not in _IGNORED_KEYS:
            lines.append(line)
    yield from _section_rules(pattern, lines)


def prose_rules(text: str) -> Iterator[ConventionRule]:
    """Yield a rule for each section of Markdown. It begins with the headings, such as `Contributing > Tests`.

    Text without headings is one section. Comments are left out, because a reader of the page does not see them.
    """
    for part in chunks(_without_comments(text), overlap=0):
        yield ConventionRule(part.text)


def cargo_rules(text: str) -> Iterator[ConventionRule]:
    """Yield the settings of Rust's edition and of lints in `Cargo.toml`."""
    whole = _parsed_toml(text)
    package = as_object(whole.get("package"))
    facts = {key: package[key] for key in ("edition", "rust-version") if key in package}
    yield from _tool_rules("Rust, in Cargo.toml", facts, "rust")
    workspace = as_object(whole.get("workspace"))
    lints = as_object(workspace.get("lints")) | as_object(whole.get("lints"))
    yield from _tool_rules("lints, in Cargo.toml", lints, "rust")


def json_rules(name: str, text: str, language: str = "") -> Iterator[ConventionRule]:
    """Yield the settings of a tool's own JSON file. Comments and trailing commas are accepted."""
    yield from _tool_rules(name, _parsed_json(text), language)


def package_rules(text: str) -> Iterator[ConventionRule]:
    """Yield the settings of versions, scripts, linters and formatters in `package.json`."""
    whole = _parsed_json(text)
    yield from _tool_rules("package, in package.json", {key: whole[key] for key in _PACKAGE_FACTS if key in whole}, "")
    yield from _table_rules(whole, _NODE_TOOLS, "package.json", "")


def pyproject_rules(text: str) -> Iterator[ConventionRule]:
    """Yield the settings of Python's version, linters, formatters, type checkers and tests in `pyproject.toml`."""
    whole = _parsed_toml(text)
    project = as_object(whole.get("project"))
    if version := project.get("requires-python"):
        yield from titled_rules("Python, in pyproject.toml", [f"requires-python = {_value_text(version)}"], "python")
    tools = as_object(whole.get("tool"))
    yield from _table_rules(tools, _PYTHON_TOOLS, "pyproject.toml", "python")


def toml_rules(name: str, text: str, language: str = "") -> Iterator[ConventionRule]:
    yield from _tool_rules(name, _parsed_toml(text), language)


def verbatim_rules(name: str, text: str, language: str = "") -> Iterator[ConventionRule]:
    """Yield a tool's own file unchanged, but without empty lines. Its comments stay, because they give reasons."""
    yield from titled_rules(name, (line.rstrip() for line in text.splitlines() if line.strip()), language)


_READERS: dict[str, FileReader] = {
    **dict.fromkeys(_AGENT_FILES, FileReader(prose_rules, AGENT_CONFIDENCE)),
    **dict.fromkeys((*_PEOPLE_FILES, *_CASELESS_PEOPLE_FILES), FileReader(prose_rules, PEOPLE_CONFIDENCE)),
    **_readers_for(json_rules, _JSON_FILES),
    **_readers_for(toml_rules, _TOML_FILES),
    **_readers_for(verbatim_rules, _VERBATIM_FILES),
    ".editorconfig": FileReader(editorconfig_rules, TOOL_CONFIDENCE),
    "pyproject.toml": FileReader(pyproject_rules, TOOL_CONFIDENCE),
    "Cargo.toml": FileReader(cargo_rules, TOOL_CONFIDENCE),
    "package.json": FileReader(package_rules, TOOL_CONFIDENCE),
}


def find_reader(path: str) -> FileReader | None:
    """Return the reader of a file, or None if it contains no conventions."""
    name = path.rpartition("/")[2]
    caseless = name.lower()
    return _READERS.get(caseless if caseless in _CASELESS_PEOPLE_FILES else name)


def convention_directory(path: str) -> str:
    """Return the directory to which a file's conventions apply: in most cases its own. The root is ""."""
    directory, _, name = path.rpartition("/")
    above, _, folder = directory.rpartition("/")
    is_guide = folder == "docs" and name.lower().startswith("contributing")
    return above if is_guide or folder in _TOOL_FOLDERS else directory


_SUFFIXES = re.compile(r"\*\.(?:(\w+)|\{(\w+(?:, ?\w+)*)\})")

_IGNORED_KEYS = ("root",)
"""Keys of `.editorconfig` that are no rules. `root` ends the search for further files."""


def _section_rules(pattern: str, lines: list[str]) -> Iterator[ConventionRule]:
    if pattern:
        found = _SUFFIXES.fullmatch(pattern)
        language = language_of_suffixes((found[1] or found[2]).replace(" ", "").split(",")) if found else ""
        yield from titled_rules(f"files that match {pattern}, in .editorconfig", lines, language)


def _without_comments(text: str) -> str:
    kept: list[str] = []
    start = 0
    while (opened := text.find("<!--", start)) >= 0 and (closed := text.find("-->", opened)) >= 0:
        kept.append(text[start:opened])
        start = closed + len("-->")
    return "".join([*kept, text[start:]])


MAX_VALUE_CHARS = 400

MAX_KEYS = 200
"""Keys of one tool."""

_MAX_DEPTH = 6

_PYTHON_TOOLS = ("ruff", "black", "isort", "mypy", "pyright", "basedpyright", "pylint", "flake8", "pytest", "coverage")
_NODE_TOOLS = ("prettier", "eslintConfig", "stylelint", "commitlint", "lint-staged", "browserslist", "jest", "scripts")
_PACKAGE_FACTS = ("type", "packageManager", "engines")


def _table_rules(tables: Mapping[str, Any], names: Iterable[str], file: str, language: str) -> Iterator[ConventionRule]:
    for name in names:
        if (found := tables.get(name)) is not None:
            table = cast("dict[str, Any]", found) if isinstance(found, dict) else {name: found}
            yield from _tool_rules(f"{name}, in {file}", table, language)


def _tool_rules(title: str, table: Mapping[str, Any], language: str) -> Iterator[ConventionRule]:
    lines = [f"{key} = {value}" for key, value in _flattened_keys(table)]
    more = [f"[and {len(lines) - MAX_KEYS} more]"] if len(lines) > MAX_KEYS else []
    yield from titled_rules(title, lines[:MAX_KEYS] + more, language)


def _flattened_keys(table: Mapping[str, Any], above: str = "", depth: int = 1) -> Iterator[tuple[str, str]]:
    for key, value in table.items():
        name = f"{above}{key}"
        if isinstance(value, dict) and value and depth < _MAX_DEPTH:
            yield from _flattened_keys(cast("dict[str, Any]", value), f"{name}.", depth + 1)
        else:
            yield name, _value_text(value)


def _value_text(value: Any) -> str:
    shown = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    return shown if len(shown) <= MAX_VALUE_CHARS else f"{shown[:MAX_VALUE_CHARS]}…"


def _parsed_toml(text: str) -> dict[str, Any]:
    try:
        return read_toml(text)
    except ValueError as error:
        raise UnreadableFile(f"it is no TOML: {_parse_error_text(error)}") from None


def _parsed_json(text: str) -> dict[str, Any]:
    try:
        found = json.loads(_plain_json(text))
    except (ValueError, RecursionError) as error:
        raise UnreadableFile(f"it is no JSON: {_parse_error_text(error)}") from None
    if not isinstance(found, dict):
        raise UnreadableFile("it is no JSON object")
    return cast("dict[str, Any]", found)


def _parse_error_text(error: Exception) -> str:
    return "it is nested too deeply" if isinstance(error, RecursionError) else str(error)[:200]


_JSON_STRING = r'"(?:[^"\\]|\\.)*+"?'
_JSON_COMMENT = re.compile(rf"({_JSON_STRING})|//[^\n]*|/\*.*?(?:\*/|\Z)", re.DOTALL)
_JSON_LAST_COMMA = re.compile(rf"({_JSON_STRING})|,(?=\s*+[}}\]])", re.DOTALL)


def _plain_json(text: str) -> str:
    """Return JSON without the comments and trailing commas that JavaScript tools allow."""
    without_comments = _JSON_COMMENT.sub(lambda found: found[1] or " ", text)
    return _JSON_LAST_COMMA.sub(lambda found: found[1] or "", without_comments)
