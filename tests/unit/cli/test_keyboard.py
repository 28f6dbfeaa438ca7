"""The input line of `orga chat` at a real terminal."""

import sys
from pathlib import Path

import pytest

from tests.support.programs.orga_command import an_orga
from tests.support.programs.terminal import program_at_a_terminal

PRINTS_WHILE_A_KEY_IS_PRESSED = """
import asyncio, select
from pathlib import Path
from orga.client.cli.chat.screen import ChatExit, Keyboard

def show():
    print("printing", flush=True)
    select.select([0], [], [], 60)  # until a key is pressed
    print("printed", flush=True)

async def main():
    outputs = [show]
    loop = asyncio.get_running_loop()

    def label():
        if outputs:
            loop.call_soon(keyboard.print_above, outputs.pop())
        return "> "

    keyboard = Keyboard(Path("typed"), label, lambda: "")
    try:
        await keyboard.read(lambda: "leaves")
    except ChatExit:
        print("left", flush=True)

asyncio.run(main())
"""


@pytest.mark.parametrize("key", [pytest.param("\x04", id="Ctrl-D"), pytest.param("\x03", id="Ctrl-C")])
def test_a_key_that_is_pressed_while_output_is_printed_reaches_the_line(tmp_path: Path, key: str) -> None:
    orga = an_orga(tmp_path, tmp_path)
    with program_at_a_terminal(orga, sys.executable, "-c", PRINTS_WHILE_A_KEY_IS_PRESSED) as terminal:
        terminal.shows("printing")
        terminal.types(key)
        terminal.shows("left", after=terminal.shows("printed"))
        assert terminal.code() == 0
