"""Builders for the values of a test: an input, a configuration, a folder of policies."""

import tomllib
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from orga.client.config.sections import OrgaConfig
from orga.client.errors import ConfigError
from orga.workflows.types.input import AgentInput, parse_input
from orga.workflows.types.record import validation_problems


def agent_input(task: str = "do it", **given: Any) -> AgentInput:
    """Return the input of a run: `agent_input("tidy up", agent="clerk", config={"max_iterations": 3})`.

    Raises:
        InvalidInput: The text names each bad key.
    """
    return parse_input({"task": task, **given})


def orga_config(text: str = "", **sections: Any) -> OrgaConfig:
    """Return a configuration from the content of an `orga.toml`, without a file that needs trust.

    Args:
        text: The content as TOML.
        sections: The same as values: `orga_config(models={"default": "openai:gpt-5"})`. They override the text.

    Raises:
        ConfigError: The text names each bad key.
    """
    try:
        return OrgaConfig.model_validate({**tomllib.loads(text), **sections}, extra="forbid")
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"orga_config: this is no TOML: {error}") from None
    except ValidationError as error:
        raise ConfigError(
            "\n".join(f"orga_config: {each}" for each in validation_problems(error, OrgaConfig))
        ) from None


def permits(*tools: str, rule: str = "permitted") -> str:
    """Return a Cedar policy that allows calls of these tools (of all tools, if none is named) and all answers."""
    named = f" when {{ {_any_of(tools)} }}" if tools else ""
    answering = (
        f'@id("{rule}-answers") permit (principal, action in [Action::"respond", Action::"terminate"], resource);'
    )
    return f'@id("{rule}") permit (principal, action == Action::"tool_call", resource){named};\n{answering}\n'


def forbids(*tools: str, rule: str = "forbidden") -> str:
    """Return a Cedar policy that denies calls of these tools."""
    return f'@id("{rule}") forbid (principal, action == Action::"tool_call", resource) when {{ {_any_of(tools)} }};\n'


def policy_folder(folder: Path, *policies: str) -> Path:
    """Write policies into the folder `policies` in `folder`, and return it.

    Use it as `policy=policy_folder(tmp_path, permits(), ...)`.

    Args:
        folder: For instance pytest's `tmp_path`.
        policies: Cedar policies.
    """
    place = folder / "policies"
    place.mkdir(parents=True, exist_ok=True)
    (place / "test.cedar").write_text("\n".join(policies), encoding="utf-8")
    return place


def _any_of(tools: tuple[str, ...]) -> str:
    return " || ".join(f'resource.name == "{tool}"' for tool in tools)
