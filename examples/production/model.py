"""The worst model there is, as a server of chat completions: it does whatever the last text that it read says.

python model.py [PORT]
"""

import json
import re
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


def reply(messages: list[dict[str, Any]]) -> dict[str, Any]:
    """Return what comes next: the letter is read, what stands in it is done, what came of that is told."""
    last = str(messages[-1].get("content"))
    if messages[-1]["role"] != "tool":
        found = re.search(r"letters/\S+", last)
        return call("read_file", path=found[0] if found else ".")
    if demand := re.search(r"refund (\d+) cents", last):
        return call("refund", order="A-7", cents=int(demand[1]))
    return {"content": f"This came of your letter: {last}"}


def call(name: str, **arguments: Any) -> dict[str, Any]:
    """Return a reply that calls one tool."""
    function = {"name": name, "arguments": json.dumps(arguments)}
    return {"tool_calls": [{"index": 0, "id": f"call_{name}", "type": "function", "function": function}]}


class Handler(BaseHTTPRequestHandler):
    """Streams one reply."""

    def do_GET(self) -> None:
        """Say which models there are: `orga doctor` asks."""
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.end_headers()
        self.wfile.write(json.dumps({"object": "list", "data": [{"id": "obedient", "object": "model"}]}).encode())

    def do_POST(self) -> None:
        """Answer with two events: the reply, and that it has ended."""
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        message = reply(asked["messages"])
        finish = "tool_calls" if "tool_calls" in message else "stop"
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.end_headers()
        for delta, reason in ((message, None), ({}, finish)):
            choice = {"index": 0, "delta": delta, "finish_reason": reason}
            chunk = {"object": "chat.completion.chunk", "choices": [choice]}
            self.wfile.write(f"data: {json.dumps(chunk)}\n\n".encode())
        self.wfile.write(b"data: [DONE]\n\n")

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""


if __name__ == "__main__":
    port = int(sys.argv[1]) if sys.argv[1:] else 8378
    ThreadingHTTPServer(("127.0.0.1", port), Handler).serve_forever()
