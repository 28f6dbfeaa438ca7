"""Offering what runs ask to the person who looks on."""

import asyncio
from collections.abc import Callable, Mapping

from temporalio.client import Client

from orga.client.cli.login_name import login_name
from orga.client.cli.screen import Screen
from orga.client.cli.terminal_text import on_one_line
from orga.client.errors import OrgaError
from orga.client.runs.agents import AgentHandle
from orga.workflows.types.questions import ShownQuestion

LOOK_S = 0.2

AskedKey = tuple[str, str]
"""The run that asks, and the question's id."""
Asked = Callable[[], Mapping[AskedKey, ShownQuestion]]
"""What is asked now."""


class Answering:
    """Offers each question once; what is not answered here can be answered from anywhere."""

    def __init__(self, client: Client, screen: Screen) -> None:
        self._client = client
        self._screen = screen
        self._offered = set[AskedKey]()

    async def offer(self, asked: Asked) -> None:
        """Let the person answer what is asked and was not offered yet; an answer that is refused may be mended."""
        for key, wait in asked().items():
            if key not in self._offered:
                self._offered.add(key)
                if text := (await self._ask_typed(key, wait, asked)).strip():
                    await self._answer(key, text)

    async def _ask_typed(self, key: AskedKey, wait: ShownQuestion, asked: Asked) -> str:
        """Return what is typed; "" once somebody else has answered."""
        typing = asyncio.create_task(self._screen.typed(wait))
        try:
            while not typing.done():
                await asyncio.wait({typing}, timeout=LOOK_S)
                if not typing.done() and key not in asked():
                    return ""
            return typing.result()
        finally:
            typing.cancel()
            await asyncio.gather(typing, return_exceptions=True)  # it gives the terminal back

    async def _answer(self, key: AskedKey, text: str) -> None:
        run_id, question_id = key
        try:
            await AgentHandle(self._client, run_id).answer(text, question_id, login_name())
        except OrgaError as error:
            self._screen.note(f"not answered: {on_one_line(str(error), 300)}")
            self._offered.discard(key)
