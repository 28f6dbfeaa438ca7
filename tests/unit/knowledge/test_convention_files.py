"""A project's files of conventions are read, and hostile ones cause no harm."""

import os
import subprocess
import time
from pathlib import Path

import pytest

from orga.activities.adapters.knowledge.conventions.changes import (
    MAX_BYTES,
    MAX_ITEMS,
    ConventionTarget,
    convention_files,
    convention_items,
)
from orga.activities.adapters.knowledge.conventions.readers import MAX_CHARS, convention_directory, find_reader
from orga.activities.adapters.knowledge.project_files import UnreadableFile
from orga.workflows.types.knowledge import KnowledgeItem, Reader

ROOT_PLACE = ConventionTarget("shop", "", "tenant", Reader())

GUIDE = """\
Read this first.
<!-- Nobody sees this. -->
# Contributing #
## Tests
Run `make test`.
```sh
# no heading
```
~~~~
```
# still none
~~~~
### Names
snake_case
# Commits
"""

PYPROJECT = """\
[project]
requires-python = ">=3.11"
[tool.ruff]
line-length = 120
[tool.ruff.lint]
select = ["E", "F"]
[tool.poetry]
name = "x"
[tool.mypy]
strict = true
"""

EDITORCONFIG = """\
root = true
; spaces everywhere
[*]
indent_style = space
[*.{py,pyi}]
indent_size = 4
[*.{js,py}]
max_line_length = 100
[Makefile]
indent_style = tab
[empty]
"""

PACKAGE = """{"name": "web", "type": "module", "engines": {"node": ">=20"}, "scripts": {"test": "vitest"},
 "prettier": "@shop/prettier", "dependencies": {"left-pad": "1"}}"""

TSCONFIG = """{ // strict, please
  "compilerOptions": { "strict": true, /* as "ever" */ "paths": {"@/*": ["./src/*"]}, },
}"""

CARGO = '[package]\nname = "x"\nedition = "2024"\n[lints.rust]\nunsafe_code = "forbid"\n'

FILES: dict[str, tuple[str, str, list[tuple[str, str]]]] = {
    "prose is split by its headings": (
        "CONTRIBUTING.md",
        GUIDE,
        [
            ("Read this first.", ""),
            ("Contributing > Tests\nRun `make test`.\n```sh\n# no heading\n```\n~~~~\n```\n# still none\n~~~~", ""),
            ("Contributing > Tests > Names\nsnake_case", ""),
        ],
    ),
    "prose without a heading": ("AGENTS.md", "Be kind.\n", [("Be kind.", "")]),
    "an empty file": ("CLAUDE.md", "\n \n", []),
    "Python's settings": (
        "pyproject.toml",
        PYPROJECT,
        [
            ("Python, in pyproject.toml\nrequires-python = >=3.11", "python"),
            ('ruff, in pyproject.toml\nline-length = 120\nlint.select = ["E", "F"]', "python"),
            ("mypy, in pyproject.toml\nstrict = true", "python"),
        ],
    ),
    "an editor's patterns": (
        ".editorconfig",
        EDITORCONFIG,
        [
            ("files that match *, in .editorconfig\nindent_style = space", ""),
            ("files that match *.{py,pyi}, in .editorconfig\nindent_size = 4", "python"),
            ("files that match *.{js,py}, in .editorconfig\nmax_line_length = 100", ""),
            ("files that match Makefile, in .editorconfig\nindent_style = tab", ""),
        ],
    ),
    "a package": (
        "package.json",
        PACKAGE,
        [
            ("package, in package.json\ntype = module\nengines.node = >=20", ""),
            ("prettier, in package.json\nprettier = @shop/prettier", ""),
            ("scripts, in package.json\ntest = vitest", ""),
        ],
    ),
    "JSON with comments and last commas": (
        "tsconfig.json",
        TSCONFIG,
        [
            (
                'tsconfig.json\ncompilerOptions.strict = true\ncompilerOptions.paths.@/* = ["./src/*"]',
                "typescript",
            )
        ],
    ),
    "Rust's edition and lints": (
        "Cargo.toml",
        CARGO,
        [
            ("Rust, in Cargo.toml\nedition = 2024", "rust"),
            ("lints, in Cargo.toml\nrust.unsafe_code = forbid", "rust"),
        ],
    ),
    "a formatter's TOML": ("rustfmt.toml", "max_width = 100\n", [("rustfmt.toml\nmax_width = 100", "rust")]),
    "other files are kept as they are": (
        ".prettierrc",
        "semi: false # ours\n\n",
        [(".prettierrc\nsemi: false # ours", "")],
    ),
    "with a byte order mark": (".prettierrc", "\ufeffsemi: false", [(".prettierrc\nsemi: false", "")]),
}


def read(folder: Path, path: str, text: str | bytes, place: ConventionTarget = ROOT_PLACE) -> list[KnowledgeItem]:
    file = folder / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(text.encode() if isinstance(text, str) else text)
    return convention_items(folder, path, place)


@pytest.mark.parametrize(("name", "text", "expected"), FILES.values(), ids=FILES)
def test_a_file_becomes_these_conventions(
    tmp_path: Path, name: str, text: str, expected: list[tuple[str, str]]
) -> None:
    assert [(item.text, item.language) for item in read(tmp_path, name, text)] == expected


def test_an_item_records_its_file_and_its_directory(tmp_path: Path) -> None:
    [item] = read(
        tmp_path, "src/api/ruff.toml", "line-length = 90", ConventionTarget("shop", "", "user", Reader(user="ada"))
    )
    assert (item.kind, item.scope, item.owner.user) == ("convention", "user", "ada")
    assert (item.key, item.directory) == ("convention:shop:src/api/ruff.toml#000", "src/api")
    assert item.provenance.source == "src/api/ruff.toml"
    assert item.language == "", "below the root it does not apply to all files of its language"


def test_a_project_can_be_a_directory_of_a_larger_one(tmp_path: Path) -> None:
    items = read(tmp_path, "ruff.toml", "line-length = 90", ConventionTarget("web", "apps/web", "tenant", Reader()))
    assert [(item.directory, item.language, item.provenance.source) for item in items] == [
        ("apps/web", "", "apps/web/ruff.toml")
    ]


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("CONTRIBUTING.md", ""),
        (".github/copilot-instructions.md", ""),
        ("web/.claude/CLAUDE.md", "web"),
        ("docs/contributing.md", ""),
        ("docs/AGENTS.md", "docs"),
        ("a/b/.editorconfig", "a/b"),
    ],
)
def test_a_file_applies_to_this_directory(path: str, expected: str) -> None:
    assert find_reader(path) is not None
    assert convention_directory(path) == expected


@pytest.mark.parametrize("path", ["docs/agents.md", "README.md", "src/style.py", "setup.py", "AGENTS.md/x"])
def test_other_files_contain_no_conventions(path: str) -> None:
    assert find_reader(path) is None


HOSTILE: dict[str, tuple[str, bytes, str]] = {
    "invalid TOML": ("pyproject.toml", b"[tool", "it is no TOML: "),
    "TOML nested without end": ("ruff.toml", b"a = " + b"[" * 100_000, "it is no TOML: "),
    "invalid JSON": ("package.json", b"{", "it is no JSON: "),
    "JSON that is no object": ("biome.json", b"[1]", "it is no JSON object"),
    "JSON nested without end": ("biome.json", b'{"a":' * 50_000, "it is no JSON: "),
    "a string without end": ("biome.json", b'{"a\\', "it is no JSON: "),
    "a comment without end": ("biome.json", b"/* {}", "it is no JSON: "),
    "a number of too many digits": ("biome.json", b'{"a":' + b"9" * 9_000 + b"}", "it is no JSON: "),
    "a program": ("AGENTS.md", b"\x7fELF\0\0", "it is no text"),
    "a book": ("AGENTS.md", b"x" * (MAX_BYTES + 1), "it is larger than 256 KiB"),
}


@pytest.mark.parametrize(("name", "content", "says"), HOSTILE.values(), ids=HOSTILE)
def test_an_unreadable_file_is_reported_with_the_reason(tmp_path: Path, name: str, content: bytes, says: str) -> None:
    with pytest.raises(UnreadableFile) as raised:
        read(tmp_path, name, content)
    assert str(raised.value).startswith(says)
    assert len(str(raised.value)) < 300


LARGE: dict[str, tuple[str, str]] = {
    "comments that open and never close": ("AGENTS.md", "<!-" + "<!--" * 60_000),
    "comments without number": ("AGENTS.md", "<!---->" * 30_000 + "\n# a"),
    "one endless line": ("AGENTS.md", "x" * MAX_BYTES),
    "a heading for each line": ("AGENTS.md", "# a\nb\n" * 40_000),
    "an endless heading": ("AGENTS.md", f"# {'x ' * 100_000}\ntext"),
    "a heading that is closed without end": ("AGENTS.md", f"# a{' #' * 100_000}x\ntext"),
    "keys without number": ("biome.json", "{" + ",".join(f'"k{n}": 1' for n in range(20_000)) + "}"),
    "an endless value": ("ruff.toml", f'a = "{"x" * 200_000}"'),
    "commas without number": ("biome.json", '{"a": [' + "1, \n" * 40_000 + "]}"),
    "patterns without number": (".editorconfig", "[*.{a" + ",b" * 60_000 + "\n[a]\nb = 1\n" * 2_000),
    "a pattern without end": (".editorconfig", "[*.{a" + ", b" * 60_000 + "]\nx = 1"),
}


@pytest.mark.parametrize(("name", "text"), LARGE.values(), ids=LARGE)
def test_the_conventions_of_a_large_file_are_bounded_and_read_quickly(tmp_path: Path, name: str, text: str) -> None:
    began = time.process_time()
    items = read(tmp_path, name, text)
    assert time.process_time() - began < 5
    assert len(items) <= MAX_ITEMS
    assert all(len(item.text) <= MAX_CHARS + 1 for item in items)


def test_git_determines_the_files(tmp_path: Path) -> None:
    for path in ("AGENTS.md", "src/api/ruff.toml", "build/AGENTS.md", "new/.editorconfig", "gone/AGENTS.md"):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text("a = 1")
    (tmp_path / ".gitignore").write_text("build/\n")
    subprocess.run(["git", "init", "--quiet", "."], cwd=tmp_path, check=True)
    subprocess.run(["git", "add", "AGENTS.md", "gone"], cwd=tmp_path, check=True)
    (tmp_path / "gone/AGENTS.md").unlink()
    assert convention_files(tmp_path) == ["AGENTS.md", "new/.editorconfig", "src/api/ruff.toml"]
    assert convention_files(tmp_path / "src") == ["api/ruff.toml"]


CONFIGURATIONS = {
    "while it lists files": dict.fromkeys(("core.fsmonitor", "core.pager", "alias.ls-files"), "touch {ran}; false"),
    "to fetch over ssh": {"remote.origin.url": "ssh://x/y", "core.sshCommand": "touch {ran}; false"},
    "to fetch by a helper": {"remote.origin.url": "ext::touch {ran}", "protocol.ext.allow": "always"},
    "to fetch from a folder": {"remote.origin.url": "{upstream}", "remote.origin.uploadpack": "touch {ran}; false"},
    "by an included configuration": {"include.path": "../more", "remote.origin.url": "ssh://x/y"},
}


@pytest.mark.parametrize("configuration", CONFIGURATIONS.values(), ids=CONFIGURATIONS)
def test_git_runs_no_program_that_a_repository_configures(tmp_path: Path, configuration: dict[str, str]) -> None:
    """To list files, git fetches objects that a sparse index lacks, if the repository configures that."""
    upstream, project, ran = tmp_path / "upstream", tmp_path / "project", tmp_path / "ran"
    for path in ("AGENTS.md", "far/away/AGENTS.md", "near/AGENTS.md"):
        (upstream / path).parent.mkdir(parents=True, exist_ok=True)
        (upstream / path).write_text("Be kind.")
    git(upstream, "init", "--quiet")
    git(upstream, "add", ".")
    git(upstream, "-c", "user.name=a", "-c", "user.email=a@b", "commit", "--quiet", "-m", "x")
    git(tmp_path, "clone", "--quiet", str(upstream), str(project))
    git(project, "sparse-checkout", "init", "--cone", "--sparse-index")
    git(project, "sparse-checkout", "set", "near")
    folder = git(project, "rev-parse", "HEAD:far").strip()
    (project / ".git" / "objects" / folder[:2] / folder[2:]).unlink()
    git(project, "config", "extensions.partialClone", "origin")
    (project / "more").write_text(f"[core]\nsshCommand = touch {ran}; false\n")
    for key, value in configuration.items():
        git(project, "config", key, value.format(ran=ran, upstream=upstream))
    assert convention_files(project) == ["AGENTS.md", "near/AGENTS.md"]
    assert convention_files(project / "near") == ["AGENTS.md"]
    assert not ran.exists()


def git(folder: Path, *arguments: str) -> str:
    command = ["git", "-c", "protocol.file.allow=always", *arguments]
    return subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True).stdout


def test_git_ignore_rules_apply_in_every_worktree(tmp_path: Path) -> None:
    project, other = tmp_path / "project", tmp_path / "other"
    (project / "mine").mkdir(parents=True)
    (project / "mine" / "AGENTS.md").write_text("x")
    (project / "AGENTS.md").write_text("x")
    (project / ".gitignore").write_text("AGENTS.md\n!mine/AGENTS.md\n")
    git(project, "init", "--quiet")
    git(project, "add", "--force", "AGENTS.md")
    git(project, "-c", "user.name=a", "-c", "user.email=a@b", "commit", "--quiet", "-m", "x")
    git(project, "worktree", "add", "--quiet", "--detach", str(other))
    (project / ".git" / "info" / "exclude").write_text("mine/\nCLAUDE.md\n")
    (other / "CLAUDE.md").write_text("x")
    assert convention_files(project) == ["AGENTS.md"]
    assert convention_files(other) == ["AGENTS.md"]


def test_a_git_program_in_the_folder_is_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    git(tmp_path, "init", "--quiet")
    (tmp_path / "AGENTS.md").write_text("Be kind.")
    (tmp_path / "git").write_text("#!/bin/sh\ntouch ran\n")
    (tmp_path / "git").chmod(0o755)
    monkeypatch.chdir(tmp_path)
    for entry in (".", "", "./"):
        monkeypatch.setenv("PATH", f"{entry}{os.pathsep}{os.defpath}")
        assert convention_files(tmp_path) == ["AGENTS.md"]
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    "content", ["gitdir: /no/such", "gitdir: a\0b", "", "gitdir: " + "x" * 9_000, "gitdir: /dev/zero"]
)
def test_a_broken_git_file_hides_no_files(tmp_path: Path, content: str) -> None:
    (tmp_path / ".git").write_text(content)
    (tmp_path / "AGENTS.md").write_text("x")
    assert convention_files(tmp_path) == ["AGENTS.md"]


def test_without_git_generated_folders_are_left_out(tmp_path: Path) -> None:
    for path in ("AGENTS.md", "node_modules/x/AGENTS.md", ".github/CONTRIBUTING.md", "a/.venv/CLAUDE.md"):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text("x")
    assert convention_files(tmp_path) == [".github/CONTRIBUTING.md", "AGENTS.md"]


def test_a_link_is_followed_within_the_project_only(tmp_path: Path) -> None:
    project = tmp_path / "project"
    (project / "a").mkdir(parents=True)
    (tmp_path / "secret.md").write_text("the password is 123")
    (project / "AGENTS.md").write_text("Be kind.")
    (project / "CLAUDE.md").symlink_to("AGENTS.md")
    (project / "a/CLAUDE.md").symlink_to(tmp_path / "secret.md")
    (project / "a/AGENTS.md").symlink_to("../../secret.md")
    (project / "a/GEMINI.md").symlink_to("GEMINI.md")
    assert [item.text for item in convention_items(project, "CLAUDE.md", ROOT_PLACE)] == ["Be kind."]
    for path in ("a/CLAUDE.md", "a/AGENTS.md", "a/GEMINI.md"):
        with pytest.raises(UnreadableFile):
            convention_items(project, path, ROOT_PLACE)


def test_a_pipe_is_refused_without_waiting(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "AGENTS.md")
    with pytest.raises(UnreadableFile, match="only regular files"):
        convention_items(tmp_path, "AGENTS.md", ROOT_PLACE)


def test_a_file_name_that_is_not_unicode_is_stored_as_unicode(tmp_path: Path) -> None:
    folder = os.fsencode(tmp_path) + b"/\xff\n\x1b[2J"
    os.mkdir(folder)  # noqa: PTH102
    Path(os.fsdecode(folder) + "/AGENTS.md").write_text("Be kind.")
    [path] = convention_files(tmp_path)
    [item] = convention_items(tmp_path, path, ROOT_PLACE)
    assert item.provenance.source == "\ufffd\n\x1b[2J/AGENTS.md", "the stored source is Unicode"
