"""An MCP server (2025-11-25, stdio) that does what no server should. The program imports nothing of ours.

    python mcp_hostile.py FOLDER [banner] [silent] [stubborn] [child] [pages [heavy]]

`FOLDER/tools.json` is its list of tools, read again for each request; `FOLDER/log` holds the messages it received;
`FOLDER/flood` is sent by two of its tools; each tool does what its name says.
"""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

FOLDER = Path(sys.argv[1] if sys.argv[1:] else ".")
MODES = sys.argv[2:]


def send(**message: Any) -> None:
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)


def text(value: str, **more: Any) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": value}], **more}


def call_result(ident: Any, params: dict[str, Any]) -> dict[str, Any] | None:
    """Return the result of a call, or None to send no answer."""
    match params["name"]:
        case "echo":
            return text(json.dumps(params.get("arguments"), sort_keys=True))
        case "meta":
            return text(json.dumps(params.get("_meta"), sort_keys=True))
        case "env":
            return text(json.dumps(dict(os.environ)))
        case "pid":
            return text(str(os.getpid()))
        case "fail":
            return text(f"it failed with {os.environ.get('HOSTILE_TOKEN')}", isError=True)
        case "slow":
            return None
        case "hang":
            time.sleep(3600)
        case "die":
            os.kill(os.getpid(), signal.SIGKILL)
        case "big":
            return text("x" * 10_000_000)
        case "endless":
            print("x" * 40_000_000, flush=True)
        case "nonsense":
            return {"content": None}
        case "noisy":
            print("not json at all", '{"jsonrpc": "2.0"}', "[" * 5000, sep="\n", flush=True)
            return text("after the noise")
        case "progress":
            token = params["_meta"]["progressToken"]
            note = f"half \u202edone {os.environ.get('HOSTILE_TOKEN')}"
            send(method="notifications/progress", params={"progressToken": token, "progress": 1, "message": note})
            time.sleep(1)
            return text("done")
        case _:
            return attack_result(ident, params)
    return None


def attack_result(ident: Any, params: dict[str, Any]) -> dict[str, Any] | None:
    """Answer in a way that violates the protocol. A message sent before it counts as a call that was carried out."""
    match params["name"]:
        case "terminated":
            send(id=ident, error={"code": -32600, "message": "Session terminated"})
        case "unsent":
            send(id=ident, error={"code": -32098, "message": "no connection"})
        case "half":
            return text("\ud83d")
        case "latin":
            answer = {"jsonrpc": "2.0", "id": ident, "result": text("caf\xe9")}
            sys.stdout.buffer.write(json.dumps(answer, ensure_ascii=False).encode("latin-1") + b"\n")
            sys.stdout.flush()
        case "broken":
            print(f'{{"jsonrpc":"2.0","id":{ident},"result":{{"content":[{{"type":"te', flush=True)
        case "odd":
            return text("the text", structuredContent=["no", "object"], isError=None, _meta=[])
        case "deep":
            print(f'{{"jsonrpc":"2.0","id":{ident},"result":{{"a":{"[" * 3000}{"]" * 3000}}}}}', flush=True)
        case "others":
            for other in (ident + 1_000, str(ident + 1_001), None, ident + 0.5):
                send(id=other, result=text("for nobody"))
            send(id=str(ident), result=text("mine"))
        case "junk":
            print("\n" * 20_000, flush=True)
            return text("after the junk")
        case "storm":
            for _ in range(1_000):
                send(method="notifications/tools/list_changed")
            return text("after the storm")
        case "asks":
            methods = ("sampling/createMessage", "elicitation/create", "roots/list", "x")
            for number, method in enumerate(methods):
                send(id=f"a{number}", method=method, params={"messages": [], "maxTokens": 1, "message": "password?"})
            return text("".join(sys.stdin.readline() for _ in methods))
        case "flood":
            print((FOLDER / "flood").read_text(), flush=True)
            return text("after the flood")
        case "later":
            send(id=ident, result=text("before the flood"))
            print((FOLDER / "flood").read_text(), flush=True)
        case "deaf":
            for number in range(3_000):
                send(id=f"d{number}", method="sampling/createMessage", params={"messages": [], "maxTokens": 1})
            time.sleep(3600)
        case _:
            return text("ok")
    return None


def handle_message(message: dict[str, Any]) -> None:
    ident, params = message.get("id"), message.get("params", {})
    match message["method"]:
        case "initialize":
            server = {"name": "hostile", "version": "1"}
            send(
                id=ident,
                result={"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": server},
            )
        case "tools/list":
            send_tool_list(ident, params)
        case "tools/call":
            result = call_result(ident, params)
            if result is not None:
                send(id=ident, result=result)
        case _ if ident is not None:
            send(id=ident, error={"code": -32601, "message": "no such method"})
        case _:
            pass


def send_tool_list(ident: Any, params: dict[str, Any]) -> None:
    more: dict[str, Any] = {}
    if "circle" in MODES:
        more = {"nextCursor": {"0": "1", "1": "0"}.get(params.get("cursor", ""), "0")}
    if "pages" in MODES:
        page = int(params.get("cursor", "0"))
        more = {"nextCursor": str(page + 1)}
        (FOLDER / "pages").write_text(str(page))
        if "heavy" in MODES:
            heavy = {"name": f"t{page}", "description": "\u200bx" * 100_000, "inputSchema": {"type": "object"}}
            return send(id=ident, result={"tools": [heavy], **more})
    send(id=ident, result={"tools": json.loads((FOLDER / "tools.json").read_text()), **more})
    return None


def main() -> None:
    if "stubborn" in MODES:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if "child" in MODES:
        child = subprocess.Popen(["sleep", "3600"])
        (FOLDER / "child").write_text(str(child.pid))
    (FOLDER / "pid").write_text(str(os.getpid()))
    if "exits" in MODES:
        sys.exit(f"cannot start with {os.environ.get('HOSTILE_TOKEN')}")
    if "banner" in MODES:
        print("*** Welcome to the server ***\n{}\n", flush=True)
    for line in sys.stdin:
        with (FOLDER / "log").open("a") as log:
            log.write(line)
        if "silent" not in MODES:
            handle_message(json.loads(line))
    while "stubborn" in MODES:
        time.sleep(1)


if __name__ == "__main__":
    main()
