"""The project of the approvals guide, with a model that a test scripts."""

import json
import re
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.model.chat_server import Calls, CallsAtOnce, ChatServer, Says, chat_server
from tests.support.programs.inline_command import InlineOrga
from tests.support.programs.orga_command import ROOT, Orga, an_orga

REFUNDS = CallsAtOnce([Calls("refund", {"order": "A", "cents": 1}), Calls("refund", {"order": "B", "cents": 2})])


@dataclass(frozen=True)
class Till:
    orga: Orga
    model: ChatServer

    @property
    def paid(self) -> Path:
        """The file of the paid refunds."""
        return self.orga.folder / "refunds"


@contextmanager
def a_till(folders: pytest.TempPathFactory) -> Generator[Till]:
    """Make the project, and run a worker for it. Ada, who may decide refunds, is logged in."""
    guide = (ROOT / "docs" / "approvals.md").read_text()
    block = dict(re.findall(r"^```(\w+)\n(.*?)^```", guide, re.DOTALL | re.MULTILINE)[::-1])  # the first one counts
    folder, home = folders.mktemp("project"), folders.mktemp("home")
    tools = '\n[agents.default]\ntools = ["ask_user", "read_file", "refund"]\n'
    (folder / "orga.toml").write_text(block["toml"] + tools)
    (folder / "till.py").write_text(block["python"])
    (folder / "policies").mkdir()
    asks = 'permit (principal, action == Action::"tool_call", resource == Tool::"ask_user");\n'
    (folder / "policies" / "refunds.cedar").write_text(block["cedar"] + asks)
    (folder / "notes.md").write_text("It begins on 4 May.\n")
    with chat_server(Says(["nothing"])) as model:
        settings = {"ORGA_MODELS__BASE_URLS": json.dumps({"openai-compatible": model.url}), "LOGNAME": "ada"}
        orga = InlineOrga(folder, an_orga(folder, home, ORGA_MODELS__DEFAULT="openai-compatible:m", **settings).env)
        try:
            with orga.started("worker") as running:
                running.line("polls task queue")
                yield Till(orga, model)
        finally:
            orga("server", "--stop")
