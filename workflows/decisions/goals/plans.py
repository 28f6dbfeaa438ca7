"""Plans: the steps in a model's proposal or its problems, the steps that are ready, and their calls."""

from collections.abc import Collection, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from typing import Any, cast

from pydantic_core import to_json

from orga.workflows.decisions.goals.replies import UnusableReply, bounded_line
from orga.workflows.decisions.tool_calls.calls import call_fingerprint
from orga.workflows.types.goals.pursuit import MAX_ARGUMENTS_BYTES, MAX_GOAL_CHARS, MAX_ID_CHARS, GoalState, PlanStep
from orga.workflows.types.goals.requests import REFERENCE_KEY, referred_steps, step_arguments, step_skill
from orga.workflows.types.json_text import MAX_DEPTH, as_object, as_objects, as_text, is_deeper
from orga.workflows.types.messages import ToolCall
from orga.workflows.types.setup import Setup
from orga.workflows.types.text import clean_json, one_line
from orga.workflows.types.tool_calls.loop_tools import DELEGATE, LOOP_TOOLS
from orga.workflows.types.tool_calls.tools import ToolSpec

MAX_SHOWN_PROBLEMS = 10

_GOAL_KEYS = ("goal", "description", "input_description", "reason")


def available_skills(setup: Setup) -> dict[str, str]:
    """Return the skills for steps with their descriptions: tools, and agents that may be delegated to.

    The loop's own tools are not skills, because the plan itself does their work.
    """
    tools = {tool.name: tool.description for tool in setup.tools if tool.name not in LOOP_TOOLS}
    if setup.tool(DELEGATE) is None:
        return tools
    agents = [delegate for delegate in setup.delegates if delegate.agent not in tools]
    return tools | {delegate.agent: delegate.description or "an agent" for delegate in agents}


def valued_skills(setup: Setup) -> frozenset[str]:
    return frozenset(tool.name for tool in setup.tools if tool.value_schema is not None)


def available_agents(setup: Setup) -> frozenset[str]:
    return frozenset(skill for skill in available_skills(setup) if setup.tool(skill) is None)


def agent_arguments_problem(given: str | dict[str, Any]) -> str:
    """Return what is wrong with the input for an agent, or "". An agent takes a task and nothing else."""
    if isinstance(given, str):
        return ""
    task: Any = given.get("task")
    is_task = isinstance(task, str) and bool(task.strip()) and set(given) == {"task"}
    return "" if is_task else 'an agent takes its task as a text, {"task": "..."}, and nothing else'


def parsed_plan(
    listed: object,
    skills: Mapping[str, str],
    most: int,
    before: Sequence[PlanStep] = (),
    *,
    agents: frozenset[str] = frozenset(),
    valued: frozenset[str] = frozenset(),
) -> tuple[PlanStep, ...]:
    """Return the steps of a plan, which replace all open steps. Raise UnusableReply with each problem.

    Args:
        listed: The steps as the model wrote them.
        most: The number of steps that may be open.
        before: Finished steps. New steps may depend on them, but not have their ids.
        valued: The skills that return values, which arguments of other steps may refer to.
    """
    if not isinstance(listed, list) or not listed:
        raise UnusableReply("steps: a list of at least one step")
    items = cast("list[Any]", listed)
    if len(items) > most:
        raise UnusableReply(f"steps: {len(items)} of them, at most {most} may be open; join some")
    problems: list[str] = []
    steps = [_parsed_step(item, number, skills, agents, problems) for number, item in enumerate(items, start=1)]
    finished = {step.id: step for step in before}
    known = {*finished, *(step.id for step in steps)}
    steps = [_with_resolved_needs(step, known) for step in steps]
    steps, reference_problems = _with_references(steps, valued)
    problems += [*reference_problems, *_graph_problems(steps, finished)]
    if problems:
        hidden = len(problems) - MAX_SHOWN_PROBLEMS
        raise UnusableReply("; ".join(problems[:MAX_SHOWN_PROBLEMS]) + (f"; and {hidden} more" if hidden > 0 else ""))
    return tuple(steps)


def _parsed_step(
    listed: object, number: int, skills: Mapping[str, str], agents: frozenset[str], problems: list[str]
) -> PlanStep:
    """Return the step as far as it can be read, and add its problems to `problems`."""
    if not isinstance(listed, dict):
        problems.append(f"step {number}: give an object")
        return PlanStep(id=f"?{number}", goal="", skill="")
    given = cast("dict[str, Any]", listed)
    step_id = bounded_line(given.get("id"), MAX_ID_CHARS + 1) or f"s{number}"
    skill = step_skill(given)
    goals = [bounded_line(given.get(name), MAX_GOAL_CHARS + 1) for name in _GOAL_KEYS]
    goal = next(filter(None, goals), "")
    arguments, needs = step_arguments(given), _parsed_ids(given.get("depends_on"))
    if skill in agents and isinstance(arguments, str):
        arguments = {"task": arguments}
    checks = [
        (len(step_id) > MAX_ID_CHARS, f"id: at most {MAX_ID_CHARS} characters"),
        (len(step_id.splitlines()) > 1, "id: one line"),
        (skill not in skills, f"skill {skill!r} is none of {', '.join(skills)}"),
        (not goal, "goal: what it is for is missing"),
        (
            len(goal) > MAX_GOAL_CHARS,
            f"goal: at most {MAX_GOAL_CHARS} characters; what is longer belongs into arguments",
        ),
        (arguments is not None and not isinstance(arguments, dict), "arguments: an object, or null"),
        (needs is None, "depends_on: a list of ids"),
    ]
    wrong = [problem for is_wrong, problem in checks if is_wrong]
    cleaned: dict[str, Any] | None = clean_json(arguments) if isinstance(arguments, dict) else None
    if skill in agents:
        cleaned = cleaned or None
        if problem := agent_arguments_problem(cleaned or ""):
            wrong.append(f"arguments: {problem}")
    if cleaned is not None and len(to_json(cleaned, inf_nan_mode="strings")) > MAX_ARGUMENTS_BYTES:
        wrong.append(f"arguments: at most {MAX_ARGUMENTS_BYTES} bytes of JSON")
    problems += [f"{step_id[:MAX_ID_CHARS]}: {problem}" for problem in wrong]
    depends_on = tuple(dict.fromkeys(bounded_line(need, MAX_ID_CHARS + 1) for need in needs or ()))
    return PlanStep(id=step_id, goal=goal, skill=skill, arguments=cleaned, depends_on=depends_on)


def _parsed_ids(value: object) -> list[str] | None:
    """Return the ids that a model wrote: a text or a number, or a list of them. None for any other value."""
    if value in (None, ""):
        return []
    listed = cast("list[object]", value) if isinstance(value, list) else [value]
    return [str(item) for item in listed] if all(type(item) in {str, int} for item in listed) else None


def _with_resolved_needs(step: PlanStep, known: Collection[str]) -> PlanStep:
    """Return the step with an id for each dependency. A model may have written `a, b`, or `2` for the step `s2`."""
    needs = list[str]()
    for need in step.depends_on:
        parts = [part.strip() for part in need.split(",")]
        if need in known:
            needs.append(need)
        elif all(part in known for part in parts):
            needs += parts
        elif need.isdecimal() and f"s{need}" in known:
            needs.append(f"s{need}")
        else:
            needs.append(need)
    return step.with_fields(depends_on=tuple(dict.fromkeys(needs))) if tuple(needs) != step.depends_on else step


def _with_references(steps: Sequence[PlanStep], valued: frozenset[str]) -> tuple[list[PlanStep], list[str]]:
    """Return the steps and the problems of references. A step also depends on each step whose value it refers to."""
    have_values = {step.id for step in steps if step.skill in valued}
    linked, problems = list[PlanStep](), list[str]()
    for step in steps:
        referred = tuple(dict.fromkeys(referred_steps(step.arguments)))
        problems += [
            f"{step.id}: arguments: {step_id!r} is no step of this plan whose skill returns a value"
            for step_id in referred
            if step_id not in have_values
        ]
        needs = tuple(dict.fromkeys((*step.depends_on, *referred)))
        linked.append(step if needs == step.depends_on else step.with_fields(depends_on=needs))
    return linked, problems


def _graph_problems(steps: Sequence[PlanStep], finished: Mapping[str, PlanStep]) -> list[str]:
    ids = [step.id for step in steps]
    repeated = sorted({step_id for step_id in ids if ids.count(step_id) > 1 or step_id in finished})
    twice = [f"{step_id}: the id is used twice, or belongs to a finished step" for step_id in repeated]
    needs = [(step.id, need) for step in steps for need in step.depends_on]
    known = {*ids, *finished}
    failed_ids = {step.id for step in finished.values() if step.state == "failed"}.difference(ids)
    missing = [f"{step_id}: depends on {need!r}, which is no step" for step_id, need in needs if need not in known]
    failed = [f"{step_id}: depends on {need!r}, which failed" for step_id, need in needs if need in failed_ids]
    return [*twice, *missing, *failed, *_cycle_problems(steps)]


def _cycle_problems(steps: Sequence[PlanStep]) -> list[str]:
    try:
        TopologicalSorter({step.id: step.depends_on for step in steps}).prepare()
    except CycleError as error:
        return [f"depends_on goes round in a circle: {' <- '.join(error.args[1])}"]
    return []


def ready_steps(steps: Sequence[PlanStep], most: int) -> tuple[PlanStep, ...]:
    """Return up to `most` open steps whose dependencies are done, in the order of the plan."""
    done = {step.id for step in steps if step.state == "done"}
    return tuple(step for step in steps if step.state == "open" and done.issuperset(step.depends_on))[:most]


def step_call(step: PlanStep, tools: Collection[ToolSpec]) -> ToolCall | None:
    """Return the call of the step. None if its arguments depend on other steps. A skill that is no tool is an agent."""
    if step.skill in {tool.name for tool in tools}:
        return None if step.arguments is None else ToolCall(call_id=step.id, name=step.skill, arguments=step.arguments)
    if step.arguments is None:
        return None if step.depends_on else delegate_step_call(step, step.goal)
    return delegate_step_call(step, str(step.arguments.get("task", step.goal)))


def due_step_calls(state: GoalState) -> tuple[ToolCall | None, ...]:
    """Return the calls of the due steps, in their order. None for each that the model has to make."""
    return tuple(step_call(step, state.tools) for step in state.pursuit.due_steps)


def delegate_step_call(step: PlanStep, task: str) -> ToolCall:
    return ToolCall(call_id=step.id, name=DELEGATE, arguments={"agent": step.skill, "task": task})


def calls_mismatch(
    calls: Sequence[ToolCall], steps: Sequence[PlanStep], planned: Sequence[ToolCall | None], setup: Setup
) -> str:
    """Return why these calls do not match these steps one by one, or "". `planned` is as in `due_step_calls`."""
    wanted = [step.skill if setup.tool(step.skill) is not None else DELEGATE for step in steps]
    called = [call.name for call in calls]
    if called != wanted:
        asked = [name for name, call in zip(wanted, planned, strict=True) if call is None] or wanted
        return f"make exactly these calls, in this order: {', '.join(asked)}; you made {', '.join(called) or 'none'}"
    for call, step, plan in zip(calls, steps, planned, strict=True):
        if plan is not None and (call.malformed is not None or call_fingerprint(call) != call_fingerprint(plan)):
            return f"{step.id}: the plan has the arguments of this call; they stay as they are"
        if call.name == DELEGATE and call.arguments.get("agent") != step.skill:
            return f"{step.id}: delegate to {step.skill!r}"
    return ""


class _NoSuchValue(Exception):
    """A step has no value at the path of a reference."""


def with_values(step: PlanStep, values: Mapping[str, Any]) -> PlanStep:
    """Return the step with the values of these finished steps in its arguments.

    If a step has no value at the path, or the values are too large or deep for a plan, the model writes the arguments.
    """
    if step.arguments is None or values.keys().isdisjoint(referred_steps(step.arguments)):
        return step
    try:
        arguments = _with_filled_references(step.arguments, values)
    except _NoSuchValue:
        return step.with_fields(arguments=None)
    fits = not is_deeper(arguments, MAX_DEPTH) and len(to_json(arguments)) <= MAX_ARGUMENTS_BYTES
    return step.with_fields(arguments=arguments if fits else None)


def _with_filled_references(part: Any, values: Mapping[str, Any]) -> Any:
    if isinstance(part, list):
        return [_with_filled_references(item, values) for item in cast("list[Any]", part)]
    if not isinstance(part, dict):
        return part
    given = cast("dict[str, Any]", part)
    if REFERENCE_KEY not in given:
        return {key: _with_filled_references(value, values) for key, value in given.items()}
    step = str(given[REFERENCE_KEY])
    return _value_at(values[step], given.get("path")) if step in values else given


def _value_at(value: Any, path: object) -> Any:
    """Return the part of a value. Raise _NoSuchValue if there is none, or if it is null.

    A part that contains a reference itself does not count. Otherwise a tool could fetch the value of another step.
    """
    keys: list[Any] = [] if path is None else [path]
    if isinstance(path, list):
        keys = cast("list[Any]", path)
    for key in keys:
        try:
            value = value[int(key) if isinstance(value, list) else str(key)]
        except (LookupError, TypeError, ValueError, OverflowError):
            raise _NoSuchValue from None
    if value is None or next(referred_steps(value), None) is not None:
        raise _NoSuchValue
    return value


def value_outline(schema: dict[str, Any] | None, most: int) -> str:
    """Return the fields of a schema's values for a model, on one line: `{id, items: [{name}]}`. "" without a schema."""
    text = "" if schema is None else _outline(schema, as_object(schema.get("$defs")), _OUTLINE_LEVELS)
    return one_line(text, most)


_OUTLINE_LEVELS, _OUTLINE_FIELDS = 3, 12
"""Most levels, and most fields or alternatives of a part. A hostile schema may refer to itself a thousand times."""


def _outline(schema: object, named: Mapping[str, Any], levels: int) -> str:
    given = as_object(schema)
    given = as_object(named.get(as_text(given.get("$ref")).rpartition("/")[2])) or given
    if not levels:
        return ""
    if fields := list(as_object(given.get("properties")).items())[:_OUTLINE_FIELDS]:
        parts = ((name, _outline(field, named, levels - 1)) for name, field in fields)
        return "{" + ", ".join(f"{name}: {inner}" if inner else name for name, inner in parts) + "}"
    if "items" in given:
        return f"[{_outline(given['items'], named, levels - 1) or '…'}]"
    choices = as_objects(given.get("anyOf"))[:_OUTLINE_FIELDS]
    return next(filter(None, (_outline(choice, named, levels - 1) for choice in choices)), "")
