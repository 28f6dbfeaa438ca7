"""An MCP server (2025-11-25, stdio) that does what no server should; a program that imports nothing of ours.

    python mcp_hostile.py FOLDER [banner] [silent] [stubborn] [child]

`FOLDER/tools.json` is its list of tools, read anew for each request; `FOLDER/log` is what it received; a tool does what
its name says.
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


def called(ident: Any, params: dict[str, Any]) -> dict[str, Any] | None:
    """Return the result of a call; None answers nothing."""
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
            return {"content": "no list"}
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
            return text("ok")
    return None


def handled(message: dict[str, Any]) -> None:
    ident, params = message.get("id"), message.get("params", {})
    match message["method"]:
        case "initialize":
            server = {"name": "hostile", "version": "1"}
            send(
                id=ident,
                result={"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": server},
            )
        case "tools/list":
            send(id=ident, result={"tools": json.loads((FOLDER / "tools.json").read_text())})
        case "tools/call":
            result = called(ident, params)
            if result is not None:
                send(id=ident, result=result)
        case _ if ident is not None:
            send(id=ident, error={"code": -32601, "message": "no such method"})
        case _:
            pass


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
            handled(json.loads(line))
    while "stubborn" in MODES:
        time.sleep(1)


if __name__ == "__main__":
    main()
