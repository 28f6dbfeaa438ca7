"""The two kinds of value: records in a history, and input from people, which is checked when it arrives.

The size of an input is checked before its keys. A history has to hold whatever a starter sends, even under an unknown
key, and it has to stay readable. Each problem names the path to its key.
"""

from collections.abc import Iterable, Mapping, Set, Sized
from math import inf, isfinite
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, TypeGuard, TypeVar, Union, cast, get_args, get_origin

from pydantic import BaseModel, ConfigDict, ValidationError, ValidationInfo, field_validator
from pydantic_core import ErrorDetails

from orga.workflows.types.text import cut_line, meant_key_hint, printable_text

M = TypeVar("M", bound=BaseModel)


class Record(BaseModel):
    """A frozen value. New fields have a default and unknown ones are ignored, so that any version's history decodes."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class CheckedInput(BaseModel):
    """Input from people (a run's input, `orga.toml`). Frozen. It refuses NaN, infinity, `true` in place of a number,
    and a number in place of `true`.

    Calling the class, or `model_validate(..., extra="forbid")`, refuses an unknown key. An unknown key that is read
    back from a history belongs to another version and is ignored.
    """

    model_config = ConfigDict(frozen=True, extra="ignore", allow_inf_nan=False)

    if not TYPE_CHECKING:  # for type checkers the fields are the signature

        def __init__(self, /, **given: Any) -> None:
            """Check input that is written in code. An unknown key at any depth raises `InvalidInput`."""
            try:
                self.__pydantic_validator__.validate_python(given, self_instance=self, extra="forbid")
            except ValidationError as error:
                if not any(details["type"] == "extra_forbidden" for details in error.errors(include_url=False)):
                    raise
                raise InvalidInput(*validation_problems(error, type(self))) from None

        __init__.__pydantic_base_init__ = True  # otherwise pydantic also calls it when it reads a history

    @field_validator("*", mode="before")
    @classmethod
    def _refuse_other_kind(cls, value: Any, info: ValidationInfo) -> Any:
        """Refuse true for a number and a number for true. Pydantic would convert them: a limit of `true` to 1."""
        annotation = cls.model_fields[info.field_name or ""].annotation
        if _is_bool_within(value) and _is_numeric(annotation):
            raise ValueError("must be a number, not true or false")
        if annotation is bool and isinstance(value, int | float) and not isinstance(value, bool):
            raise ValueError("must be true or false, not a number")
        return value


class UnreadablePayload:
    """Replaces a payload that cannot be decoded."""

    def __str__(self) -> str:
        return "[unreadable]"  # the same in every process, since it may become part of a conversation


def replace_fields(record: M, changes: Mapping[str, object], fields: Set[str] | None = None) -> M:
    """Return the record with these changes. Only a record's own typed methods call it, because it checks no types.

    Raise TypeError if a change is not in `fields`. None means all fields of the record.
    """
    known = type(record).__pydantic_fields__.keys() if fields is None else fields
    if not changes.keys() <= known:
        raise TypeError(f"{type(record).__name__} has no such field here: {', '.join(sorted(changes.keys() - known))}")
    return record.model_copy(update=changes)


def replace_differing_fields(record: M, changes: Mapping[str, object]) -> M:
    """Return the record with the changes that differ from it. Fields at their default stay unset, to save history."""
    differences = {name: value for name, value in changes.items() if getattr(record, name, ...) != value}
    return replace_fields(record, differences) if differences else record


def annotation_at(model: type[BaseModel], path: tuple[str, ...]) -> Any:
    """Return the type of the key at `path`, or None if there is no such key."""
    annotation: Any = model
    for key in path:
        types_below = [_type_below(kind, key) for kind in kinds_of(annotation)]
        annotation = next((each for each in types_below if each is not None), None)
    return annotation


def known_keys(model: type[BaseModel], path: tuple[str, ...]) -> list[str]:
    """Return the keys that the table at `path` can hold. Empty if it takes any name."""
    return [key for kind in kinds_of(annotation_at(model, path)) if is_model(kind) for key in kind.model_fields]


def kinds_of(annotation: Any) -> tuple[Any, ...]:
    """Return the members of a union, or the type alone, without what `Annotated` adds."""
    if get_origin(annotation) is Annotated:
        return kinds_of(get_args(annotation)[0])
    if get_origin(annotation) in {Union, UnionType}:
        return tuple(kind for part in get_args(annotation) for kind in kinds_of(part))
    return (annotation,)


def is_model(kind: Any) -> TypeGuard[type[BaseModel]]:
    return isinstance(kind, type) and issubclass(kind, BaseModel)


def _type_below(kind: Any, key: str) -> Any:
    if is_model(kind):
        return kind.model_fields[key].annotation if key in kind.model_fields else None
    if get_origin(kind) is dict:
        return get_args(kind)[1]
    is_item = get_origin(kind) in {tuple, list} and key.isdecimal()
    return get_args(kind)[0] if is_item else None


def _is_bool_within(value: Any) -> bool:
    """Return True if the value, or one of its items, is true or false."""
    if isinstance(value, dict):
        return any(isinstance(item, bool) for item in cast("dict[str, Any]", value).values())
    if isinstance(value, (list, tuple)):
        return any(isinstance(item, bool) for item in cast("list[Any]", value))
    return isinstance(value, bool)


def _is_numeric(annotation: object) -> bool:
    """Return True if a field, or each of its items, takes only numbers."""
    kinds = [kind for kind in kinds_of(annotation) if kind is not NoneType]
    return bool(kinds) and all(map(_is_numeric_kind, kinds))


def _is_numeric_kind(kind: Any) -> bool:
    if get_origin(kind) is dict:
        return _is_numeric(get_args(kind)[1])
    if get_origin(kind) in {tuple, list}:
        return _is_numeric(get_args(kind)[0])
    return kind is int or kind is float


MAX_PROBLEMS = 20
MAX_PROBLEM_CHARS = 500

MAX_DEPTH = 60
MAX_VALUES = 50_000
"""Values of the whole input. With more, a workflow task would take longer than the server waits."""

MAX_ITEMS = 1_000

MAX_TEXT_CHARS = 1_000
"""Characters of a name or a pattern. Keys for longer texts have limits of their own."""

MAX_KEY_CHARS = 200
MAX_INTEGER = 2**63 - 1

_BOUNDED_BY_BYTES = frozenset({"task", "goal", "instructions", "trusted_context", "output_schema", "messages"})

_SHOWN_CHARS = 60


class _Container(NamedTuple):
    """A list or an object within an input."""

    path: tuple[Any, ...]
    """The keys that lead to it."""
    content: Any
    is_long: bool
    """True if its texts and lists may have any length, because the whole of it has a limit in bytes."""


def bounds_problem(given: dict[Any, Any], long: frozenset[str]) -> str:
    """Return the first problem that no run can carry, as `path: problem`, or "".

    The values of top-level keys in `long` have limits in bytes, which are checked elsewhere.
    """
    if flaw := _value_flaw(given, is_long=False):
        return f"input{flaw}"
    count = len(given)
    level = [_Container((), given, is_long=False)]
    for depth in range(MAX_DEPTH + 1):
        inner: list[_Container] = []
        for container in level:
            for key, value in _indexed_items(container.content):
                if _is_unproblematic(value):
                    continue
                path, is_long = (*container.path, key), container.is_long or (depth == 0 and key in long)
                if flaw := _value_flaw(value, is_long=is_long):
                    return f"{_path_text(path)}{flaw}"
                if isinstance(value, (dict, list, tuple)):
                    inner.append(_Container(path, value, is_long))
                    count += len(cast("Sized", value))
            if count > MAX_VALUES:
                return f"input: has more than {MAX_VALUES:,} values"
        level = inner
    return f"{_path_text(level[0].path)}: is nested deeper than {MAX_DEPTH} levels" if level else ""


def _is_unproblematic(value: Any) -> bool:
    """Return True if a value needs no closer check. This is fast, and true for most values."""
    if isinstance(value, str):
        return len(value) <= MAX_TEXT_CHARS and value.isascii()
    return value is None or (isinstance(value, int) and -MAX_INTEGER <= value <= MAX_INTEGER)


def _value_flaw(value: Any, *, is_long: bool) -> str:
    """Return the problem of a value or of one of its keys, as it follows the value's path, or ""."""
    if isinstance(value, str):
        return _text_flaw(value, inf if is_long else MAX_TEXT_CHARS)
    if isinstance(value, float):
        return "" if isfinite(value) else ": must be a finite number"
    if isinstance(value, int):
        return "" if abs(value) <= MAX_INTEGER else f": must not be larger than {MAX_INTEGER}"
    if isinstance(value, (dict, list, tuple)):
        return _container_flaw(value, MAX_VALUES if is_long else MAX_ITEMS)
    return ""


def _container_flaw(container: Any, most: int) -> str:
    if len(container) > most:
        return f": must not have more than {most:,} entries"
    keys = cast("dict[Any, Any]", container) if isinstance(container, dict) else dict[Any, Any]()
    return next(filter(None, (_key_flaw(key) for key in keys)), "")


def _key_flaw(key: object) -> str:
    text = str(key)
    if len(text) <= MAX_KEY_CHARS and text.isascii():
        return ""
    flaw = _text_flaw(text, MAX_KEY_CHARS)
    return f".{_shown_key(key)}: this key{flaw[1:]}" if flaw else ""


def _text_flaw(text: str, most: float) -> str:
    if len(text) > most:
        return f": must not be longer than {most:,} characters"
    try:
        text.encode()
    except UnicodeEncodeError:
        return ": must be valid Unicode"
    return ""


def _path_text(path: tuple[Any, ...]) -> str:
    return ".".join(map(_shown_key, path))[-MAX_KEY_CHARS:]


def _indexed_items(container: Any) -> Iterable[tuple[Any, Any]]:
    if isinstance(container, dict):
        return cast("dict[Any, Any]", container).items()
    return enumerate(cast("list[Any]", container))


def _shown_key(key: object) -> str:
    return cut_line(printable_text(str(key)[: _SHOWN_CHARS + 1]), _SHOWN_CHARS)


class InvalidInput(ValueError):
    """Input that no run can start with."""

    def __init__(self, *problems: str) -> None:
        """Each problem names a key and what is wrong with it, as `key: problem`."""
        super().__init__(*problems)
        self.problems = problems

    def __str__(self) -> str:
        return "; ".join(self.problems)


def not_an_object(raw: object, example: str) -> InvalidInput:
    """Return the error for an input that is not an object, with an example of one."""
    if isinstance(raw, UnreadablePayload):
        return InvalidInput("input: it cannot be decoded; give the worker the payload codec of whoever starts runs")
    return InvalidInput(f"input: give an object such as {example}, not {type(raw).__name__}")


def check_input(kind: type[M], raw: object, *, long: frozenset[str] = _BOUNDED_BY_BYTES) -> M:
    """Return the checked input. Keys in `long` have limits of their own. Raise InvalidInput with every problem."""
    if isinstance(raw, str):
        raise InvalidInput(f"input: give an object, not the text {raw[:100]!r}")
    if isinstance(raw, dict) and (problem := bounds_problem(cast("dict[Any, Any]", raw), long)):
        raise InvalidInput(problem)
    try:
        return kind.model_validate(raw, extra="forbid")
    except ValidationError as error:
        raise InvalidInput(*validation_problems(error, kind)) from None


def validation_problems(error: ValidationError, kind: type[BaseModel] | None = None) -> list[str]:
    """Return `path: problem` for each error, and a line for those left out. With `kind`, unknown keys get a hint."""
    errors = error.errors(include_url=False, include_input=False)
    problems = [
        f"{'.'.join(map(str, details['loc'])) or 'input'}: {_problem_reason(details, kind)}"[:MAX_PROBLEM_CHARS]
        for details in errors[:MAX_PROBLEMS]
    ]
    return [*problems, f"and {len(errors) - MAX_PROBLEMS:,} more"] if len(errors) > MAX_PROBLEMS else problems


def _problem_reason(details: ErrorDetails, kind: type[BaseModel] | None) -> str:
    if details["type"] != "extra_forbidden":
        message = details["msg"].removeprefix("Value error, ")
        # people who write JSON do not know tuples
        return message.replace("valid tuple", "list").replace("Tuple", "List")
    *path, key = map(str, details["loc"])
    hint = meant_key_hint(key, known_keys(kind, tuple(path))).strip(" ;") if kind else ""
    return f"unknown key ({hint})" if hint else "unknown key"


def parse_record(kind: type[M], raw: object, *, long: frozenset[str] = frozenset()) -> M:
    """Return the checked value as `check_input` does, but raise ValueError, the type of each refusal of an update.

    The error's text is always short, because it may be the answer to an update. That answer is part of one message to
    the server, and a message that is too long would end the run.
    """
    try:
        return check_input(kind, raw, long=long)
    except InvalidInput as error:
        raise ValueError(str(error)) from None
