"""HTML of strangers is parsed in a process of its own, with limits on its time and memory.

Deep nesting costs lexbor quadratic time (measured: 100,000 nested `div`, half a megabyte, 25 s) with Python's
lock held, which would stop the whole worker.
"""

import asyncio
import json
from asyncio.subprocess import DEVNULL, PIPE

from orga.activities.adapters.tools import page_text
from orga.activities.ports import ToolError
from orga.child import held_program


async def parsed_page(url: str, html: str) -> tuple[str, str]:
    """Return title and text, of an empty environment's process that ends with this call.

    Raises:
        ToolError: Kind PageTooComplex.
    """
    program = held_program(page_text.__name__)
    parser = await asyncio.create_subprocess_exec(
        *program.argv, stdin=PIPE, stdout=PIPE, stderr=DEVNULL, env={}, pass_fds=(program.number,)
    )
    try:
        output, _ = await parser.communicate(html.encode(errors="replace"))
    finally:
        if parser.returncode is None:
            parser.kill()
            await parser.wait()
    if parser.returncode != 0:
        raise ToolError(f"{url}: the page is too complex to read; try another", kind="PageTooComplex")
    title, text = json.loads(output)
    return title, text
