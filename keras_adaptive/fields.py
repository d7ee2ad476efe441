"""Conditions on values that may come from anywhere, such as the fields of a file or of a request."""

from collections.abc import Callable
from typing import Any, NamedTuple

MOST = 2**53  # larger whole numbers are not exact in JSON


class Field(NamedTuple):
    """A condition, and the value of a field that is missing.

    Args:
        expected: Description of the condition, which follows "must be" in a message.
        holds: Function that returns whether a value satisfies the condition.
        default: Value where the field is missing; by default the field is required.
    """

    expected: str
    holds: Callable[[Any], Any]
    default: Any = ...


def whole(least: int, most: int | None = None, default: Any = ...) -> Field:
    """Returns the field of a whole number. Without `most` it is at most 2⁵³, the largest that JSON holds exactly."""
    limits = f"of at least {least:,}" if most is None else f"from {least:,} to {most:,}"
    holds = lambda value: type(value) is int and least <= value <= (most or MOST)  # noqa: E731
    return Field(f"a whole number {limits}", holds, default)


def number(least: float, most: float, default: Any = ...) -> Field:
    """Returns the field of a number."""
    is_number = lambda value: isinstance(value, (int, float)) and not isinstance(value, bool)  # noqa: E731
    holds = lambda value: is_number(value) and least <= value <= most  # noqa: E731
    return Field(f"a number from {least:,} to {most:,}", holds, default)


def one_of(*values: str) -> Field:
    """Returns the field of one of several strings."""
    return Field(f"one of {', '.join(values)}", lambda value: isinstance(value, str) and value in values)


def or_null(field: Field) -> Field:
    """Returns the field whose value may be missing or null."""
    return Field(f"{field.expected}, or null", lambda value: value is None or field.holds(value), None)


TEXT = Field("a string", lambda value: isinstance(value, str))
