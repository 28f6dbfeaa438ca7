"""HTML of strangers is parsed in a process of its own, with limits on its time and memory.

Deep nesting costs lexbor quadratic time (measured: 100,000 nested `div`, half a megabyte, 25 s) with Python's
lock held, which would stop the whole worker.
"""

import asyncio
import json
import sys
from asyncio.subprocess import DEVNULL, PIPE

from activities.adapters.tools import page_text
from activities.ports import ToolError


async def parsed_page(url: str, html: str) -> tuple[str, str]:
    """Return title and text, of an empty environment's process that ends with this call.

    Raises:
        ToolError: Kind PageTooComplex.
    """
    parser = await asyncio.create_subprocess_exec(
        sys.executable, "-I", page_text.__file__, stdin=PIPE, stdout=PIPE, stderr=DEVNULL, env={}
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
