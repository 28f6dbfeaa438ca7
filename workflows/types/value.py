"""Values of workflow code that no history knows: named tuples, made in a tenth of the time.

Each run's sandbox makes the classes of `decisions` and `phases` anew. For a `NamedTuple` Python compiles a function and
checks each name and type; these are checked already, by strict types and in the worker's own process.
"""

from _collections import _tuplegetter  # pyright: ignore
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from typing import NamedTuple as Value
else:

    class Value(tuple):
        """A named tuple: fields by annotation, their defaults, `_replace`. Values of one are no base of others."""

        __slots__ = ()
        _fields: ClassVar[tuple[str, ...]] = ()
        _field_defaults: ClassVar[dict[str, Any]] = {}

        def __init_subclass__(cls) -> None:
            """Read the fields off the annotations."""
            held = vars(cls)
            cls._fields = cls.__match_args__ = tuple(held.get("__annotations__", ()))
            cls._field_defaults = {name: held[name] for name in cls._fields if name in held}
            for place, name in enumerate(cls._fields):
                setattr(cls, name, _tuplegetter(place, ""))

        def __new__(cls, *given: Any, **named: Any) -> "Value":
            """Take fields by place, then by name, then their defaults.

            Raises:
                TypeError: A field is missing, there is no such field, or it is given twice.
            """
            fields, defaults = cls._fields, cls._field_defaults
            if len(given) == len(fields) and not named:
                return tuple.__new__(cls, given)
            rest = fields[len(given) :]
            try:
                made = given + tuple(named.pop(name) if name in named else defaults[name] for name in rest)
            except KeyError as error:
                raise TypeError(f"{cls.__name__}() misses {error.args[0]!r}") from None
            if named or len(made) != len(fields):
                raise TypeError(f"{cls.__name__}() takes {', '.join(fields)}, each once")
            return tuple.__new__(cls, made)

        def _replace(self, **changes: Any) -> "Value":
            """Return the same with these changes."""
            return type(self)(**dict(zip(self._fields, self, strict=True)) | changes)

        def __repr__(self) -> str:
            told = ", ".join(f"{name}={value!r}" for name, value in zip(self._fields, self, strict=True))
            return f"{type(self).__name__}({told})"

        def __getnewargs__(self) -> tuple[Any, ...]:
            return tuple(self)
