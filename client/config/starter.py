"""A first `orga.toml`: every line explained, what is not chosen stands there as a comment that can be taken away."""

import json
import tomllib
from dataclasses import dataclass

from pydantic import ValidationError

from orga.client.config.problems import problem_lines
from orga.client.config.sections import OrgaConfig
from orga.client.errors import ConfigError
from orga.workflows.types.agents import READ_ONLY_TOOLS

WRITE, FETCH, COMMAND = "write_file", "fetch_url", "run_command"

_HEAD = """\
# What agents may do in this folder, and with which model. Yours to change: `orga config show` tells what holds and
# where it comes from, `orga doctor` whether it works. A line that begins with #key is an example: take the # away.
# A variable wins over this file: ORGA_MODELS__DEFAULT stands for `default` of [models].
# Keys and passwords do not belong here: they are read from the environment (OPENAI_API_KEY, ...).
"""

_MODELS = """
[models]
# provider:model; `orga models` shows the providers, and which of them have a key. Without this line: the first
# provider whose key is set, else offline:extractive, which needs none and quotes what it finds.
{default}
# What other lines call tier:light and tier:heavy; a model that fails gives way to the next of its tier.
#tiers.light = ["ollama:qwen3:4b"]
#tiers.heavy = ["anthropic:claude-sonnet-5-5"]
{base_url}
"""

_AGENT = """
[agents.default]
# The agent that `orga run` takes; `orga run --agent NAME` takes [agents.NAME]. `orga agents` lists them.
#description = "What it is good for: told to agents that may delegate to it."
# In place of its built-in instructions:
#instructions = "You work on a task with the tools you are given. Be exact, and name your sources."
# All that it may call: any other call is denied. `orga tools list` shows what there is.
tools = {tools}

[agents.default.config]
# A run ends at the first limit that it reaches, with what it has until then.
max_iterations = 25
# Seconds, waits for a person left out.
timeout_s = 300
max_total_tokens = 100000
# Needs a model whose price is known.
#max_cost_usd = 0.5
# "ask" waits for `orga extend` where a limit is reached.
#on_exhausted = "ask"
"""

_FILES = """
[tools.files]
# The folder that file tools stay in; this one, unless you name another.
#root = "."
"""

_WEB = """
[tools.web]
# Hosts that may be fetched although their address is private, as that of a server on this machine.
#allow_hosts = ["localhost"]
"""

_COMMANDS = """
[tools.commands]
# Programs that run_command may start, by name: no path, no shell.
allow = {programs}
# No network, and nothing to write to but this folder (needs bubblewrap):
#sandbox.isolation = "bubblewrap"
"""

_APPROVAL = """
[tools.options.{tool}]
# A person says yes to each call: `orga inbox` shows what waits, `orga approve ID` lets it run.
approval = {yes}
"""

_REST = """
[policy]
# Who decides what may run: "default", the tools that the agent lists, or "cedar" with rules in policies/*.cedar.
# Without this line: "cedar" as soon as such a file is there, else "default".
#engine = "default"

[temporal]
# A Temporal server of your own; without one, a server of this machine is started by itself.
#address = "127.0.0.1:7233"
#namespace = "default"

[telemetry]
# Traces and metrics over OTLP; no prompt and no tool output is in them.
#enabled = true
#endpoint = "http://localhost:4318"
"""


@dataclass(frozen=True)
class StarterChoices:
    """What somebody wants of a first configuration."""

    model: str | None = None
    """`provider:model`; None leaves it to the environment."""
    base_url: str | None = None
    """Of the model's provider."""
    write: bool = False
    web: bool = False
    programs: tuple[str, ...] = ()
    """That may be started, by bare name."""
    approval: bool = True
    """Whether a person says yes to each call that does more than read."""

    @property
    def acting(self) -> list[str]:
        """The tools that do more than read this folder."""
        chosen = {WRITE: self.write, FETCH: self.web, COMMAND: bool(self.programs)}
        return [tool for tool, is_chosen in chosen.items() if is_chosen]


def starter_text(choices: StarterChoices) -> str:
    """Return the text of the file.

    Raises:
        ConfigError: A choice that no `orga.toml` can hold.
    """
    default = f"default = {_toml_value(choices.model)}" if choices.model else '#default = "anthropic:claude-sonnet-5-5"'
    parts = [
        _HEAD,
        _MODELS.format(default=default, base_url=_base_url(choices)),
        _AGENT.format(tools=_toml_value([*READ_ONLY_TOOLS, *choices.acting])),
        _FILES,
        _WEB if choices.web else "",
        _COMMANDS.format(programs=_toml_value(list(choices.programs))) if choices.programs else "",
        *(_APPROVAL.format(tool=tool, yes=_toml_value(choices.approval)) for tool in choices.acting),
        _REST,
    ]
    text = "".join(parts)
    _require_readable(text)
    return text


def _base_url(choices: StarterChoices) -> str:
    about = "# Where a provider of your own answers."
    if choices.base_url is None:
        return f'{about}\n#base_urls.openai-compatible = "http://localhost:8000/v1"'
    provider = (choices.model or "").partition(":")[0]
    return f"{about}\nbase_urls.{provider} = {_toml_value(choices.base_url)}"


def _toml_value(value: str | bool | list[str] | None) -> str:
    """Return a value as TOML writes it, which JSON does in ASCII but for halves of characters."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _require_readable(text: str) -> None:
    try:
        OrgaConfig.model_validate(tomllib.loads(text), extra="forbid")
    except ValidationError as error:
        raise ConfigError("\n".join(problem_lines(error, OrgaConfig, lambda _: "orga init"))) from None
    except ValueError as error:
        raise ConfigError(f"orga init: {error}") from None
