"""Options mean the same in every command: how a run is named, short names, and the options of `rewind` and `fork`."""

import re
from collections.abc import Iterator
from typing import Any

import pytest

from orga.client.cli.commands import COMMANDS, load_command
from tests.support.programs.orga_command import ROOT

GUIDE = (ROOT / "docs" / "command-line.md").read_text(encoding="utf-8")
OF_OTHER_THINGS = {"schedule", "id_", "item_id"}
"""Arguments that are an ID, and not that of a run."""


def all_commands() -> Iterator[tuple[str, Any]]:
    for commands in COMMANDS.values():
        for command in commands:
            found = load_command(command)
            for name, each in (getattr(found, "commands", None) or {"": found}).items():
                yield f"{command.name} {name}".strip(), each


ALL = dict(all_commands())


def options_of(command: str) -> dict[str, tuple[str, ...]]:
    """Return each option by its long name, with its names."""
    given = (each for each in ALL[command].params if each.param_type_name == "option")
    return {each.opts[0]: tuple(each.opts) for each in given}


@pytest.mark.parametrize("command", ALL)
def test_every_command_that_takes_a_run_id_takes_last(command: str) -> None:
    takes = [each.name for each in ALL[command].params if "ID" in (each.metavar or "").strip("[]").split()]
    arguments = [each.name for each in ALL[command].params if each.param_type_name == "argument"]
    of_run = [name for name in takes if name in arguments and name not in OF_OTHER_THINGS]
    assert of_run in ([], ["run"])
    assert ("--last" in options_of(command)) is bool(of_run)


def documented_short_options() -> dict[tuple[str, str], list[str]]:
    """Return the guide's table: (short, long) to the commands that it names, or none."""
    found: dict[tuple[str, str], list[str]] = {}
    for shorts, longs, where in re.findall(r"^\| (`-\w`.*?) \| (`--.*?) \| (.*?) \|$", GUIDE, re.MULTILINE):
        pairs = list(zip(re.findall(r"-\w", shorts), re.findall(r"--[\w-]+", longs), strict=True))
        for short, long in pairs:
            alone = [part for part in where.split("; ") if not part.startswith("`-") or part.startswith(f"`{short}`")]
            found[short, long] = [name for part in alone for name in re.findall(r"`([a-z][a-z ]*)`", part)]
    return found


def test_short_options_are_those_of_the_guide_and_mean_the_same_everywhere() -> None:
    there: dict[tuple[str, str], list[str]] = {}
    for command in ALL:
        for names in options_of(command).values():
            for short in names[1:]:
                there.setdefault((short, names[0]), []).append(command)
    assert len({short for short, _ in there}) == len(there)
    guide = documented_short_options()
    assert guide.keys() == there.keys()
    assert {pair: sorted(commands) for pair, commands in guide.items() if commands} == {
        pair: sorted(there[pair]) for pair, commands in guide.items() if commands
    }


def test_rewind_and_fork_share_the_option_for_the_iteration() -> None:
    [rewind, fork] = (
        next(each for each in ALL[command].params if each.name == "to_iteration") for command in ("rewind", "fork")
    )
    assert (rewind.opts, rewind.metavar, rewind.help) == (fork.opts, fork.metavar, fork.help)
