"""The OPA engine in this process: a policy compiled to WebAssembly by `opa build -t wasm`."""

import io
import tarfile
import zlib
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

from orga.activities.adapters.policy.opa_answer import judgement, undefined
from orga.activities.adapters.policy.opa_input import opa_input
from orga.activities.ports import Judgement, Proposal
from orga.activities.threads import Threads

if TYPE_CHECKING:
    from opapywasm import OpaWasmPolicy

EVALUATION_S = 2.0
MAX_INPUT_BYTES = 8_000_000
MAX_FILE_BYTES = 50_000_000
"""Of the file, and of what it unpacks to: `data.json` is copied into each instance."""
VERSION_CHARS = 12


class OpaWasm:
    """Evaluates one rule of a compiled policy. It is read once: a new one needs a new worker."""

    is_embedded = True

    def __init__(self, file: Path, path: str) -> None:
        """Read the bundle (`.tar.gz`) or the bare module (`.wasm`).

        Args:
            file: What `opa build -t wasm -e <path>` wrote.
            path: Of the rule, an entrypoint: `orga/decision`.

        Raises:
            ValueError: The file or the entrypoint cannot be used, or the extra `opa-wasm` is not installed.
        """
        content = _content(file)
        self._threads = Threads("opa-wasm", 4)
        self.version = sha256(content).hexdigest()[:VERSION_CHARS]
        self._path = path.strip("/")
        self._policy = _policy(file, content)
        if self._path not in self._policy.entrypoints:
            known = ", ".join(self._policy.entrypoints)
            raise ValueError(f"{file} has no entrypoint {self._path!r}; it has {known}: opa build -e {self._path}")

    async def judge(self, proposal: Proposal) -> Judgement:
        """Return the decision."""
        from opapywasm import UNDEFINED

        found = await self._threads.run(self._policy.evaluate, opa_input(proposal), entrypoint=self._path)
        return undefined(self._path, self.version) if found is UNDEFINED else judgement(found, self.version)


def _content(file: Path) -> bytes:
    try:
        with file.open("rb") as opened:
            content = opened.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise ValueError(f"{file} cannot be read ({error.strerror}); correct policy.opa.wasm") from error
    if len(content) > MAX_FILE_BYTES:
        raise _too_large(file)
    return content


def _policy(file: Path, content: bytes) -> "OpaWasmPolicy":
    try:
        from opapywasm import OpaWasmPolicy, PolicyConfig
        from opapywasm.errors import OpaWasmError
    except ImportError as error:
        raise ValueError("compiled OPA policies need the extra: pip install 'orga[opa-wasm]'") from error
    module, data = (content, None) if content.startswith(b"\0asm") else _unpacked(file, content)
    limits = PolicyConfig(eval_timeout_seconds=EVALUATION_S, max_input_bytes=MAX_INPUT_BYTES)
    try:
        policy = OpaWasmPolicy.from_wasm_bytes(module, limits)
        policy.set_data(data)
    except OpaWasmError as error:
        raise ValueError(f"{file} is no compiled OPA policy: {error}") from error
    except RecursionError as error:
        raise ValueError(f"{file}: its data.json is nested too deeply. Flatten it") from error
    return policy


def _unpacked(file: Path, content: bytes) -> tuple[bytes, bytes | None]:
    parts: dict[str, bytes] = {}
    left = MAX_FILE_BYTES
    try:
        with tarfile.open(fileobj=io.BytesIO(content)) as bundle:
            for member in bundle:
                left -= member.size
                if left < 0:
                    raise _too_large(file)
                if member.isfile() and (part := bundle.extractfile(member)):
                    parts[member.name.lstrip("/")] = part.read()
    except (tarfile.TarError, zlib.error, OSError, EOFError) as error:
        raise ValueError(f"{file} is neither a .wasm module nor a bundle: {error}") from error
    if "policy.wasm" not in parts:
        raise ValueError(f"{file} holds no policy.wasm; build it with opa build -t wasm -e RULE")
    return parts["policy.wasm"], parts.get("data.json")


def _too_large(file: Path) -> ValueError:
    return ValueError(f"{file}: it holds more than {MAX_FILE_BYTES:,} bytes. Serve the data with an OPA server instead")
