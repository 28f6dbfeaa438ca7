"""`orga journal` shows, exports or checks a run's journal. `orga audit keygen` makes the key that signs exports."""

import os
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from orga.client.cli.connection import run_context
from orga.client.cli.exit_codes import ExitCode, UsageError
from orga.client.cli.inspect.report import html, markdown, write_report
from orga.client.cli.options import ConfigFile, Json, RunId
from orga.client.cli.shown.narration import INDENT, entry_lines
from orga.client.cli.shown.text import write_json, write_note, write_result
from orga.client.config.sections import AuditConfig
from orga.client.journal.file import (
    KEY_PREFIX,
    JournalFile,
    export_check,
    generate_key,
    head_mismatches,
    key_id,
    private_key,
    public_key,
    public_path,
    read_journal_file,
    sealed_head,
    write_journal,
)
from orga.client.journal.reading import read_journal
from orga.client.journal.run_view import RunView
from orga.client.server.home import user_path
from orga.workflows.decisions.journal.entries import first_break
from orga.workflows.types.status import JournalEntry

_KEY_FILE_VARIABLE = "ORGA_SIGNING_KEY_FILE"

Key = Annotated[
    list[str] | None,
    typer.Option(
        metavar="PUB", help="Trust this public key (ed25519:… or a file with it) instead of \\[audit] trusted_keys."
    ),
]


def keygen(
    *,
    out: Annotated[Path, typer.Option(metavar="FILE", help="The file for the private key.")] = Path("orga-signing.key"),
) -> None:
    """Create a key that signs exported journals: FILE is private, FILE.pub is for those who verify.

    Example: orga audit keygen --out audit.key
    """
    public = generate_key(out)
    write_note(f"wrote {out} (private, mode 0600) and {public_path(out)}; key id {key_id(public_key(public))}")
    write_note(f"to sign: {_KEY_FILE_VARIABLE}={out}; to trust it: [audit] trusted_keys in orga.toml")
    write_result(public)


def signing_key(config: AuditConfig) -> Ed25519PrivateKey:
    """Return the private key that signs exports. Raise UsageError if there is none, KeyProblem if it is unusable."""
    path = signing_key_file(config)
    if path is None:
        raise UsageError(
            f"--sign: no key is configured. Set {_KEY_FILE_VARIABLE} or [audit] signing_key_file. "
            "Create a key with: orga audit keygen"
        )
    return private_key(path)


def signing_key_file(config: AuditConfig) -> Path | None:
    """Return the file of the private key, or None if no key is configured."""
    named = os.environ.get(_KEY_FILE_VARIABLE) or config.signing_key_file
    return user_path(named) if named else None


def trusted_keys(config: AuditConfig, named: Sequence[str]) -> list[Ed25519PublicKey]:
    """Return the keys that check signatures: the keys that a person named, else those of the configuration.

    They are not combined. A configuration may come with the export, and must not vouch for it if a person named a key.

    Raises:
        KeyProblem: One of them is not a public key.
    """
    return [public_key(_key_text(key)) for key in named or config.trusted_keys]


def _key_text(key: str) -> str:
    path = user_path(key)
    if key.startswith(KEY_PREFIX) or not path.is_file():
        return key
    return path.read_text(encoding="utf-8", errors="replace")


_ELAPSED_CHARS = 12
"""Room for `+12345.678s` and a space."""
_EVENT_CHARS = 21
"""Room for the name of an event. A few names are longer."""


class Timeline:
    """Renders the entries of a journal and of its delegates' journals, which `lines` takes in order."""

    def __init__(self) -> None:
        self._run = RunView()

    def lines(self, entry: JournalEntry) -> list[str]:
        viewed = self._run.take(entry)
        texts = [line.text for line in entry_lines(viewed)] or [""]
        head = [f"── iteration {entry.iteration}"] if viewed.begins_iteration else []
        elapsed = f"{self._run.elapsed_s(entry):+{_ELAPSED_CHARS - 2}.3f}s "
        first = f"{elapsed}{entry.event:<{_EVENT_CHARS}} {texts[0]}".rstrip()
        margin = " " * (_ELAPSED_CHARS + _EVENT_CHARS)
        lines = (*head, first, *(f"{margin} {text}" for text in texts[1:]))
        return [f"{INDENT * viewed.run.depth}{line}" for line in lines]


async def _check_export(name: str, path: Path, config: Path | None) -> int:
    exported = read_export(path)
    async with run_context(name, config) as (context, run_id):
        entries = [entry async for entry in read_journal(context.client, run_id)]
    check = export_check(run_id, exported.entries, entries)
    wrong = [] if check.ok else [check.detail]
    if exported.head is not None:
        wrong += head_mismatches(run_id, exported.entries, exported.head.head)
    for detail in wrong:
        write_note(f"✗ {path}: {detail}")
    if not wrong:
        write_note(f"✓ {path} holds the first {len(exported.entries)} of {len(entries)} entries of {run_id}, unchanged")
    return ExitCode.FAILED if wrong else ExitCode.COMPLETED


def read_export(path: Path) -> JournalFile:
    """Return the file that a command names. Raise UsageError if there is none, or NoJournal if it is damaged."""
    if not path.is_file():
        raise UsageError(f"{path} cannot be read: it is not a file")
    return read_journal_file(path)


async def _export_journal(name: str, path: Path, config: Path | None, *, sign: bool) -> None:
    async with run_context(name, config) as (context, run_id):
        key = signing_key(context.config.audit) if sign else None
        entries = [entry async for entry in read_journal(context.client, run_id)]
    head = sealed_head(run_id, entries, key, datetime.now(UTC))
    write_journal(path, entries, head)
    by = f"signed by key {head.head.key_id}" if key else "not signed"
    write_note(f"wrote {len(entries)} entries and their head to {path}, {by}")


async def journal(
    run: RunId,
    *,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Wait for new entries until the run ends.")] = False,
    verify: Annotated[
        bool, typer.Option("--verify", help="Check the chain of hashes. Exit with 6 if it is broken.")
    ] = False,
    exported: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Check this export against the run, line by line.")
    ] = None,
    export: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the entries to FILE, and their number and last hash.")
    ] = None,
    as_markdown: Annotated[
        bool, typer.Option("--markdown", help="Write a report to read or send, in Markdown.")
    ] = False,
    as_html: Annotated[
        bool, typer.Option("--html", help="Write the report as one HTML page, which loads nothing and runs nothing.")
    ] = False,
    sign: Annotated[
        bool, typer.Option("--sign", help="With --export: sign the last hash. orga audit keygen makes the key.")
    ] = False,
    json: Json = False,
    config: ConfigFile = None,
) -> int:
    """--json writes one object per line: sequence, timestamp, agent, iteration, event, data, hash.

    Example: orga journal ID --html > report.html

    Example: orga journal ID --export run.jsonl --sign

    Example: orga journal ID --exported run.jsonl
    """
    if as_markdown or as_html:
        others = (follow, verify, json, sign, exported is not None, export is not None, as_markdown and as_html)
        if any(others):
            option = "--html" if as_html else "--markdown"
            raise UsageError(f"{option}: makes a report and cannot be combined with other options")
        await write_report(run, html if as_html else markdown, config)
        return ExitCode.COMPLETED
    if sign and export is None:
        raise UsageError("--sign: signs an export. Name its file with --export FILE")
    if export is not None:
        if follow or verify or json or exported is not None:
            raise UsageError(
                "--export: can be combined only with --sign. orga verify ID --journal FILE checks the file"
            )
        await _export_journal(run, export, config, sign=sign)
        return ExitCode.COMPLETED
    if exported is not None:
        return await _check_export(run, exported, config)
    timeline, seen = Timeline(), list[JournalEntry]()
    async with run_context(run, config) as (context, run_id):
        async for entry in context.run(run_id).events() if follow else read_journal(context.client, run_id):
            if not isinstance(entry, JournalEntry):
                continue
            if json:
                write_json(entry.model_dump(mode="json"), indent=None)
            else:
                write_result(*timeline.lines(entry))
            if verify:
                seen.append(entry)
    return _verify_chain(seen) if verify else ExitCode.COMPLETED


def _verify_chain(entries: list[JournalEntry]) -> int:
    broken = first_break(entries)
    if broken is not None:
        write_note(f"✗ the chain breaks at entry {broken}: that entry or an earlier one was changed")
        return ExitCode.FAILED
    write_note(f"✓ the chain of {len(entries)} entries holds; last hash {entries[-1].hash if entries else 'none'}")
    return ExitCode.COMPLETED
