"""`orga init`: write a first `orga.toml` from questions or options."""

import os
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from orga.client.cli.exit_codes import UsageError
from orga.client.cli.interrupts import interruptible_prompt
from orga.client.cli.options import Json
from orga.client.cli.shown.text import write_document, write_json, write_note, write_result
from orga.client.config.file import FILE_NAME, config_above, read_config
from orga.client.config.known_input import model_problem, require_model
from orga.client.config.policy import FOLDER
from orga.client.config.sections import ModelsConfig
from orga.client.config.starter import StarterChoices, starter_text
from orga.client.config.trust.check import trust_digest
from orga.client.errors import ConfigError
from orga.workflows.types.text import escaped_line

_MODEL_NAME = re.compile(r"[!-~]{3,200}")
_PROGRAM_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]{0,99}")
_HTTP_ADDRESS = re.compile(r"https?://[^/\s]+\S*")


@dataclass(frozen=True)
class _InitOptions:
    """An option that was not given is None and may be asked for."""

    model: str | None
    base_url: str | None
    write: bool | None
    web: bool | None
    programs: tuple[str, ...] | None
    approval: bool | None


def init(
    folder: Annotated[
        Path, typer.Argument(metavar="FOLDER", help="The folder for the file. Default: the current one.")
    ] = Path(),
    *,
    model: Annotated[
        str | None, typer.Option("--model", "-m", help="provider:model. `orga models` shows the choice.")
    ] = None,
    base_url: Annotated[
        str | None, typer.Option(metavar="URL", help="The address of the provider, if it is not the usual one.")
    ] = None,
    write: Annotated[
        bool | None, typer.Option("--write/--no-write", help="The agent may write files of the folder.")
    ] = None,
    web: Annotated[bool | None, typer.Option("--web/--no-web", help="The agent may fetch web pages.")] = None,
    programs: Annotated[
        str | None,
        typer.Option("--commands", metavar="NAMES", help="Programs that the agent may start, such as git,pytest."),
    ] = None,
    approval: Annotated[
        bool | None,
        typer.Option("--approval/--no-approval", help="A person approves each of these calls (the default)."),
    ] = None,
    yes: Annotated[
        bool, typer.Option("--yes", "-y", help="Ask nothing. Options that are not given keep their defaults.")
    ] = False,
    show: Annotated[bool, typer.Option("--print", help="Write the text to stdout instead of a file.")] = False,
    json: Json = False,
) -> None:
    """On a terminal, the command asks for options that are not given: model, tools, approvals. Your choices are
    trusted, so you are not asked later.

    Example: orga init

    Example: orga init --model openai:gpt-6.1-terra --write --commands git,pytest --yes
    """
    if show and json:
        raise UsageError("--print: writes the text of the file, which is TOML. Remove --json")
    options = _InitOptions(
        model, base_url, write, web, None if programs is None else _parse_programs(programs), approval
    )
    file = folder / FILE_NAME
    if not show:
        _require_new_file(folder, file)
    asks = not yes and not show and sys.stdin.isatty() and sys.stderr.isatty()
    choices = _ask_choices(options) if asks else _default_choices(options)
    text = starter_text(choices)
    if show:
        write_document(text.removesuffix("\n"))
        return
    _write(file, text)
    risks = _trust_file(file)
    hints = _hints(choices, folder)
    if json:
        write_json({"path": str(file.absolute()), "tools": choices.acting_tools, "trusted": risks, "hints": hints})
    else:
        write_result(str(file))
        write_note(*(f"trusted, as you chose it: {risk}" for risk in risks), *hints)


def _require_new_file(folder: Path, file: Path) -> None:
    if not folder.is_dir():
        raise UsageError(f"{folder}: is not a folder. Create it first")
    if file.is_symlink() or file.exists():
        raise UsageError(f"{file}: already exists and was not changed. --print shows the text that would be written")


def _write(file: Path, text: str) -> None:
    try:
        with file.open("x", encoding="utf-8") as new_file:  # "x" refuses a file that another process created meanwhile
            new_file.write(text)
    except FileExistsError:
        raise UsageError(f"{file}: already exists and was not changed") from None
    except OSError as error:
        raise UsageError(f"{file}: cannot be written: {error.strerror}") from None


def _trust_file(file: Path) -> list[str]:
    """Trust the new file, and return its settings that need trust.

    A file without such settings is trusted too, because it would need trust once a Temporal server is set. But if the
    folder has policies, which somebody else may have put there, they are not trusted here.
    """
    request = read_config(file.absolute()).trust_request()
    if request is None or (not request.risks and (file.parent / FOLDER).exists()):
        return []
    trust_digest(request.path, request.digest)
    return [str(risk) for risk in request.risks]


def _hints(choices: StarterChoices, folder: Path) -> list[str]:
    hints: list[str] = []
    above = config_above(folder / FILE_NAME)
    if above is not None:
        hints.append(f"{above} does not apply here any more")
    base_urls = {choices.model.partition(":")[0]: choices.base_url} if choices.model and choices.base_url else {}
    models = ModelsConfig(base_urls=base_urls)
    if choices.model and (problem := model_problem(choices.model, os.environ, models)):
        hints.append(f"before the first run: {problem}")
    change_folder = "" if folder.absolute() == Path.cwd() else f"cd {escaped_line(str(folder))} && "
    return [*hints, f'next: {change_folder}orga doctor, then {change_folder}orga run "What is in this folder?"']


def _default_choices(options: _InitOptions) -> StarterChoices:
    choices = StarterChoices(
        options.model,
        options.base_url,
        bool(options.write),
        bool(options.web),
        options.programs or (),
        options.approval is not False,
    )
    _check_choices(choices)
    return choices


def _check_choices(choices: StarterChoices) -> None:
    if choices.model is not None:
        require_model(choices.model)
        if not _MODEL_NAME.fullmatch(choices.model):
            raise UsageError("--model: the name is not valid. Use at most 200 characters without spaces")
    if choices.base_url is not None and choices.model is None:
        raise UsageError("--base-url: is the address of a model's provider. Add --model")
    if choices.base_url is not None and not _HTTP_ADDRESS.fullmatch(choices.base_url):
        raise UsageError(f"--base-url {choices.base_url!r}: not an address. Write it like http://host:8000/v1")


def _ask_choices(options: _InitOptions) -> StarterChoices:
    with interruptible_prompt():
        model = options.model or _ask_model()
        write = _confirm("May the agent write files of this folder?") if options.write is None else options.write
        web = _confirm("May it fetch web pages?") if options.web is None else options.web
        programs = _ask_programs() if options.programs is None else options.programs
        approval = options.approval
        if approval is None:
            acts = write or web or bool(programs)
            approval = _confirm("Must a person approve each of these calls?", default=True) if acts else True
    choices = StarterChoices(model, options.base_url, write, web, programs, approval)
    _check_choices(choices)
    return choices


def _ask_model() -> str | None:
    from orga.activities.adapters.models.model_settings import default_model

    current = default_model(os.environ)
    while True:
        answer: str = typer.prompt(
            f"Model (provider:model; Enter uses the environment's keys, now {current})",
            default="",
            show_default=False,
            err=True,
        ).strip()
        try:
            if answer:
                require_model(answer)
        except ConfigError as error:
            write_note(str(error))
        else:
            return answer or None


def _ask_programs() -> tuple[str, ...]:
    while True:
        answer: str = typer.prompt(
            "Programs it may start, such as git,pytest (Enter: none)", default="", show_default=False, err=True
        )
        try:
            return _parse_programs(answer)
        except UsageError as error:
            write_note(str(error))


def _confirm(question: str, *, default: bool = False) -> bool:
    return typer.confirm(question, default=default, err=True)


def _parse_programs(text: str) -> tuple[str, ...]:
    names: Sequence[Any] = [name for name in re.split(r"[,\s]+", text) if name]
    if wrong := [name for name in names if not _PROGRAM_NAME.fullmatch(name)]:
        raise UsageError(f"--commands {wrong[0]!r}: not a program name. Name programs without paths and arguments")
    return tuple(dict.fromkeys(names))
