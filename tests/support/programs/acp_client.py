"""An editor: a client of the Agent Client Protocol that a test drives, by the protocol's own SDK."""

import json
import os
import signal
import subprocess
import threading
from collections.abc import Callable, Generator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.support.parts.front_ends import front_end_path, front_ends
from tests.support.programs.orga_command import COMMAND, Orga

BRIDGE = Path(__file__).with_name("acp_bridge.mjs")
PATIENCE_S = 60.0


class AcpError(Exception):
    """The agent's answer is an error."""


@dataclass
class Ask:
    """A question of the agent to the person."""

    number: int
    method: str
    params: dict[str, Any]

    @property
    def options(self) -> list[str]:
        return [option["kind"] for option in self.params["options"]]


@dataclass
class AcpClient:
    """One connection."""

    process: subprocess.Popen[bytes]
    updates: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    asked: list[Ask] = field(default_factory=list[Ask])
    pid: int = 0
    _waiting: dict[int, Future[Any]] = field(default_factory=dict[int, "Future[Any]"])

    def __post_init__(self) -> None:
        self._news = threading.Condition()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def begin(self, method: str, **params: Any) -> "Future[Any]":
        """Send a request, and return where its answer will be."""
        number = len(self._waiting) + 1
        answer = self._waiting[number] = Future[Any]()
        self._write({"id": number, "method": method, "params": params})
        return answer

    def call(self, method: str, **params: Any) -> Any:
        """Send a request, and return its answer."""
        return self.begin(method, **params).result(PATIENCE_S)

    def prompts(self, session: str, text: str, **more: Any) -> "Future[Any]":
        return self.begin("prompt", sessionId=session, prompt=[{"type": "text", "text": text}], **more)

    def ask(self, number: int) -> Ask:
        """Wait until the agent has asked so often, and return that question. It may be asked while others are."""
        self.wait(lambda: len(self.asked) >= number)
        return self.asked[number - 1]

    def answer(self, ask: Ask, result: dict[str, Any]) -> None:
        self._write({"ask": ask.number, "result": result})

    def selects(self, ask: Ask, option: str) -> None:
        self.answer(ask, {"outcome": {"outcome": "selected", "optionId": option}})

    def wait(self, is_so: Callable[[], bool]) -> None:
        with self._news:
            assert self._news.wait_for(is_so, PATIENCE_S), (self.updates, self.asked)

    def text(self, kind: str = "agent_message_chunk") -> str:
        """Return the text of all chunks of a kind."""
        return "".join(each["content"]["text"] for each in self.updates if each["sessionUpdate"] == kind)

    def calls(self) -> dict[str, list[str]]:
        """Return the states of each call, by its title."""
        titles = {each["toolCallId"]: each["title"] for each in self.updates if each["sessionUpdate"] == "tool_call"}
        found: dict[str, list[str]] = {}
        for each in self.updates:
            if "toolCallId" in each:
                found.setdefault(titles[each["toolCallId"]], []).append(each["status"])
        return found

    def kill(self) -> None:
        """Kill the agent at once."""
        os.kill(self.pid, signal.SIGKILL)

    def close(self) -> None:
        """Close the agent's input, and wait until it has ended."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(timeout=30)
        self._reader.join()

    def _write(self, line: dict[str, Any]) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(line).encode() + b"\n")
        self.process.stdin.flush()

    def _read(self) -> None:
        for line in self.process.stdout or ():
            message = json.loads(line)
            with self._news:
                self.pid = message.get("pid", self.pid)
                if "update" in message:
                    self.updates.append(message["update"]["update"])
                elif "ask" in message:
                    self.asked.append(Ask(message["ask"], message["method"], message["params"]))
                elif "result" in message:
                    self._waiting[message["id"]].set_result(message["result"])
                elif "error" in message:
                    self._waiting[message["id"]].set_exception(AcpError(message["error"]["message"]))
                self._news.notify_all()


@contextmanager
def an_editor(orga: Orga, *arguments: str, **capabilities: Any) -> Generator[AcpClient]:
    """Connect an editor with these capabilities to `orga acp`."""
    sdk = front_ends() / "@agentclientprotocol" / "sdk" / "dist" / "acp.js"
    command = ["node", str(BRIDGE), str(sdk), *COMMAND, "acp", "--no-worker", *arguments]
    env = orga.env | {"PATH": front_end_path()}
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=orga.folder, env=env) as process:
        client = AcpClient(process)
        try:
            client.call("initialize", protocolVersion=1, clientCapabilities=capabilities)
            yield client
        finally:
            client.close()
