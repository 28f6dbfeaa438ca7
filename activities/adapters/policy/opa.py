"""The OPA engine: a server, or a policy compiled to WebAssembly. Without an answer, it denies everything."""

import asyncio
import io
import json
import tarfile
import zlib
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

from pydantic import Field, ValidationError
from pydantic_core import PydanticSerializationError, to_json

from orga.activities.adapters import http
from orga.activities.adapters.http import ACCEPTED_ENCODINGS
from orga.activities.adapters.problem import extra_remedy
from orga.activities.adapters.threads import Threads
from orga.activities.adapters.tools.guarded_http import bounded_body
from orga.activities.calls.activity import error_text
from orga.activities.ports import ToolError
from orga.activities.text.secrets import KnownSecrets
from orga.workflows.types.json_text import as_object, as_text, unique_keys_object
from orga.workflows.types.record import CheckedInput, validation_problems
from orga.workflows.types.tool_calls.delegation import delegate_arguments
from orga.workflows.types.tool_calls.gate import ApprovalTerms, Decision, GateRequest, Verdict

if TYPE_CHECKING:
    from opapywasm import OpaWasmPolicy


def opa_input(proposal: GateRequest) -> dict[str, Any]:
    """Return OPA's input document for a proposal. Fields that do not apply are null or empty.

    Only `approved_by` and `approved_version` are absent without an approval, so that `not input.approved_by` is true.
    """
    call = proposal.call
    spec = proposal.spec(call.name) if call else None
    approval = {"approved_by": proposal.approved_by, "approved_version": proposal.approved_version}
    return {
        "action": proposal.action,
        "agent": proposal.agent,
        "tool": proposal.tool_facts(call.name) if call else None,
        "target": delegate_arguments(call.arguments)[0] if call and proposal.action == "delegate" else None,
        "arguments": call.arguments if call else {},
        "parameters": spec.parameters if spec else {},
        "answer": proposal.answer,
        "plan": [step.model_dump() | {"tool": proposal.tool_facts(step.skill)} for step in proposal.plan] or None,
        "trusted": proposal.trusted_context,
        "values": proposal.values,
        "tenant": proposal.tenant,
        "iteration": proposal.iteration,
        "depth": proposal.depth,
        "left": dict(proposal.left),
        "taint": list(proposal.taint),
        "tainted": bool(proposal.taint),
        "purpose": proposal.purpose,
        **{name: value for name, value in approval.items() if value},
    }


class OpaAnswer(CheckedInput):
    """The answer of a rule that returns an object instead of true or false. An unknown key denies: it may be a typo."""

    decision: Literal["allow", "deny", "modify", "require_approval"]
    reason: str = ""
    arguments: dict[str, Any] | None = None
    """Only for `modify`: all arguments that replace those of the call."""
    approvers: tuple[str, ...] = ()
    """Only for `require_approval`: the people who may approve. Empty: anyone who may send updates to the run."""
    expires_s: float = Field(default=ApprovalTerms().expires_s, gt=0)
    tools: tuple[str, ...] | None = None
    """Only for an allowed delegation: the other agent may use no tools but these. None: no limit."""
    policies: tuple[str, ...] = ()
    version: str = ""


_DECISIONS: dict[str, Decision] = {"allow": "allow", "modify": "allow", "require_approval": "approval", "deny": "deny"}


def parse_opa_result(result: Any, version: str) -> Verdict:
    """Return the verdict for OPA's result. If the result names a version, it replaces `version`."""
    if isinstance(result, bool):
        return Verdict(decision="allow", version=version) if result else _denial("denied by OPA", version)
    try:
        answer = OpaAnswer.model_validate(result, extra="forbid")
    except ValidationError as error:
        return _denial(f"OPA gave an invalid answer: {'; '.join(validation_problems(error))}", version)
    if stray := _stray_field(answer):
        return _denial(f"OPA gives {stray}, which does not belong to the decision {answer.decision!r}", version)
    if answer.decision == "modify" and answer.arguments is None:
        return _denial("OPA wants to modify the call and gave no arguments", version)
    terms = ApprovalTerms(approvers=answer.approvers, expires_s=answer.expires_s)
    return Verdict(
        decision=_DECISIONS[answer.decision],
        reason=answer.reason or ("denied by OPA" if answer.decision == "deny" else ""),
        tools=answer.tools,
        arguments=answer.arguments if answer.decision == "modify" else None,
        approval=terms if answer.decision == "require_approval" else None,
        policies=answer.policies,
        version=answer.version or version,
    )


def _undefined_denial(path: str, version: str) -> Verdict:
    return _denial(f"OPA has no decision at {path} for this", version)


def _stray_field(answer: OpaAnswer) -> str:
    """Return a field that belongs to another decision, or "". Its rule may not mean to allow the call."""
    if answer.decision == "deny":
        return ""
    if answer.decision != "modify" and answer.arguments is not None:
        return "arguments"
    if answer.decision == "require_approval":
        return ""
    if answer.approvers:
        return "approvers"
    return "expires_s" if "expires_s" in answer.model_fields_set else ""


ATTEMPTS = 3
MAX_ANSWER_BYTES = 1_000_000
RETRY_PAUSE_S = 0.1
"""Seconds before the second attempt. Before the third one they are doubled."""


class OpaUnreachable(Exception):
    """Raised if there was no readable answer, but another attempt may get one."""


class _OpaRefusal(Exception):
    """Raised with the reason of the denial if there is no decision, and another attempt would not help."""


class OpaServer:
    """Judges by a rule of an OPA server, with `POST /v1/data/<path>`."""

    is_embedded = False

    def __init__(
        self,
        url: str,
        path: str,
        *,
        token: str | None = None,
        timeout_s: float = 3.0,
        transport: http.AsyncBaseTransport | None = None,
    ) -> None:
        """Prepare the client. This sends no request.

        Args:
            url: The server's address, without `/v1`.
            path: The path of the rule. `orga/decision` is the rule `decision` of the package `orga`.
            timeout_s: Seconds for all attempts of one decision together.
        """
        self._url = f"{url.rstrip('/')}/v1/data/{path.strip('/')}"
        self._path = path
        self._timeout_s = timeout_s
        self._secrets = KnownSecrets.from_values([token or ""], least=1)
        headers = {"content-type": "application/json", "accept-encoding": ACCEPTED_ENCODINGS}
        headers |= {"authorization": f"Bearer {token}"} if token else {}
        self._client = http.http_client(url, headers=headers, transport=transport, silence_s=timeout_s)

    async def judge(self, proposal: GateRequest) -> Verdict:
        try:
            body = to_json({"input": opa_input(proposal)}, inf_nan_mode="strings")
            async with asyncio.timeout(self._timeout_s):
                answer = await self._answer(body)
        except TimeoutError:
            return _denial(f"OPA was too slow: it gave no answer within {self._timeout_s:g} s")
        except PydanticSerializationError as error:
            return _denial(f"OPA cannot be asked about this: {error}")
        except OpaUnreachable as error:
            return _denial(f"OPA gave no answer in {ATTEMPTS} attempts: {error}")
        except _OpaRefusal as error:
            return _denial(str(error))
        version = _bundle_revisions(answer)
        if "result" not in answer:
            return _undefined_denial(self._path, version)
        return parse_opa_result(answer["result"], version)

    async def close(self) -> None:
        await self._client.aclose()

    async def _answer(self, body: bytes) -> dict[str, Any]:
        for attempt in range(ATTEMPTS - 1):
            try:
                return await self._ask(body)
            except OpaUnreachable:
                await asyncio.sleep(RETRY_PAUSE_S * 2**attempt)
        return await self._ask(body)

    async def _ask(self, body: bytes) -> dict[str, Any]:
        """Return OPA's answer to one request. Raise OpaUnreachable or _OpaRefusal."""
        try:
            async with self._client.stream("POST", self._url, params={"provenance": "true"}, content=body) as response:
                if response.status_code in http.TRANSIENT_STATUSES:
                    raise OpaUnreachable(f"status {response.status_code}")
                if response.status_code != 200:
                    raise _OpaRefusal(f"OPA refused the question: status {response.status_code}")
                content, is_cut = await bounded_body(response, MAX_ANSWER_BYTES)
        except ToolError as error:  # the body's encoding is unknown, or its content is damaged
            raise OpaUnreachable(error_text(error)) from error
        except (http.TransportError, http.DecodingError) as error:
            raise OpaUnreachable(f"{type(error).__name__} {error_text(error)}".strip()) from error
        if is_cut:
            raise _OpaRefusal(f"OPA gave an answer of more than {MAX_ANSWER_BYTES} bytes")
        try:
            text = self._secrets.redact(content.decode())  # a policy can see the request's headers
            answer = json.loads(text, object_pairs_hook=unique_keys_object)
        except (ValueError, RecursionError):
            answer = None
        if not isinstance(answer, dict):
            raise _OpaRefusal("OPA gave an answer that is no JSON object")
        return cast("dict[str, Any]", answer)


def _denial(reason: str, version: str = "") -> Verdict:
    return Verdict(decision="deny", reason=reason, version=version)


def _bundle_revisions(answer: dict[str, Any]) -> str:
    """Return the revisions of the server's bundles, separated by commas. A bundle without a revision is left out."""
    bundles = as_object(as_object(answer.get("provenance")).get("bundles"))
    return ",".join(filter(None, (as_text(as_object(bundle).get("revision")) for bundle in bundles.values())))


EVALUATION_S = 2.0
MAX_INPUT_BYTES = 8_000_000
MAX_FILE_BYTES = 50_000_000
"""Bytes of the file, and also of its unpacked content. Each WebAssembly instance has a copy of `data.json`."""
VERSION_CHARS = 12


class OpaWasm:
    """Judges by a rule of a compiled policy. The file is read once, so a changed file needs a restart of the worker."""

    is_embedded = True

    def __init__(self, file: Path, path: str) -> None:
        """Read a bundle (`.tar.gz`) or a bare module (`.wasm`), as `opa build -t wasm -e <path>` writes it.

        Raise ValueError if the file cannot be used, has no entrypoint `path`, or the extra `opa-wasm` is not installed.
        """
        content = _read_content(file)
        self._threads = Threads("opa-wasm", 4)
        self.version = sha256(content).hexdigest()[:VERSION_CHARS]
        self._path = path.strip("/")
        self._policy = _load_policy(file, content)
        if self._path not in self._policy.entrypoints:
            known = ", ".join(self._policy.entrypoints)
            raise ValueError(f"{file} has no entrypoint {self._path!r}; it has {known}: opa build -e {self._path}")

    async def judge(self, proposal: GateRequest) -> Verdict:
        from opapywasm import UNDEFINED

        found = await self._threads.run(self._policy.evaluate, opa_input(proposal), entrypoint=self._path)
        is_missing = found is UNDEFINED
        return _undefined_denial(self._path, self.version) if is_missing else parse_opa_result(found, self.version)


def _read_content(file: Path) -> bytes:
    try:
        with file.open("rb") as opened:
            content = opened.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise ValueError(f"{file} cannot be read ({error.strerror}); correct policy.opa.wasm") from error
    if len(content) > MAX_FILE_BYTES:
        raise _too_large(file)
    return content


def _load_policy(file: Path, content: bytes) -> "OpaWasmPolicy":
    try:
        from opapywasm import OpaWasmPolicy, PolicyConfig
        from opapywasm.errors import OpaWasmError
    except ImportError as error:
        raise ValueError(f"compiled OPA policies need the extra: {extra_remedy('opa-wasm')}") from error
    module, data = (content, None) if content.startswith(b"\0asm") else _unpack_bundle(file, content)
    limits = PolicyConfig(eval_timeout_seconds=EVALUATION_S, max_input_bytes=MAX_INPUT_BYTES)
    try:
        policy = OpaWasmPolicy.from_wasm_bytes(module, limits)
        policy.set_data(data)
    except OpaWasmError as error:
        raise ValueError(f"{file} is no compiled OPA policy: {error}") from error
    except RecursionError as error:
        raise ValueError(f"{file}: its data.json is nested too deeply. Flatten it") from error
    return policy


def _unpack_bundle(file: Path, content: bytes) -> tuple[bytes, bytes | None]:
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
