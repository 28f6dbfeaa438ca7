"""`python -m bench.sources.known_to`: counts the product files that know a feature, and the lines of `workflows/`.

A file counts if its code has a name, an import or a string of the feature. Docstrings and texts for readers do not
count.
"""

import ast
import re
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
PRODUCT = ("workflows", "activities", "client", "worker.py")

FEATURES = {
    "critics": re.compile(r"critic(s|isms?|ise[ds]?)?|critiques?", re.IGNORECASE),
    "sagas": re.compile(r"sagas?", re.IGNORECASE),
}
"""Parts of names (between underscores) and of strings that belong to the feature."""

_FOR_READERS = r"client/journal/event_types\.py"
NOT_OF_IT = {
    "critics": re.compile(rf"workflows/(decisions|types)/goals/pipelines\b|{_FOR_READERS}"),
    "sagas": re.compile(_FOR_READERS),
}
"""Exceptions: the critic of a pipeline is an agent that does a step. The event types explain the journal to readers."""

LOOP_TOOLS = ("DELEGATE", "TERMINATE", "DECIDE", "SAGA", "ASK_USER")
"""The constants of the loop tools."""

WORDS = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")


@cache
def words_of_files() -> dict[str, frozenset[str]]:
    """Return the result of `words` for each file of the product, by its path in the repository."""
    paths = [ROOT / part for part in PRODUCT]
    files = sorted(file for path in paths for file in ([path] if path.suffix else path.rglob("*.py")))
    return {str(file.relative_to(ROOT)): frozenset(words(ast.parse(file.read_text()))) for file in files}


def words(tree: ast.AST) -> Iterator[str]:
    """Yield every name in the code, every module that it imports, and every string except docstrings."""
    docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name) | ast.Attribute(attr=name) | ast.arg(arg=name):
                yield name
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                yield name
            case ast.ImportFrom(module=str(name)) | ast.alias(name=name) | ast.keyword(arg=str(name)):
                yield name
            case ast.Constant(value=str(text)) if id(node) not in docstrings:
                yield text
            case _:
                pass
        if isinstance(node, ast.ImportFrom):
            yield from (alias.name for alias in node.names)


def known_to(feature: str) -> list[str]:
    """Return the product files that know a feature or the constant of a loop tool, as paths in the repository."""
    pattern, other = FEATURES.get(feature), NOT_OF_IT.get(feature)
    found: list[str] = []
    for path, names in words_of_files().items():
        if other and other.match(path):
            continue
        if feature in names or (pattern and any(pattern.fullmatch(part) for n in names for part in WORDS.findall(n))):
            found.append(path)
    return found


def lines_of_workflows() -> dict[str, int]:
    """Return the lines of each file of `workflows/`, by its path in the repository."""
    files = sorted((ROOT / "workflows").rglob("*.py"))
    return {str(file.relative_to(ROOT)): len(file.read_text().splitlines()) for file in files}


def _main() -> None:
    for feature in (*FEATURES, *LOOP_TOOLS):
        found = known_to(feature)
        print(f"{feature}: {len(found)} files")
        if "--list" in sys.argv:
            print("".join(f"  {file}\n" for file in found), end="")
    lines = lines_of_workflows()
    print(f"workflows/: {len(lines)} files, {sum(lines.values())} lines, the longest has {max(lines.values())}")


if __name__ == "__main__":
    _main()
