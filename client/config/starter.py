"""The text of the `orga.toml` that `orga init` writes. Comments explain the keys, and show those that are not set."""

import json
import tomllib
from dataclasses import dataclass

from pydantic import ValidationError

from orga.client.config.problems import problem_lines
from orga.client.config.sections import OrgaConfig
from orga.client.errors import ConfigError
from orga.workflows.types.agents import READ_ONLY_TOOLS

WRITE, EDIT, FETCH, COMMAND = "write_file", "edit_file", "fetch_url", "run_command"

_HEAD = """\
# What agents may do in this folder, and with which model. This file is yours to change: `orga config show` lists the
# effective values and their origin, `orga doctor` checks that they work. A line that begins with #key is an example:
# remove the # to use it. A variable overrides this file: ORGA_MODELS__DEFAULT sets `default` of [models].
# Keep keys and passwords out of this file: they are read from the environment (OPENAI_API_KEY, ...).
"""

_MODELS = """
[models]
# provider:model; `orga models` shows the providers, and which of them have a key. Without this line: the first
# provider whose key is set, else offline:extractive, which needs no key and quotes what it finds.
{default}
# The models of tier:light and tier:heavy. If one fails, the next of its tier is asked.
#tiers.light = ["ollama:qwen3:4b"]
#tiers.heavy = ["anthropic:claude-sonnet-5-5"]
{base_url}
"""

_AGENT = """
[agents.default]
# The agent of `orga run`; `orga run --agent NAME` uses [agents.NAME]. `orga agents` lists them.
#description = "What it is good for: shown to agents that may delegate to it."
# Replaces its built-in instructions:
#instructions = "You work on a task with the tools you are given. Be exact, and name your sources."
# The only tools that it may call: any other call is denied. `orga tools list` shows all tools.
tools = {tools}

[agents.default.config]
# A run ends at the first limit that it reaches, with the result so far.
max_iterations = 25
# Seconds. Waits for a person do not count.
timeout_s = 300
max_total_tokens = 100000
# Needs a model whose price is known.
#max_cost_usd = 0.5
# "ask" waits for `orga extend` when a limit is reached.
#on_exhausted = "ask"
"""

_FILES = """
[tools.files]
# The folder that file tools stay in: this one, unless you name another.
#root = "."
"""

_WEB = """
[tools.web]
# Hosts that may be fetched although their address is private, such as a server on this machine.
#allow_hosts = ["localhost"]
"""

_COMMANDS = """
[tools.commands]
# Programs that run_command may start, by name: no path, no shell.
allow = {programs}
# No network, and write access to this folder only (needs bubblewrap):
#sandbox.isolation = "bubblewrap"
"""

_APPROVAL = """
[tools.options.{tool}]
# A person approves each call: `orga inbox` shows what waits, `orga approve ID` lets it run.
approval = {approval}
"""

_REST = """
[policy]
# The engine that decides on calls: "default" (the tools that the agent lists), or "cedar" (rules in policies/*.cedar).
# Without this line: "cedar" as soon as such a file exists, else "default".
#engine = "default"

[temporal]
# A Temporal server of your own. Without one, orga starts a server on this machine.
#address = "127.0.0.1:7233"
#namespace = "default"

[telemetry]
# Traces and metrics over OTLP. They contain no prompts and no tool output.
#enabled = true
#endpoint = "http://localhost:4318"
"""


@dataclass(frozen=True)
class StarterChoices:
    """The answers of the user of `orga init`."""

    model: str | None = None
    """`provider:model`. None leaves the choice to the environment."""
    base_url: str | None = None
    """Address of the model's provider."""
    write: bool = False
    web: bool = False
    programs: tuple[str, ...] = ()
    """Programs that may be started, by bare name."""
    approval: bool = True
    """True if a person approves each call that does more than read."""

    @property
    def acting_tools(self) -> list[str]:
        """The chosen tools that do more than read this folder."""
        chosen = {WRITE: self.write, EDIT: self.write, FETCH: self.web, COMMAND: bool(self.programs)}
        return [tool for tool, is_chosen in chosen.items() if is_chosen]


def starter_text(choices: StarterChoices) -> str:
    """Return the text of the file. Raise ConfigError if no `orga.toml` can hold the choices."""
    default = f"default = {_toml_value(choices.model)}" if choices.model else '#default = "anthropic:claude-sonnet-5-5"'
    parts = [
        _HEAD,
        _MODELS.format(default=default, base_url=_base_url(choices)),
        _AGENT.format(tools=_toml_value([*READ_ONLY_TOOLS, *choices.acting_tools])),
        _FILES,
        _WEB if choices.web else "",
        _COMMANDS.format(programs=_toml_value(list(choices.programs))) if choices.programs else "",
        *(_APPROVAL.format(tool=tool, approval=_toml_value(choices.approval)) for tool in choices.acting_tools),
        _REST,
    ]
    text = "".join(parts)
    _require_readable(text)
    return text


def _base_url(choices: StarterChoices) -> str:
    comment = "# The address of a provider of your own."
    if choices.base_url is None:
        return f'{comment}\n#base_urls.openai-compatible = "http://localhost:8000/v1"'
    provider = (choices.model or "").partition(":")[0]
    return f"{comment}\nbase_urls.{provider} = {_toml_value(choices.base_url)}"


def _toml_value(value: str | bool | list[str] | None) -> str:
    # JSON as a TOML value: TOML allows no surrogate escapes, as ASCII JSON has them, and no unescaped DEL
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _require_readable(text: str) -> None:
    try:
        OrgaConfig.model_validate(tomllib.loads(text), extra="forbid")
    except ValidationError as error:
        raise ConfigError("\n".join(problem_lines(error, OrgaConfig, lambda _: "orga init"))) from None
    except ValueError as error:
        raise ConfigError(f"orga init: {error}") from None
