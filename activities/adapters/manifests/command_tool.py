"""Makes a manifest's command a tool. Each element of the template becomes one element of the argument vector."""

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from orga.activities.adapters.manifests.argument_types import (
    PathContext,
    Values,
    checked_values,
    invalid_argument_error,
    is_like_flag,
    value_text,
    value_texts,
)
from orga.activities.adapters.manifests.manifest import (
    Argument,
    ArgvPart,
    CommandSection,
    Manifest,
    error_tail,
    parsed_output,
)
from orga.activities.adapters.manifests.template import (
    ManifestSecrets,
    TemplatePlaceholder,
    fill_template,
    only_placeholder,
    parse_template,
    template_placeholders,
)
from orga.activities.adapters.sandbox.bubblewrap import check_isolation
from orga.activities.adapters.sandbox.limited_command import (
    MAX_ARGV_BYTES,
    CommandResult,
    exceeds_argv_limit,
    run_sandboxed,
)
from orga.activities.adapters.tools.root import FileRoot
from orga.activities.ports import ToolContext, ToolError
from orga.workflows.types.tool_calls.tools import TIME_LIMIT, ToolOutput, ToolSpec


def build_argv(command: CommandSection, declared: Mapping[str, Argument], values: Values) -> list[str]:
    """Return the program and its arguments. Raise ToolError (InvalidArguments) for a possible flag, or if too long."""
    _refuse_flags(command, declared, values)
    argv = [element for part in command.argv if _is_included(part, values) for element in _part_elements(part, values)]
    if exceeds_argv_limit(argv):
        raise invalid_argument_error(f"more than {MAX_ARGV_BYTES:,} bytes together; shorten them")
    return argv


def _is_included(part: ArgvPart, values: Values) -> bool:
    value = values.get(part.when)
    return not part.when or not (value is None or value is False or value == ())


def _part_elements(part: ArgvPart, values: Values) -> list[str]:
    found: list[str] = []
    for template in map(parse_template, part.argv):
        only = only_placeholder(template)
        found += (
            value_texts(values.get(only.name))
            if only
            else [fill_template(template, lambda slot: _single_text(values, slot))]
        )
    return found


def _single_text(values: Values, slot: TemplatePlaceholder) -> str:
    """Return the only text of a value. A manifest that could have several here is refused when it is read."""
    (text,) = value_texts(values[slot.name])
    return text


def _refuse_flags(command: CommandSection, declared: Mapping[str, Argument], values: Values) -> None:
    used = {
        slot.name
        for part in command.argv
        for template in part.argv
        for slot in template_placeholders(parse_template(template))
    }
    for name in sorted(used & values.keys()):
        items = declared[name].items
        may_have_dash = declared[name].allow_dash or (items is not None and items.allow_dash)
        if not may_have_dash and any(is_like_flag(text) for text in value_texts(values[name])):
            raise invalid_argument_error(
                f"{name}: begins with a dash, so the program could take it for a flag; write it without"
            )


class CommandTool:
    def __init__(self, manifest: Manifest, spec: ToolSpec, root: FileRoot, secrets: ManifestSecrets) -> None:
        """Prepare its calls. Raise ValueError if a folder is outside the root, or isolation is not possible here."""
        assert manifest.command is not None
        check_isolation(manifest.command.sandbox.isolation)
        self._manifest = manifest
        self._command = manifest.command
        self.spec = spec
        try:
            self._ground = PathContext(root, root.locate(self._command.cwd))
        except ToolError as error:
            raise ValueError(f"command.cwd: {error}") from error
        self._secrets = secrets

    async def call(self, arguments: dict[str, Any], context: ToolContext) -> ToolOutput:
        """Return the program's parsed output.

        Raises:
            ToolError: Kind InvalidArguments, PathRefused, CommandFailed, TimeLimit, BadOutput or OutputMismatch.
        """
        values = await asyncio.to_thread(checked_values, arguments, self._manifest.arguments, self._ground)
        argv = build_argv(self._command, self._manifest.arguments, values)
        context.heartbeat(f"running {argv[0]}")
        try:
            finished = await self._run(argv, values, context)
            output = await asyncio.to_thread(self._output_or_failure, argv[0], finished)
            return ToolOutput(content=self._secrets.known_secrets.redact(output))
        except ToolError as error:
            raise self._secrets.known_secrets.redact_error(error) from None

    async def _run(self, argv: list[str], values: Values, context: ToolContext) -> CommandResult:
        stdin = fill_template(parse_template(self._command.stdin), lambda slot: value_text(values[slot.name]))
        key = {"ORGA_IDEMPOTENCY_KEY": context.idempotency_key}
        if context.is_deferred:
            key["ORGA_RUN"] = context.workflow_id
        sandbox = self._command.sandbox
        return await run_sandboxed(
            argv,
            cwd=self._folder(),
            env=key | self._command.env | dict(self._secrets.values),
            timeout_s=self._manifest.timeout_s,
            limits=sandbox.limits,
            isolation=sandbox.isolation,
            network=sandbox.network,
            stdin=stdin.encode(),
            max_output_bytes=self._command.max_output_bytes,
            rules=self._ground.root.rules,
        )

    def _folder(self) -> Path:
        """Return the folder. Its path is checked again, because a link may have replaced it."""
        place = self._ground.root.locate(str(self._ground.cwd))
        folder = self._ground.root.path / place
        if not folder.is_dir():
            raise ToolError(f"the folder of this tool, {place}, is not there; tell the operator", kind="NotFound")
        return folder

    def _output_or_failure(self, program: str, finished: CommandResult) -> str:
        """Return the output, or raise the program's failure."""
        stdout = self._decoded_output(finished.stdout, is_cut=finished.truncated)
        stderr = self._decoded_output(finished.stderr, is_cut=finished.truncated)
        if finished.exit_code != 0 or finished.timed_out or finished.limit:
            raise self._failure(program, finished, stderr.strip() or stdout)
        output = self._manifest.output
        if finished.truncated and output.parser != "text":
            why = "the output is longer than max_output_bytes, so it cannot be parsed"
            raise ToolError(why, kind="BadOutput", acted="yes")
        cut = f"\n[cut after {self._command.max_output_bytes:,} bytes]" if finished.truncated else ""
        return f"{finished.warning}{parsed_output(stdout, output)}{cut}"

    def _decoded_output(self, output: bytes, *, is_cut: bool) -> str:
        return self._secrets.known_secrets.redact(output.decode(errors="replace"), is_cut=is_cut)

    def _failure(self, program: str, finished: CommandResult, output: str) -> ToolError:
        tail = error_tail(output)
        if finished.timed_out:
            why = f"{program} was stopped after {self._manifest.timeout_s:g} s"
            advice = "; ask for less" if self.spec.effect == "read_only" else ""
            return ToolError(f"{finished.warning}{why}{advice}{tail}", kind=TIME_LIMIT, retryable=True)
        if finished.limit:
            why = f"{program} was stopped by its limit {finished.limit}"
        elif finished.signal:
            why = f"{program} was killed by {finished.signal}"
        else:
            why = f"{program} exited with code {finished.exit_code}"
        return ToolError(
            f"{finished.warning}{why}{tail}",
            kind="CommandFailed",
            retryable=finished.exit_code in self._command.retry_codes,
            acted="no" if finished.exit_code in self._command.refusal_codes else "maybe",
        )
