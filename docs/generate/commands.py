"""The commands of `orga`, from the parsers that read them, with their exit codes."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from types import NoneType
from typing import Any, Literal, get_args, get_origin

from docs.generate.source import in_cell
from orga.client.cli.commands import COMMANDS, load_command
from orga.client.cli.exit_codes import (
    COMMAND_EXIT_CODES,
    COMMANDS_WITHOUT_SERVER,
    COMMON_EXIT_CODES,
    EXIT_CODE_MEANINGS,
    ExitCode,
)


def commands_page() -> str:
    """Return the page."""
    parts = [
        "# Commands\n\n"
        "The result of a command stands on stdout, everything else on stderr; `--json` prints one that scripts can read.\n"
        "`orga COMMAND --help` says the same.\n\n"
        "## Exit codes\n\n| code | name | means |\n|---|---|---|",
        *(f"| {code.value} | `{code.name}` | {EXIT_CODE_MEANINGS[code]} |" for code in ExitCode),
        "| 130, 143 | | Ctrl-C or SIGTERM ended the command; a run goes on |",
        "| 141 | | who read its output has gone |",
        "",
        f"{_listed(COMMON_EXIT_CODES)} are those of every command, {ExitCode.NO_SERVER.value} is one of those that ask a Temporal "
        "server. Where a command has more, or one means something of its own, that stands there.\n",
    ]
    for panel, commands in COMMANDS.items():
        parts.append(f"## {panel}\n")
        for command in commands:
            parts += _command(f"orga {command.name}", load_command(command))
    return "\n".join(parts)


def names() -> list[str]:
    """Return every command, those of groups with their group: `policy check`."""
    found: list[str] = []
    for commands in COMMANDS.values():
        for command in commands:
            target = load_command(command)
            inner = getattr(target, "commands", {})
            found += [f"{command.name} {name}" for name in inner] if inner else [command.name]
    return found


def _command(name: str, command: Any) -> Iterator[str]:
    inner: dict[str, Any] = getattr(command, "commands", {})
    if inner:
        yield f"### `{name}`\n\n{_help(command)}\n"
        for each, found in inner.items():
            yield from _command(f"{name} {each}", found)
        return
    given = [each for each in command.params if each.name != "help" and not getattr(each, "hidden", False)]
    arguments = [each for each in given if each.param_type_name == "argument"]
    options = [each for each in given if each.param_type_name == "option"]
    usage = " ".join([name, *map(_argument, arguments), *(["[OPTIONS]"] if options else [])])
    yield f"### `{name}`\n\n```text\n{usage}\n```\n\n{_help(command)}\n"
    if any(each.help for each in arguments):
        yield "\n".join(f"- `{_name(each)}`: {in_cell(_plain(each.help))}" for each in arguments) + "\n"
    if options:
        yield "| option | default | meaning |\n|---|---|---|"
        yield "\n".join(map(_option, options)) + "\n"
    of = name.removeprefix("orga ")
    meanings = "".join(f"; {code.value} {means}" for code, means in sorted(COMMAND_EXIT_CODES.get(of, {}).items()))
    yield f"Exit codes: {_listed(codes_of(of))}{meanings}.\n"


def codes_of(command: str) -> list[ExitCode]:
    """Return the codes that a command may end with."""
    of_server = () if command in COMMANDS_WITHOUT_SERVER else (ExitCode.NO_SERVER,)
    return sorted({*COMMON_EXIT_CODES, *of_server, *COMMAND_EXIT_CODES.get(command, {})})


def _listed(codes: Sequence[ExitCode]) -> str:
    return ", ".join(str(code.value) for code in codes)


def _name(argument: Any) -> str:
    return (argument.metavar or argument.name or "").upper()


def _argument(argument: Any) -> str:
    shown = _name(argument) + ("..." if argument.nargs == -1 else "")
    return shown if argument.required else f"[{shown}]"


def _option(option: Any) -> str:
    flags = ", ".join(f"`{flag}`" for flag in (*option.opts, *option.secondary_opts))
    takes = "" if option.is_flag else f" `{option.metavar or _takes(option.type_descriptor.annotation)}`"
    value = option.default
    has_default = value not in (None, False, (), [], "") and not callable(value)
    return f"| {flags}{takes} | {f'`{value}`' if has_default else ''} | {in_cell(_plain(option.help))} |"


_TAKES = {str: "TEXT", int: "N", float: "NUMBER", Path: "PATH"}


def _takes(annotation: Any) -> str:
    """Return the placeholder of an option's value, if the option names none."""
    kinds = [part for part in (annotation, *get_args(annotation)) if part is not NoneType]
    words = sorted(str(word) for kind in kinds if get_origin(kind) is Literal for word in get_args(kind))
    return "|".join(words) or next((_TAKES[kind] for kind in kinds if kind in _TAKES), "VALUE")


def _plain(text: str | None) -> str:
    """Return a help text without the escapes that its markup asks for."""
    return (text or "").replace("\\[", "[")


def _help(command: Any) -> str:
    """Return the help as Markdown; its examples become code."""
    parts: list[str] = []
    for part in _plain(command.help).split("\n\n"):
        text = " ".join(part.replace("\b", "").split())
        if text.startswith("Example: "):
            parts.append(f"```sh\n{text.removeprefix('Example: ')}\n```")
        elif text:
            parts.append(text)
    return "\n\n".join(parts)
