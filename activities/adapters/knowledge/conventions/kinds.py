"""Which files hold conventions, by name, and how each is read."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial

from orga.activities.adapters.knowledge.conventions.editorconfig import editorconfig_rules
from orga.activities.adapters.knowledge.conventions.prose import prose_rules
from orga.activities.adapters.knowledge.conventions.rule import Rule
from orga.activities.adapters.knowledge.conventions.settings import (
    cargo_rules,
    json_rules,
    package_rules,
    pyproject_rules,
    toml_rules,
    verbatim_rules,
)
from orga.activities.knowledge.languages import language_of_settings

FOR_AGENTS, FOR_PEOPLE, FOR_TOOLS = 0.95, 0.9, 0.85
"""Confidence: of one directory, what is written for agents comes first."""

_FOLDERS_OF_TOOLS = frozenset({".github", ".gitlab", ".claude", ".config"})
"""What lies in them holds for the folder that they lie in."""


@dataclass(frozen=True)
class Kind:
    """How a file is read."""

    rules: Callable[[str], Iterable[Rule]]
    """Raises `Unreadable`."""
    confidence: float


_AGENTS = (
    *("AGENTS.md", "AGENT.md", "CLAUDE.md", "GEMINI.md", "copilot-instructions.md"),
    *(".cursorrules", ".windsurfrules", ".clinerules", ".goosehints"),
)
_PEOPLE = ("STYLE.md", "CONVENTIONS.md")
_PEOPLE_IN_ANY_CASE = (
    *("contributing", "contributing.md", "contributing.rst", "contributing.txt"),
    *("styleguide.md", "style-guide.md", "style_guide.md", "codestyle.md"),
    *("coding-style.md", "code-style.md", "coding_style.md", "code_style.md"),
)
_JSON = (
    *(".prettierrc.json", "biome.json", "biome.jsonc", ".jsbeautifyrc", "deno.json", ".eslintrc.json", ".jshintrc"),
    *(".stylelintrc.json", ".markdownlint.json", ".swcrc", "tsconfig.json", "tslint.json", "pyrightconfig.json"),
)
_TOML = (
    *("ruff.toml", ".ruff.toml", "pylintrc.toml", "rustfmt.toml", ".rustfmt.toml", "clippy.toml", ".clippy.toml"),
    *("taplo.toml", ".taplo.toml", ".prettierrc.toml", "typos.toml", "_typos.toml", "stylua.toml"),
)
_VERBATIM = (
    *(".prettierrc", ".prettierrc.yaml", ".prettierrc.yml", ".eslintrc", ".eslintrc.yml", ".eslintrc.yaml"),
    *(".stylelintrc", ".markdownlint.yaml", ".markdownlint.yml", ".yamllint", ".yamllint.yaml", ".hadolint.yaml"),
    *(".pre-commit-config.yaml", ".tool-versions", ".nvmrc", ".clang-format", ".clang-tidy", ".gitmessage"),
    *(".commitlintrc", ".flake8", "mypy.ini", ".mypy.ini", ".pylintrc", ".isort.cfg", ".style.yapf", "tox.ini"),
    *("pytest.ini", ".python-version", ".golangci.yml", ".golangci.yaml", ".golangci.toml", ".rubocop.yml"),
    *(".ruby-version", ".scalafmt.conf", ".swiftlint.yml", ".swift-format", ".formatter.exs", "rust-toolchain"),
    *("rust-toolchain.toml", ".shellcheckrc", ".sqlfluff", "detekt.yml", "phpcs.xml", ".php-cs-fixer.php"),
    ".credo.exs",
)


def _reading(read: Callable[..., Iterable[Rule]], names: Iterable[str]) -> dict[str, Kind]:
    return {name: Kind(partial(read, name, language=language_of_settings(name)), FOR_TOOLS) for name in names}


_KINDS: dict[str, Kind] = {
    **dict.fromkeys(_AGENTS, Kind(prose_rules, FOR_AGENTS)),
    **dict.fromkeys((*_PEOPLE, *_PEOPLE_IN_ANY_CASE), Kind(prose_rules, FOR_PEOPLE)),
    **_reading(json_rules, _JSON),
    **_reading(toml_rules, _TOML),
    **_reading(verbatim_rules, _VERBATIM),
    ".editorconfig": Kind(editorconfig_rules, FOR_TOOLS),
    "pyproject.toml": Kind(pyproject_rules, FOR_TOOLS),
    "Cargo.toml": Kind(cargo_rules, FOR_TOOLS),
    "package.json": Kind(package_rules, FOR_TOOLS),
}


def kind_of(path: str) -> Kind | None:
    """Return how a file is read; None for one that holds no conventions."""
    name = path.rpartition("/")[2]
    guide = name.lower()
    return _KINDS.get(guide if guide in _PEOPLE_IN_ANY_CASE else name)


def directory_of(path: str) -> str:
    """Return the directory for which the conventions of a file hold, empty for the root: its own, mostly."""
    directory, _, name = path.rpartition("/")
    above, _, folder = directory.rpartition("/")
    is_guide = folder == "docs" and name.lower().startswith("contributing")
    return above if is_guide or folder in _FOLDERS_OF_TOOLS else directory
