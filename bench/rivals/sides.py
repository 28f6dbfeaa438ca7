"""The compared agents, each in an environment of its own, on one server."""

import asyncio
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
AGENTS = Path(__file__).with_name("agents")
REQUIREMENTS = Path(__file__).with_name("requirements")
ENVIRONMENTS = ROOT / ".cache" / "rivals"


@dataclass(frozen=True)
class Side:
    """One agent."""

    name: str
    title: str
    packages: tuple[str, ...]
    """Packages whose versions are shown."""

    @property
    def folder(self) -> Path:
        return ENVIRONMENTS / self.name

    @property
    def python(self) -> Path:
        return self.folder / "bin" / "python"

    def install(self) -> None:
        """Create its environment again without bytecode, so that its size is that of the installed files."""
        uv = str(Path(sys.executable).with_name("uv"))
        shutil.rmtree(self.folder, ignore_errors=True)
        requirements = str(REQUIREMENTS / f"{self.name}.txt")
        subprocess.run([uv, "venv", "--quiet", "--python", sys.executable, str(self.folder)], check=True)
        install = [uv, "pip", "install", "--quiet", "--python", str(self.python), "-r", requirements]
        subprocess.run(install, cwd=ROOT, check=True)

    def megabytes(self) -> float:
        """Return the size of the installed files, without bytecode."""
        files = (file for file in self.folder.rglob("*") if file.is_file() and not file.is_symlink())
        return sum(file.stat().st_size for file in files if file.suffix != ".pyc") / 1e6

    def versions(self) -> str:
        """Return the name and versions of the side."""
        code = "import sys; from importlib.metadata import version; print(*map(version, sys.argv[1:]))"
        command = [str(self.python), "-c", code, *self.packages]
        found = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
        return ", ".join(f"{package} {version}" for package, version in zip(self.packages, found, strict=True))

    def lines(self) -> int:
        """Return the non-empty lines of the program, without the scripted model and the measuring code."""
        return sum(bool(line.strip()) for line in (AGENTS / f"{self.name}_agent.py").read_text().splitlines())

    async def process(self, surroundings: dict[str, str], *arguments: str) -> asyncio.subprocess.Process:
        """Start its program."""
        return await asyncio.create_subprocess_exec(
            str(self.python),
            str(AGENTS / "drive.py"),
            self.name,
            *arguments,
            cwd=surroundings["RIVALS_FOLDER"],
            env={key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"} | surroundings,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )

    async def output(self, surroundings: dict[str, str], *arguments: str) -> str:
        """Run its program to the end, and return what it printed."""
        process = await self.process(surroundings, *arguments)
        out, err = await process.communicate()
        if process.returncode:
            raise RuntimeError(f"{self.name} {' '.join(arguments)}: {err.decode()[-2_000:]}")
        return out.decode()


SIDES = (
    Side("orga", "orga", ("orga", "temporalio")),
    Side("langgraph", "LangGraph, SQLite", ("langchain", "langgraph", "langgraph-checkpoint-sqlite")),
    Side("pydantic_ai", "Pydantic AI, Temporal", ("pydantic-ai-slim", "temporalio")),
    Side("openai_agents", "OpenAI Agents, Temporal", ("openai-agents", "temporalio-openai-agents", "temporalio")),
)
