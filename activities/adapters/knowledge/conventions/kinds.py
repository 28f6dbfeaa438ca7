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
_JSON = {
    **dict.fromkeys((".prettierrc.json", "biome.json", "biome.jsonc", ".jsbeautifyrc", "deno.json"), ""),
    **dict.fromkeys((".eslintrc.json", ".jshintrc", ".stylelintrc.json", ".markdownlint.json", ".swcrc"), ""),
    **dict.fromkeys(("tsconfig.json", "tslint.json"), "typescript"),
    "pyrightconfig.json": "python",
}
_TOML = {
    **dict.fromkeys(("ruff.toml", ".ruff.toml", "pylintrc.toml"), "python"),
    **dict.fromkeys(("rustfmt.toml", ".rustfmt.toml", "clippy.toml", ".clippy.toml"), "rust"),
    **dict.fromkeys(("taplo.toml", ".taplo.toml", ".prettierrc.toml", "typos.toml", "_typos.toml"), ""),
    "stylua.toml": "lua",
}
_VERBATIM = {
    **dict.fromkeys((".prettierrc", ".prettierrc.yaml", ".prettierrc.yml", ".eslintrc", ".eslintrc.yml"), ""),
    **dict.fromkeys((".eslintrc.yaml", ".stylelintrc", ".markdownlint.yaml", ".markdownlint.yml"), ""),
    **dict.fromkeys((".yamllint", ".yamllint.yaml", ".pre-commit-config.yaml", ".tool-versions", ".nvmrc"), ""),
    **dict.fromkeys((".clang-format", ".clang-tidy", ".hadolint.yaml", ".gitmessage", ".commitlintrc"), ""),
    **dict.fromkeys((".flake8", "mypy.ini", ".mypy.ini", ".pylintrc", ".isort.cfg", ".style.yapf"), "python"),
    **dict.fromkeys(("tox.ini", "pytest.ini", ".python-version"), "python"),
    **dict.fromkeys((".golangci.yml", ".golangci.yaml", ".golangci.toml"), "go"),
    **dict.fromkeys((".rubocop.yml", ".ruby-version"), "ruby"),
    **{".scalafmt.conf": "scala", ".swiftlint.yml": "swift", ".swift-format": "swift", ".formatter.exs": "elixir"},
    **{"rust-toolchain": "rust", "rust-toolchain.toml": "rust", ".shellcheckrc": "shell", ".sqlfluff": "sql"},
    **{"detekt.yml": "kotlin", "phpcs.xml": "php", ".php-cs-fixer.php": "php", ".credo.exs": "elixir"},
}

_KINDS: dict[str, Kind] = {
    **dict.fromkeys(_AGENTS, Kind(prose_rules, FOR_AGENTS)),
    **dict.fromkeys((*_PEOPLE, *_PEOPLE_IN_ANY_CASE), Kind(prose_rules, FOR_PEOPLE)),
    **{name: Kind(partial(json_rules, name, language=language), FOR_TOOLS) for name, language in _JSON.items()},
    **{name: Kind(partial(toml_rules, name, language=language), FOR_TOOLS) for name, language in _TOML.items()},
    **{name: Kind(partial(verbatim_rules, name, language=language), FOR_TOOLS) for name, language in _VERBATIM.items()},
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
