"""Secrets planted where adapters look for them, all with one mark that a scan can find."""

import json
from collections.abc import Iterable
from pathlib import Path

MARK = "planted-7f3a91"

CREDENTIALS = (
    "OPENAI_API_KEY",
    "OPENROUTER_API_KEY",
    "ANTHROPIC_API_KEY",
    "OLLAMA_API_KEY",
    "OPENAI_COMPATIBLE_API_KEY",
    "GITHUB_TOKEN",
    "OPA_TOKEN",
    "ORGA_NOTIFY_SECRET",
    "OTEL_EXPORTER_OTLP_HEADERS",
    "POSTGRES_PASSWORD",
    "TEMPORAL_API_KEY",
)
"""All variables that an adapter, the deployment or the SDK reads as a secret."""

SILENT = ("GITHUB_TOKEN", "OPA_TOKEN", "OLLAMA_API_KEY", "OPENAI_COMPATIBLE_API_KEY")
"""Variables that change nothing by being set. The whole suite runs with them."""


def a_secret(name: str) -> str:
    """Return the secret planted under a name."""
    return f"{MARK}-{name.lower().replace('_', '-')}"


def planted(names: Iterable[str] = SILENT) -> dict[str, str]:
    """Return these environment variables with their secrets."""
    return {name: f"x-api-key={a_secret(name)}" if name.endswith("HEADERS") else a_secret(name) for name in names}


def around_marks(place: bytes) -> list[str]:
    """Return each mark with the bytes around it, for the message of a failing test."""
    mark, found, start = MARK.encode(), list[str](), 0
    while (at := place.find(mark, start)) >= 0:
        found.append(place[max(at - 60, 0) : at + 60].decode(errors="replace"))
        start = at + len(mark)
    return found


def marked_files(*folders: Path) -> dict[str, list[str]]:
    """Return the files below the folders that contain a mark."""
    files = [path for folder in folders for path in folder.rglob("*") if path.is_file()]
    return {str(path): found for path in files if (found := around_marks(path.read_bytes()))}


def repeated_headers(headers: Iterable[tuple[str, str]]) -> str:
    """Return headers as a careless server repeats them."""
    return json.dumps(dict(headers))
