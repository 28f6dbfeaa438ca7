"""Continue-as-new: when a run does it, what it carries, and when it is too large to continue at all.

The state has parts. Each has a bound in bytes of JSON, and a reason for it. All bounds together are less than a payload
takes, so any run can continue. If a state is too large, the window of messages shrinks to its minimum first. Then the
parts that can be cut are cut, one after the other.
"""

from collections.abc import Callable
from typing import NamedTuple

from pydantic_core import to_json

from orga.workflows.decisions.begin import BEGIN_BYTES
from orga.workflows.decisions.compaction import groups_after_task, latest_group
from orga.workflows.decisions.control.questions import call_without_arguments
from orga.workflows.decisions.conversation import fair_shares, message_json_bytes, with_all_as_base, with_messages
from orga.workflows.decisions.observe import MAX_REPAIRS_IN_A_ROW
from orga.workflows.decisions.review_stages import STAGE_FIELDS
from orga.workflows.types.context import EMPTY_DIGEST
from orga.workflows.types.control import Stop
from orga.workflows.types.conversation import Conversation, is_dropped_last, latest_turn
from orga.workflows.types.goals.pursuit import GoalState
from orga.workflows.types.messages import Message, messages_without, ranges_of, shortened_message
from orga.workflows.types.parts import OwnText
from orga.workflows.types.questions import Item, Question
from orga.workflows.types.state import AgentState
from orga.workflows.types.text import MAX_JSON_GROWTH, bytes_in_json, clip_json, json_prefix

MAX_CARRIED_BYTES = 1_900_000
"""Bytes of the state as JSON. The server refuses a payload of 2 MB."""

_REPLY_BYTES = 540_000
"""Bytes of the reply that waits for people, together with the window's minimum without the task. A large reply makes
the minimum smaller.
"""

_WINDOW_BYTES = 300_000
"""Bytes of the window's minimum without the task: room for the last message with its results. Other parts are cut
before the window gets smaller than that.
"""

# Bytes of JSON in the parts that are cut.
OUTPUT_BYTES = 50_000  # the output; an answer that is being continued may take as much
_SHORT_BYTES = 10_000  # the data; all gathered texts together may take as much
GUIDANCE_BYTES = 20_000  # all guidance that waits, together
RESULTS_BYTES = 20_000  # all results that people gave, together
_REPEATED_BYTES = 80  # a text of a repeated call
_LINE_BYTES = 200  # a name or a reason
_QUESTION_BYTES = 300  # a text of a question
_STREAK_BYTES = 450  # a repeated denial or invalid call

NO_APPROVERS = ("",)
"""Replaces a list of approvers that is too long. Nobody has an empty name. The next segment asks with the full list."""

_CUT_HINT = "the conversation has all of it"


class CarriedPart(NamedTuple):
    """Fields of the state, and the bytes that they take together in a carried state."""

    fields: tuple[str, ...]
    most: int
    why: str
    """The reason why the fields never take more."""
    cut: Callable[[AgentState], AgentState] | None = None
    """Function that shortens the part. It is called only if the state is too large even with the window's minimum."""


def _with_light_questions(state: AgentState) -> AgentState:
    """Keep what is needed to decide each question, and a share of the results that people gave.

    An item keeps the digest of its call (`about`), but not the arguments. The next segment judges the calls again and
    asks about the same ones.
    """
    questions = state.questions
    sizes = [len(to_json(question.resolution.result)) if question.resolution else 0 for question in questions]
    rooms = fair_shares(sizes, RESULTS_BYTES)
    return state.with_control(
        questions=tuple(_light_question(question, room) for question, room in zip(questions, rooms, strict=True))
    )


def _light_question(question: Question, room: int) -> Question:
    data, resolution = dict(question.data), question.resolution
    for key in ("arguments", "error"):
        if key in data:
            data[key] = json_prefix(str(data[key]), _QUESTION_BYTES)
    if resolution is not None:
        result = json_prefix(clip_json(resolution.result, room), room)
        resolution = resolution.with_texts(_light_line(resolution.by), _light_line(resolution.reason), result)
    items = tuple(map(_light_item, question.items))
    return question.with_content(json_prefix(question.text, _QUESTION_BYTES), data, items, resolution)


def _light_item(item: Item) -> Item:
    decision = item.answer
    if decision is not None:
        decision = decision.with_texts(_light_line(decision.approver), _light_line(decision.reason))
    return item.with_decision(decision).with_content(
        call_without_arguments(item.call),
        _light_line(item.version),
        _light_line(item.reason),
        item.approvers if len(to_json(item.approvers)) <= _LINE_BYTES else NO_APPROVERS,
    )


def _light_line(text: str) -> str:
    return json_prefix(text, _LINE_BYTES)


def _with_light_repeated_calls(state: AgentState) -> AgentState:
    """Shorten the texts. A stopped call stays stopped."""
    steps = {
        key: call.with_texts(json_prefix(call.last_error, _REPEATED_BYTES), json_prefix(call.stopped, _REPEATED_BYTES))
        for key, call in state.steps.items()
    }
    return state.with_failures(steps=steps)


def _with_light_output(state: AgentState) -> AgentState:
    """Shorten an output that is not final, and texts for an ending without an answer. Drop data that is too long."""
    data = state.data if len(to_json(state.data, inf_nan_mode="strings")) <= _SHORT_BYTES else None
    gathered = state.gathered
    while len(to_json(gathered)) > _SHORT_BYTES:
        gathered = (clip_json(gathered[0], _SHORT_BYTES - 10),) if len(gathered) == 1 else gathered[1:]
    return state.with_task(data=data, gathered=gathered, output=clip_json(state.output, OUTPUT_BYTES, _CUT_HINT))


def _with_light_inbox(state: AgentState) -> AgentState:
    rooms = fair_shares([len(to_json(item.text)) for item in state.inbox], GUIDANCE_BYTES)
    inbox = tuple(
        item.with_shorter_text(json_prefix(clip_json(item.text, room), room))
        for item, room in zip(state.inbox, rooms, strict=True)
    )
    return state.with_control(inbox=inbox, inbox_bytes=sum(len(item.text.encode()) for item in inbox))


def _with_light_streaks(state: AgentState) -> AgentState:
    return state.with_failures(
        denials={json_prefix(key, _STREAK_BYTES): times for key, times in state.denials.items()},
        invalid={json_prefix(key, _STREAK_BYTES): times for key, times in state.invalid.items()},
    )


def _with_light_partial(state: AgentState) -> AgentState:
    return state.with_dialogue(partial=clip_json(state.partial, OUTPUT_BYTES, _CUT_HINT))


def _without_results(state: AgentState) -> AgentState:
    return state.with_failures(results={}, values={})


CARRIED_PARTS = (
    CarriedPart(
        ("input", "setup", "taint", "breakers", "failures", "decided", *STAGE_FIELDS),
        BEGIN_BYTES,
        "a larger start is refused; instructions and schema are only in the setup, the task only in the input",
    ),
    CarriedPart(
        ("pending", "conversation"),
        _REPLY_BYTES,
        "a reply is bounded when it is recorded (`activities/replies.py`); the window takes what the other parts leave",
    ),
    CarriedPart(
        ("recollection",),
        7_000,
        "the words and paths of one search, none longer than `MAX_TERM_CHARS` and `MAX_PATH_CHARS`",
    ),
    CarriedPart(("dead_letters",), 101_000, "a letter above `MAX_LETTER_BYTES` is an ordinary failure and not kept"),
    CarriedPart(
        ("results", "values"), 100, "dropped: recovery and policies expect that some are missing", _without_results
    ),
    CarriedPart(
        ("questions", "announced"),
        130_000,
        "one question about all calls of a reply, which `pending` has, or one for each stuck call; texts are cut",
        _with_light_questions,
    ),
    CarriedPart(("steps",), 64_000, "the newest `MAX_REPEATED_CALLS`; their texts are cut", _with_light_repeated_calls),
    CarriedPart(("output", "data", "gathered"), 72_000, "none of it is final, so it is cut", _with_light_output),
    CarriedPart(("inbox", "inbox_bytes", "unheard"), 66_000, "`MAX_INBOX_ITEMS`; the texts are cut", _with_light_inbox),
    CarriedPart(("intervention_ids", "pauses"), 9_000, "the newest `MAX_KEPT_IDS` and `MAX_KEPT_PAUSES`"),
    CarriedPart(("completions",), 3_700, "the newest `MAX_COMPLETIONS`"),
    CarriedPart(
        ("denials", "invalid"), 34_000, "only those of the last reply; their names are cut", _with_light_streaks
    ),
    CarriedPart(("partial",), 52_000, "it is cut if a few more replies do not finish the answer", _with_light_partial),
    CarriedPart(
        (
            *("origin", "clock", "doing", "is_standing", "is_over", "last", "refused", "iteration", "usage"),
            *("tool_calls", "carried_by", "repairs", "thinking_cuts", "paused", "extended", "budget_questions"),
            *("hydrated", "calibration", "under_way", "over_budget", "told_held", "undecided", "forked_from"),
        ),
        20_000,
        "numbers, ids, and two lines for people",
    ),
    CarriedPart(
        ("children", "aborted", "stop", "fork", "notes"), 100, "empty: no run continues as new while one is set"
    ),
)
"""The parts in the order in which they are cut: the least important first."""

_UNCUT_PARTS = [part for part in CARRIED_PARTS if part.cut is None]

SPARE_BYTES = 1_000
"""Bytes for the fields of a conversation other than its messages. They are not measured."""


def continue_as_new_state(state: AgentState, run_id: str) -> AgentState:
    """Return the state for the next segment. Nothing in it refers to the history that ends here."""
    whole = state.with_dialogue(conversation=with_all_as_base(state.conversation)).with_control(carried_by=run_id)
    if state_bytes(whole) <= MAX_CARRIED_BYTES:
        return whole
    light, most = _without_repeats(whole), MAX_CARRIED_BYTES - SPARE_BYTES
    window_bytes = _min_window_bytes(whole)
    for cut in (part.cut for part in CARRIED_PARTS if part.cut):
        if _bytes_without_messages(light) + window_bytes <= most:
            break
        light = cut(light)
    # The window is shrunk with the whole task, but carried without the text that the input repeats.
    task, carried_task = whole.conversation.messages[:1], light.conversation.messages[:1]
    repeated_bytes = sum(map(message_json_bytes, task)) - sum(map(message_json_bytes, carried_task))
    conversation = shrunk_conversation(
        whole.conversation,
        most - _bytes_without_messages(light) + repeated_bytes,
        may_drop_latest=whole.pending is not None,
    )
    messages = (*carried_task, *conversation.messages[1:])
    return light.with_dialogue(conversation=conversation.with_fields(messages=messages))


def state_bytes(state: AgentState) -> int:
    return len(state.model_dump_json(exclude_unset=True).encode())


def is_within_payload_limit(state: AgentState) -> bool:
    """Return True if `continue_as_new_state` fits the limit.

    Only the parts that cannot be cut are measured. The state of a goal is measured as a whole too, because no part
    bounds its plan.
    """
    if isinstance(state, GoalState) and state_bytes(continue_as_new_state(state, "")) > MAX_CARRIED_BYTES:
        return False
    if state_bytes(state) <= MAX_CARRIED_BYTES:
        return True
    smallest = _with_minimal_conversation(state)
    return sum(_part_bytes(smallest, part) for part in _UNCUT_PARTS) <= sum(part.most for part in _UNCUT_PARTS)


def oversized_parts_text(state: AgentState) -> str:
    """Return the parts that cannot be cut and exceed their bounds, with their sizes, or ""."""
    smallest = _with_minimal_conversation(state)
    sizes = [(part, _part_bytes(smallest, part)) for part in _UNCUT_PARTS]
    too_large = [(part, size) for part, size in sizes if size > part.most]
    return "; ".join(f"{', '.join(part.fields)}: {size}, {part.most} at most" for part, size in too_large)


def _with_minimal_conversation(state: AgentState) -> AgentState:
    """Return the state with the window's minimum: the task, and the last calls without their results."""
    state, messages = _without_repeats(state), state.conversation.messages
    latest = messages[latest_group(messages) :] if state.pending is None else ()
    first = state.conversation.messages[:1]
    return state.with_dialogue(conversation=Conversation(messages=(*first, *_without_texts(latest))))


def _part_bytes(state: AgentState, part: CarriedPart) -> int:
    return len(state.model_dump_json(include=set(part.fields), exclude_unset=True).encode())


def shortened_fields(before: AgentState, after: AgentState) -> list[str]:
    """Return the fields that are shortened in a carried state, except its messages and what the setup repeats."""
    fields = [field for part in CARRIED_PARTS if part.cut for field in part.fields]
    return [field for field in fields if getattr(before, field) != getattr(after, field)]


def _without_repeats(state: AgentState) -> AgentState:
    """Return the state without duplicates. `AgentState` and `decisions/fork.py` restore them."""
    if state.setup is not None:
        run_input = state.input.without_instructions()
        is_same_schema = run_input.output_schema == state.setup.output_schema
        state = state.with_task(input=run_input.without_schema() if is_same_schema else run_input)
    messages = state.conversation.messages
    if not messages or messages[0].role != "user" or messages[0].text != state.input.task:
        return state
    first = messages[0].with_text("")
    return state.with_dialogue(conversation=state.conversation.with_fields(messages=(first, *messages[1:])))


def _bytes_without_messages(state: AgentState) -> int:
    return state_bytes(state.with_dialogue(conversation=Conversation()))


def _min_window_bytes(state: AgentState) -> int:
    """Return the window's minimum in bytes. Other parts are cut before it gets smaller. A waiting reply reduces it."""
    reply_bytes = len(state.pending.model_dump_json(exclude_unset=True).encode()) if state.pending else 0
    minimum = min(_WINDOW_BYTES, _REPLY_BYTES - reply_bytes)
    return min(sum(map(message_json_bytes, state.conversation.messages[1:])), minimum)


def shrunk_conversation(conversation: Conversation, room: int, *, may_drop_latest: bool = False) -> Conversation:
    """Return the conversation within `room` bytes of JSON: the oldest messages go, and the remaining texts are cut.

    The task stays whole, and a call and its results go together. The model's last message stays, with everything after
    it. If that is too long, guidance after it goes, the oldest first.

    Args:
        may_drop_latest: If it is still too long, drop all but the task. Then the state must carry a later reply.
    """
    messages = _with_shortened_texts(_without_oldest(conversation.messages, room), room)
    if _messages_bytes(messages) > room:
        messages = _without_guidance(messages, room)
    if _messages_bytes(messages) > room and may_drop_latest:
        messages = messages[:1]
    fresh = with_messages(conversation.with_fields(sent=0, digest=EMPTY_DIGEST), messages)
    return with_all_as_base(fresh)


def _messages_bytes(messages: tuple[Message, ...]) -> int:
    return sum(message_json_bytes(message) + 1 for message in messages)


def _without_oldest(messages: tuple[Message, ...], room: int) -> tuple[Message, ...]:
    """Drop groups, the oldest first, until the rest fits."""
    latest, turn = latest_group(messages), latest_turn(messages)
    droppable = [group for group in groups_after_task(messages) if group.start < latest]
    droppable.sort(key=lambda group: is_dropped_last(messages, group.start, turn))  # keeps the order within both parts
    size, dropped = _messages_bytes(messages), set[int]()
    for group in droppable:
        if size <= room:
            break
        size -= _messages_bytes(messages[group.start : group.stop])
        dropped.update(group)
    return messages_without(messages, ranges_of(dropped))


def _without_guidance(messages: tuple[Message, ...], room: int) -> tuple[Message, ...]:
    """Drop guidance that came after the model's last message, the oldest first."""
    latest, size = latest_group(messages), _messages_bytes(messages)
    kept = list(messages[: latest + 1])
    for message in messages[latest + 1 :]:
        if message.role == "tool" or size <= room:
            kept.append(message)
        else:
            size -= _messages_bytes((message,))
    return tuple(kept)


def _with_shortened_texts(messages: tuple[Message, ...], room: int) -> tuple[Message, ...]:
    """Share the room among the texts. The task stays whole."""
    if _messages_bytes(messages) <= room:
        return messages
    task, others = messages[:1], messages[1:]
    bytes_without_texts = _messages_bytes(task) + _messages_bytes(_without_texts(others))
    text_bytes = [message_json_bytes(message) - message_json_bytes(message.with_text("")) for message in others]
    shares = fair_shares(text_bytes, max(room - bytes_without_texts, 0))
    return (*task, *(_shortened_message(message, share) for message, share in zip(others, shares, strict=True)))


def _without_texts(messages: tuple[Message, ...]) -> tuple[Message, ...]:
    return tuple(message.with_text("") for message in messages)


def _shortened_message(message: Message, room: int) -> Message:
    """Return the message with its text cut to `room` bytes of JSON without the quotes. A marker is added if it fits."""
    most = bytes_in_json(message.text, room + len('""'))
    if most is None:
        return message
    cut = shortened_message(message, most)
    text = json_prefix(cut.text, room)
    if text == cut.text:
        return cut
    prefix = cut.with_text(text)  # the loop's own text at the end may be gone
    return prefix.with_ours(OwnText(min(cut.ours.before, len(text)))) if any(cut.ours) else prefix


def can_continue_as_new(state: AgentState) -> bool:
    """Return True if a run with a long history may continue as new at the end of this iteration.

    It may not while the model continues a cut answer that is too long to be carried.
    """
    return is_within_payload_limit(state) and not _should_finish_answer_first(state)


def with_end_if_outgrown(state: AgentState) -> AgentState:
    """End a run that can never continue as new, long before the server terminates it for the length of its history.

    Only the plan of a goal can grow so much. `CARRIED_PARTS` bounds everything else.
    """
    if is_within_payload_limit(state):
        return state
    detail = f"the run cannot continue as new, its state is over the limit of {MAX_CARRIED_BYTES} bytes of JSON"
    parts = oversized_parts_text(state)
    return state.with_control(stop=Stop("error", f"{detail}: {parts}" if parts else detail))


def _should_finish_answer_first(state: AgentState) -> bool:
    """Return True if a carried answer would be cut, a few more replies can finish it, and nobody holds up the run."""
    is_surely_short = len(state.partial) <= OUTPUT_BYTES // MAX_JSON_GROWTH
    if is_surely_short or state.questions or state.paused or state.repairs > MAX_REPAIRS_IN_A_ROW:
        return False
    return len(continue_as_new_state(state, "").partial) < len(state.partial)
