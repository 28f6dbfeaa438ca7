"""Finds and reads tool manifests. Each problem comes with its file, line and remedy."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from glob import glob, has_magic
from pathlib import Path

from pydantic import ValidationError

from orga.activities.adapters.manifests.flaws import manifest_flaws
from orga.activities.adapters.manifests.manifest import Manifest
from orga.activities.adapters.problem import FileProblem
from orga.activities.adapters.toml_text import read_toml
from orga.activities.adapters.tools.catalog import builtin_specs
from orga.client.config.file import line_of
from orga.client.config.problems import key_problems
from orga.client.config.sections import OrgaConfig

MAX_BYTES = 500_000  # of a manifest
EXAMPLE_HINT = "see docs/tool-manifests.md; `orga tools new NAME` writes one that works"


@dataclass(frozen=True)
class ManifestFile:
    """A manifest with valid keys and types, and its file."""

    path: Path
    manifest: Manifest
    text: str

    def location(self, key: tuple[str, ...]) -> str:
        return _location(self.path, self.text, key)


class BrokenManifests(ValueError):
    """Manifests that cannot be used. The text has one line per problem."""

    def __init__(self, problems: Sequence[FileProblem]) -> None:
        super().__init__("\n".join(map(str, problems)))
        self.problems = tuple(problems)


def configured_manifests(config: OrgaConfig) -> list[ManifestFile]:
    """Return the manifests that the configuration names. Raise BrokenManifests if one cannot be used."""
    files, problems = read_manifests(manifest_paths(config.tools.manifests))
    if problems:
        raise BrokenManifests(problems)
    return files


def manifest_paths(patterns: Iterable[str]) -> list[Path]:
    """Return the files that the paths and globs name, each once. A plain path is returned even if no file exists."""
    found: dict[Path, None] = {}
    for pattern in patterns:
        matching = sorted(glob(pattern, recursive=True)) if has_magic(pattern) else [pattern]  # noqa: PTH207
        found |= dict.fromkeys(map(Path, matching))
    folder = Path.cwd()
    return [path.relative_to(folder) if path.is_relative_to(folder) else path for path in found]


def read_manifests(paths: Iterable[Path]) -> tuple[list[ManifestFile], list[FileProblem]]:
    """Return the valid manifests, and the problems of the others."""
    files: list[ManifestFile] = []
    problems: list[FileProblem] = []
    owners = dict.fromkeys(builtin_specs(), "a built-in tool")
    for path in paths:
        try:
            file = _read_manifest(path)
        except BrokenManifests as error:
            problems += sorted(error.problems, key=_line_number)
            continue
        name = file.manifest.name
        if owner := owners.get(name):
            problem = f"the name {name!r} is taken by {owner}"
            problems.append(FileProblem(file.location(("name",)), problem, "choose another"))
            continue
        owners[name] = str(path)
        flaws = manifest_flaws(file.manifest)
        found = [FileProblem(file.location(flaw.key), flaw.problem, flaw.remedy) for flaw in flaws]
        problems += sorted(found, key=_line_number)
        if not found:
            files.append(file)
    return files, problems


def _read_manifest(path: Path) -> ManifestFile:
    """Return the manifest. Its content is not checked yet. Raise BrokenManifests if it has an invalid key or type."""
    text = _read_text(path)
    try:
        table = read_toml(text)
    except ValueError as error:
        raise BrokenManifests([_toml_problem(path, error)]) from None
    try:
        return ManifestFile(path, Manifest.model_validate(table, extra="forbid"), text)
    except ValidationError as error:
        raise BrokenManifests([*_key_problems(path, text, error)]) from None


def _read_text(path: Path) -> str:
    try:
        if path.stat().st_size <= MAX_BYTES:
            return path.read_text(encoding="utf-8-sig")
        problem = FileProblem(str(path), f"more than {MAX_BYTES:,} bytes", "declare one tool per file")
    except OSError as error:
        problem = FileProblem(str(path), f"cannot be read ({error.strerror})", "correct its path")
    except UnicodeDecodeError as error:
        problem = FileProblem(str(path), f"byte {error.start} is not UTF-8", "save it as UTF-8")
    raise BrokenManifests([problem])


def _toml_problem(path: Path, error: ValueError) -> FileProblem:
    message = str(error)
    line = message.partition(" (at line ")[2].partition(",")[0]
    return FileProblem(f"{path}:{line if line.isdecimal() else 1}", f"not valid TOML: {message}", EXAMPLE_HINT)


def _key_problems(path: Path, text: str, error: ValidationError) -> Iterator[FileProblem]:
    for key, text_and_remedy in key_problems(error, Manifest):
        problem, _, remedy = text_and_remedy.partition("; ")
        named = f"{'.'.join(key)}: {problem}" if key else problem
        yield FileProblem(_location(path, text, key), named, remedy or EXAMPLE_HINT)


def _location(path: Path, text: str, key: tuple[str, ...]) -> str:
    return f"{path}:{line_of(text, key) or 1}"


def _line_number(problem: FileProblem) -> int:
    _, _, line = problem.place.rpartition(":")
    return int(line) if line.isdecimal() else 0
