"""Files that `.gitignore` names are left out as git does it."""

import os
import shutil
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orga.activities.adapters.knowledge import project_files as knowledge_files
from orga.activities.adapters.tools import root as root_module
from orga.activities.adapters.tools.file_search import ListFiles, SearchText
from orga.activities.adapters.tools.gitignore import NO_IGNORE_RULES
from orga.activities.adapters.tools.root import FileRoot
from tests.support.tools.calls import result
from tests.support.values.strategies import LAW

FILES = ("a", "b.log", "build/a", "build/b.log", "src/a", "src/b.log", "src/build/a", "src/x y", "src/build/deep/b.log")


def a_tree(root: Path, ignored: dict[str, str], files: Sequence[str] = FILES) -> Path:
    """Write the files, and the `.gitignore` of each folder."""
    for name, text in {
        **dict.fromkeys(files, "text\n"),
        **{f"{at}.gitignore": text for at, text in ignored.items()},
    }.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


async def listed(root: Path, **arguments: Any) -> list[str]:
    found = await result(ListFiles(FileRoot(root)), **arguments)
    return [] if found.startswith("No files") else found.splitlines()


def git_lists(root: Path) -> list[str]:
    """Return the files that git would add, except hidden ones."""
    env = {"PATH": os.environ["PATH"], "HOME": str(root), "GIT_CONFIG_NOSYSTEM": "1"}
    subprocess.run(["git", "init", "-q"], cwd=root, env=env, check=True)
    command = ["git", "ls-files", "-z", "--others", "--exclude-per-directory=.gitignore"]
    done = subprocess.run(command, cwd=root, env=env, check=True, capture_output=True)
    shutil.rmtree(root / ".git")
    names = (os.fsdecode(name) for name in done.stdout.split(b"\0") if name)
    return sorted(name for name in names if not any(part.startswith(".") for part in name.split("/")))


PATTERNS = [
    *("*.log", "build", "build/", "/build", "/build/", "src/build", "src/build/", "src/*", "/*", "*", "**", "*/"),
    *("**/build", "build/**", "src/**/b.log", "**/deep/*", "/a", "!a", "!b.log", "!src/", "!src/build/", "!*/", "# a"),
    *("\\#x", "x\\ y", "x y", "x y ", "x?y", "[ab]", "[!a]", "[^a]*", "[a-c].log", "[]a]", "[[:alpha:]]", "[a", "a\\"),
    *("\\a", "\\!a", "b.lo[!g]", "", "/", "//", "a/", "a//b", "***", "s*c", "s**c/a", "src/build/deep", "deep", "[a-"),
    *("\ufeffa", "b.log\r", " a", "[\\a]", "src/**", "!src/**/b.log", "?", "b.log/", "!/src/b.log", "**/", "/**/a"),
]


@pytest.mark.parametrize("pattern", PATTERNS, ids=repr)
async def test_each_pattern_means_what_it_means_to_git(tmp_path: Path, pattern: str) -> None:
    a_tree(tmp_path, {"": f"{pattern}\n"})
    assert await listed(tmp_path) == git_lists(tmp_path)


async def test_a_pattern_for_the_files_of_a_folder_does_not_match_the_folder(tmp_path: Path) -> None:
    a_tree(tmp_path, {"": "src/*\n!a\n"})
    assert await listed(tmp_path) == git_lists(tmp_path)
    assert "src/a" in git_lists(tmp_path)


@LAW
@given(
    st.dictionaries(
        st.sampled_from(["", "src/", "src/build/", "build/"]),
        st.lists(st.sampled_from(PATTERNS), max_size=4),
        max_size=3,
    )
)
async def test_nested_files_mean_what_they_mean_to_git(
    tmp_path_factory: pytest.TempPathFactory, ignored: dict[str, list[str]]
) -> None:
    root = a_tree(tmp_path_factory.mktemp("tree"), {at: "\n".join(lines) for at, lines in ignored.items()})
    expected = git_lists(root)
    assert await listed(root) == expected
    walked = sorted(knowledge_files._walk_files(root))  # pyright: ignore[reportPrivateUsage]
    assert [name for name in walked if ".gitignore" not in name] == expected


async def test_names_that_are_no_utf8_are_matched_byte_by_byte(tmp_path: Path) -> None:
    for name in (b"\xe4.txt", b"\xc3\xa4.txt", b"b.txt"):
        (tmp_path / os.fsdecode(name)).write_text("")
    (tmp_path / ".gitignore").write_bytes(b"?.txt\n")
    assert await listed(tmp_path) == git_lists(tmp_path) == ["ä.txt"]


async def test_ignored_files_are_shown_on_request(tmp_path: Path) -> None:
    a_tree(tmp_path, {"": "build\n"}, ["a", "build/b"])
    assert await listed(tmp_path) == ["a"]
    assert await listed(tmp_path, include_ignored=True) == ["a", "build/b"]
    search = SearchText(FileRoot(tmp_path))
    assert await result(search, query="text") == "a:1: text"
    assert await result(search, query="text", include_ignored=True) == "a:1: text\nbuild/b:1: text"


async def test_a_folder_or_file_that_is_named_is_shown_though_it_is_ignored(tmp_path: Path) -> None:
    a_tree(tmp_path, {"": "build\n*.log\n", "build/": "c\n"}, ["build/b", "build/c", "build/d/e", "f.log", "src/g.log"])
    assert await listed(tmp_path, path="build") == ["build/b", "build/d/e"]
    assert await listed(tmp_path, path="build/d") == ["build/d/e"]
    assert await listed(tmp_path, path="f.log") == ["f.log"]
    assert await listed(tmp_path, path="src") == [], "the root's file holds for a folder that is not ignored"


async def test_a_file_that_is_no_regular_one_has_no_effect(tmp_path: Path) -> None:
    a_tree(tmp_path / "root", {}, ["a", "sub/a"])
    (tmp_path / "outside").write_text("a\n")
    (tmp_path / "root" / ".gitignore").symlink_to(tmp_path / "outside")
    os.mkfifo(tmp_path / "root" / "sub" / ".gitignore")
    assert await listed(tmp_path / "root") == ["a", "sub/a"]
    a_tree(tmp_path / "large", {"": "a\n" + "#" * 64_000}, ["a"])
    assert await listed(tmp_path / "large") == ["a"]


@pytest.mark.parametrize(
    "content",
    [
        pytest.param("*a" * 400 + "b\n", id="many stars"),
        pytest.param("**/" * 400 + "b\n", id="many double stars"),
        pytest.param("\n".join(f"*{n}*a*b*c" for n in range(2_000)), id="many patterns"),
        pytest.param("[" * 60_000, id="many brackets"),
        pytest.param("[" + "[:a:]" * 12_000, id="many classes"),
        pytest.param("\\" * 60_001, id="many backslashes"),
    ],
)
def test_no_pattern_takes_long(tmp_path: Path, content: str) -> None:
    (tmp_path / ".gitignore").write_text(content)
    began = time.process_time()
    rules = NO_IGNORE_RULES.in_folder("", tmp_path)
    for _ in range(100):
        rules.ignores("a" * 250, is_folder=False)
    assert time.process_time() - began < 5


async def test_the_time_limit_holds_for_ignored_files_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(root_module, "TIME_LIMIT_S", -1.0)
    a_tree(tmp_path, {"": "*\n"})
    assert "stopped after" in (await listed(tmp_path))[-1]
