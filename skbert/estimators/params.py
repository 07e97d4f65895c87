"""Rules for constructor parameters, checked at the start of ``fit``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from numbers import Integral, Real
from typing import Any, NamedTuple


class Rule(NamedTuple):
    """A condition on a value, and the same in words that follow "must be"."""

    accepts: Callable[[Any], bool]
    wanted: str

    def __or__(self, other: Rule) -> Rule:
        return Rule(
            lambda value: self.accepts(value) or other.accepts(value),
            f"{self.wanted} or {other.wanted}",
        )


def option(*values: str | None) -> Rule:
    """One of some strings, or None."""

    def accepts(value: Any) -> bool:
        return (value is None or isinstance(value, str)) and value in values

    shown = [repr(value) for value in values]
    wanted = shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} or {shown[-1]}"
    return Rule(accepts, wanted)


def integer(low: int | None = None) -> Rule:
    """An integer, not a bool, of at least ``low``."""
    bound = "" if low is None else f" of at least {low}"

    def accepts(value: Any) -> bool:
        is_int = isinstance(value, Integral) and not isinstance(value, bool)
        return is_int and (low is None or value >= low)

    return Rule(accepts, f"an int{bound}")


def boolean() -> Rule:
    """True or False."""
    return Rule(lambda value: isinstance(value, bool) or _is_numpy_bool(value), "a bool")


def a(kind: type | tuple[type, ...], wanted: str) -> Rule:
    """An instance of some types."""
    return Rule(lambda value: isinstance(value, kind), wanted)


def real(low: float, high: float | None = None) -> Rule:
    """A number that is not a bool, from ``low`` to ``high``."""
    bound = f"of at least {low}" if high is None else f"from {low} to {high}"

    def accepts(value: Any) -> bool:
        is_real = isinstance(value, Real) and not isinstance(value, bool)
        return bool(is_real and value >= low and (high is None or value <= high))

    return Rule(accepts, f"a number {bound}")


def sequence_of_ints(*, empty: bool = False, low: int | None = None) -> Rule:
    """A list or tuple of integers of at least ``low``, at least one unless ``empty``."""

    def accepts(value: Any) -> bool:
        return (
            isinstance(value, list | tuple)
            and (empty or len(value) > 0)
            and all(integer(low).accepts(item) for item in value)
        )

    bound = "" if low is None else f" of at least {low}"
    return Rule(accepts, f"a list of ints{bound}")


def check_params(estimator: Any, rules: Mapping[str, Rule]) -> None:
    """Raise for the first parameter that breaks its rule.

    Raises
    ------
    ValueError
        In scikit-learn's words: which parameter of whom, what was wanted, what came.
    """
    for name, rule in rules.items():
        value = getattr(estimator, name)
        if not rule.accepts(value):
            raise ValueError(
                f"The {name!r} parameter of {type(estimator).__name__} must be "
                f"{rule.wanted}. Got {value!r} instead."
            )


def _is_numpy_bool(value: Any) -> bool:
    return type(value).__name__ in {"bool", "bool_"} and hasattr(value, "dtype")
