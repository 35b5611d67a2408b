# SPDX-License-Identifier: Apache-2.0
"""Policies: which steps of a branch live.

A policy is a value, combined by `|` (what any of them keeps) and `&` (what each
keeps). Store.set_policy() stores its text, and every save to the branch obeys
it.

>>> from ckptree import Best, EveryN, Healthy, Latest, policies
>>> policy = Latest(3) | EveryN(1000) | Best("loss", "min") & Healthy()
>>> str(policy)
'latest(3) | every(1000) | best(loss, min, 1) & healthy'
>>> policy
Latest(3) | EveryN(1000) | Best('loss', 'min') & Healthy()
>>> policies.parse("latest(3)") == Latest(3)
True
>>> losses = {10: 0.5, 20: 0.1, 30: 0.4}
>>> steps = [
...     policies.PolicyStep(n, metrics={"loss": l}) for n, l in losses.items()]
>>> (Latest(1) | Best("loss", "min")).decide(steps)
[False, True, True]
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta

from ckptree import _engine
from ckptree.arguments import (
    ANY,
    BOOL,
    COUNT,
    FUNCTION,
    INTS,
    POSITIVE,
    TEXT,
    checked,
    choice,
    either,
    integer,
    listed,
    optional,
    real,
    refuse,
)
from ckptree.hints import Any
from ckptree.policy_step import (
    SPAN,
    STEP_LIKE,
    TIME,
    TIMEDELTA,
    PolicyStep,
    as_tuples,
    microseconds,
    name_of,
    of_metrics,
    optional_seconds,
    shown_duration,
)

__all__ = [
    "All",
    "Best",
    "Budget",
    "Closest",
    "Custom",
    "Every",
    "EveryN",
    "EverySeconds",
    "Healthy",
    "KeepIf",
    "Latest",
    "Logarithmic",
    "Policy",
    "PolicyStep",
    "SpecificSteps",
    "Within",
    "parse",
]

_STEPS = {
    "steps": listed(STEP_LIKE, "a list of PolicySteps"),
    "now": optional(TIME),
}


@checked({"engine": ANY, "representation": ANY, **_STEPS})
class Policy:
    """Which steps of a branch live. Equal where the texts are.

    Functions of a policy run on the thread that saves; to call the store there
    is a StateError. Their names are stored with the policy: a program that
    lacks them removes nothing.

    >>> policy = Latest(1) | EveryN(100)
    >>> policy == parse("latest(1) | every(100)")
    True
    """

    _rank = 2  # How tight it binds: 0 is "|", 1 is "&".
    _has_function = False

    def __init__(
        self, engine: _engine.Preservation, representation: str
    ) -> None:
        self._engine = engine
        self._representation = representation

    def decide(
        self,
        steps: Iterable[PolicyStep | tuple[Any, ...]],
        now: float | datetime | None = None,
    ) -> list[bool]:
        """Which of `steps` it keeps. `now`: for Within; without it the time of
        the last step. Budget cannot be asked here: NotImplementedError.

        >>> policy.decide([PolicyStep(99), PolicyStep(100), PolicyStep(101)])
        [False, True, True]
        """
        return self._engine.decide(as_tuples(steps), optional_seconds(now))

    def explain(
        self,
        steps: Iterable[PolicyStep | tuple[Any, ...]],
        now: float | datetime | None = None,
    ) -> list[list[str]]:
        """For each step the rules that keep it.

        >>> policy.explain([(99,), (100,), (101,)])
        [[], ['every(100)'], ['latest(1)']]
        """
        return self._engine.explain(as_tuples(steps), optional_seconds(now))

    def __reduce__(self) -> Any:
        """By its text. TypeError where that names a function."""
        if self._has_function:
            raise TypeError(f"{self!r} has a function: it cannot be pickled")
        return parse, (str(self),)

    def __or__(self, other: Policy) -> Policy:
        return _combined(_engine.keep_any, " | ", 0, self, other)

    def __and__(self, other: Policy) -> Policy:
        return _combined(_engine.keep_each, " & ", 1, self, other)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Policy):
            return NotImplemented
        return str(self) == str(other)

    def __hash__(self) -> int:
        return hash(str(self))

    def __str__(self) -> str:
        return self._engine.text()

    def __repr__(self) -> str:
        return self._representation


class _Combined(Policy):
    """Some policies joined by one operator."""

    def __init__(
        self,
        engine: _engine.Preservation,
        representation: str,
        rank: int,
        parts: list[Policy],
    ) -> None:
        super().__init__(engine, representation)
        self._rank = rank
        self.parts = parts
        self._has_function = any(part._has_function for part in parts)


class All(Policy):
    """Every step.

    >>> All().decide([(1,), (2,)])
    [True, True]
    """

    def __init__(self) -> None:
        super().__init__(_engine.keep_all(), "All()")


@checked({"n": optional(COUNT)})
class Latest(Policy):
    """The last `n`; None: all.

    Parameters
    ----------
    n : int or None
        How many; None: all.

    Examples
    --------
    >>> Latest(2).decide([(1,), (2,), (3,)])
    [False, True, True]
    """

    def __init__(self, n: int | None) -> None:
        super().__init__(_engine.keep_latest(n), f"Latest({n})")


@checked({"interval": POSITIVE, "spaced": BOOL, "last": optional(COUNT)})
class EveryN(Policy):
    """Steps that `interval` divides; `spaced`: the first, and each that is at
    least `interval` after the one kept before. Of them the last `last`.

    Parameters
    ----------
    interval : int
        Between steps that are kept.
    spaced : bool
        Counts from the step kept before, not from 0.
    last : int, optional
        Only so many of them, the last.

    Examples
    --------
    >>> EveryN(10).decide([(7,), (10,), (18,), (20,)])
    [False, True, False, True]
    >>> EveryN(10, spaced=True).decide([(7,), (10,), (18,), (20,)])
    [True, False, True, False]
    """

    def __init__(
        self, interval: int, *, spaced: bool = False, last: int | None = None
    ) -> None:
        super().__init__(
            _engine.keep_every_n(interval, spaced, last),
            _call(
                "EveryN", interval, spaced=(spaced, False), last=(last, None)
            ),
        )


@checked({"interval": POSITIVE, "last": optional(COUNT)})
class Closest(Policy):
    """For each multiple of `interval` the nearest step, and the last one. Of
    them the last `last`.

    Parameters
    ----------
    interval : int
        Whose multiples are meant.
    last : int, optional
        Only so many of them, the last.

    Examples
    --------
    >>> Closest(10).decide([(9,), (14,), (19,), (23,)])
    [True, False, True, True]
    """

    def __init__(self, interval: int, *, last: int | None = None) -> None:
        super().__init__(
            _engine.keep_closest(interval, last),
            _call("Closest", interval, last=(last, None)),
        )


@checked({"interval": TIMEDELTA})
class Every(Policy):
    """The first, and each saved at least `interval` after the one kept before.

    Parameters
    ----------
    interval : datetime.timedelta
        Between the times of the saves.

    Examples
    --------
    >>> from datetime import timedelta
    >>> str(Every(timedelta(hours=3)))
    'every(3h)'
    """

    def __init__(self, interval: timedelta) -> None:
        super().__init__(
            _engine.keep_every(microseconds(interval)),
            f"Every({shown_duration(interval)})",
        )


@checked({"seconds": real(low=-1e10, high=1e10)})
class EverySeconds(Every):
    """As Every, of seconds.

    Parameters
    ----------
    seconds : float
        Between the times of the saves.

    Examples
    --------
    >>> EverySeconds(60).decide([(1, 0.0), (2, 30.0), (3, 60.0)])
    [True, False, True]
    """

    def __init__(self, seconds: float) -> None:
        super().__init__(timedelta(seconds=seconds))
        self._representation = f"EverySeconds({seconds!r})"


@checked({"age": SPAN})
class Within(Policy):
    """The first that is at most `age` old, and all after it.

    Parameters
    ----------
    age : datetime.timedelta
        By the time of the save.

    Examples
    --------
    >>> Within(timedelta(hours=1)).decide([(1, 0), (2, 3600)], now=5000)
    [False, True]
    """

    def __init__(self, age: timedelta) -> None:
        super().__init__(
            _engine.keep_within(microseconds(age)),
            f"Within({shown_duration(age)})",
        )


@checked({"steps": INTS})
class SpecificSteps(Policy):
    """These steps.

    Parameters
    ----------
    steps : list of int
        Their numbers.

    Examples
    --------
    >>> SpecificSteps([1, 3]).decide([(1,), (2,), (3,)])
    [True, False, True]
    """

    def __init__(self, steps: Iterable[int]) -> None:
        numbers = list(steps)
        super().__init__(
            _engine.keep_steps(numbers), f"SpecificSteps({numbers})"
        )


@checked(
    {
        "metric": either(TEXT, FUNCTION),
        "mode": choice("min", "max"),
        "n": optional(COUNT),
        "unmeasured": choice("keep", "drop"),
    }
)
class Best(Policy):
    """The `n` best (None: all) by a metric, or by a function of a step's
    metrics: the smallest where `mode` is "min", the largest where it is "max".
    Of equal values the later step is the better one; NaN counts as no value.
    Steps without a value are kept as well, unless unmeasured="drop".

    Parameters
    ----------
    metric : str or callable
        Its name; or a function of the metrics of a step, which may return
        None.
    mode : "min" or "max"
        Which values are the best ones.
    n : int, optional
        How many; None: all.
    unmeasured : "keep" or "drop"
        What becomes of steps without a value.

    Examples
    --------
    >>> Best("accuracy", mode="max", n=2).decide(
    ...     [(step, 0, {"accuracy": step % 3}) for step in range(5)])
    [False, False, True, False, True]
    >>> str(Best(lambda metrics: metrics["loss"] + metrics["cost"], "min"))
    'best("<lambda>"(), min, 1)'
    """

    def __init__(
        self,
        metric: str | Callable[[dict[str, float]], float | None],
        mode: str,
        *,
        n: int | None = 1,
        unmeasured: str = "keep",
    ) -> None:
        function = None if isinstance(metric, str) else metric
        name = metric if isinstance(metric, str) else name_of(metric)
        super().__init__(
            _engine.keep_best(
                name, of_metrics(function), mode, n, unmeasured == "keep"
            ),
            _call(
                "Best",
                metric if function is None else _Bare(name),
                mode,
                n=(n, 1),
                unmeasured=(unmeasured, "keep"),
            ),
        )
        self._has_function = function is not None


@checked({"n": optional(COUNT)})
class Healthy(Policy):
    """The last `n` steps without NaN and Inf in arrays and metrics, and without
    lost leaves; single numbers are not looked at. Without `n` the last one, but
    joined by `&` every one. A step that was saved with statistics=False is
    none of them, and a store that is opened so refuses the policy.

    Parameters
    ----------
    n : int, optional
        How many, of the last.

    Examples
    --------
    >>> Healthy().decide([(1,), (2,), (3, 0, {}, False)])
    [False, True, False]
    """

    def __init__(self, n: int | None = None) -> None:
        super().__init__(
            _engine.keep_healthy(n),
            "Healthy()" if n is None else f"Healthy({n})",
        )


@checked({"n": POSITIVE})
class Logarithmic(Policy):
    """Dense near now, sparse long ago: about `n` for each doubling of the
    distance to the last step.

    Parameters
    ----------
    n : int
        How many for each doubling.

    Examples
    --------
    >>> kept = Logarithmic(2).decide([(step,) for step in range(100)])
    >>> 5 < sum(kept) < 20 and kept[-1]
    True
    """

    def __init__(self, n: int = 8) -> None:
        super().__init__(_engine.keep_logarithmic(n), f"Logarithmic({n})")


_UNITS = "B, kB, KB, MB, GB, TB, KiB, MiB, GiB, TiB"
# Not compiled before it is asked for: that takes a part of the import.
_SIZE = rf"(\d+)\s*({_UNITS.replace(', ', '|')})?"


@checked({"size": either(TEXT, integer(low=0, high=2**64 - 1))})
class Budget(Policy):
    """The newest that fit into so many bytes, at least one; what steps share
    counts once.

    Parameters
    ----------
    size : str or int
        Bytes, or a text such as "20GB" or "16 GiB".

    Examples
    --------
    >>> Budget("20GB") == Budget(20_000_000_000)
    True
    """

    def __init__(self, size: str | int) -> None:
        if isinstance(size, str):
            found = re.fullmatch(_SIZE, size.strip(), re.ASCII)
            if found is None:
                what = f"bytes, or a text of a number and one of {_UNITS}"
                raise refuse("size", size, what)
            size = "".join(found.groups(""))
        super().__init__(
            _engine.keep_budget_of(size)
            if isinstance(size, str)
            else _engine.keep_budget(size),
            f"Budget({size!r})",
        )


@checked({"function": FUNCTION})
class KeepIf(Policy):
    """Steps of which a function says so.

    Parameters
    ----------
    function : callable
        Called with a PolicyStep; true: it is kept.

    Examples
    --------
    >>> def is_round(step): return step.step % 100 == 0
    >>> KeepIf(is_round).decide([(99,), (100,)])
    [False, True]
    >>> str(KeepIf(is_round))
    'keep_if(is_round)'
    """

    _has_function = True

    def __init__(self, function: Callable[[PolicyStep], bool]) -> None:
        name = name_of(function)
        super().__init__(
            _engine.keep_if(name, lambda *step: function(PolicyStep(*step))),
            f"KeepIf({name})",
        )


@checked({"function": FUNCTION})
class Custom(Policy):
    """A function of all steps, in their order, that says of each whether it is
    kept.

    Parameters
    ----------
    function : callable
        Called with a list of PolicySteps; returns a bool for each.

    Examples
    --------
    >>> def odd_ones(steps): return [s.step % 2 == 1 for s in steps]
    >>> Custom(odd_ones).decide([(1,), (2,), (3,)])
    [True, False, True]
    """

    _has_function = True

    def __init__(
        self, function: Callable[[list[PolicyStep]], Iterable[bool]]
    ) -> None:
        name = name_of(function)
        super().__init__(
            _engine.keep_custom(
                name, lambda steps: function([PolicyStep(*s) for s in steps])
            ),
            f"Custom({name})",
        )


@checked({"text": TEXT})
def parse(text: str) -> Policy:
    """The policy of that text. ValueError says where it makes no sense.

    >>> parse("latest(3) | every(1h)")
    parse('latest(3) | every(1h)')
    """
    engine = _engine.parse_policy(text)
    return Policy(engine, f"parse({engine.text()!r})")


class _Bare:
    """What is shown without quotes."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return self.text


def _combined(
    engine: Callable[[list[_engine.Preservation]], _engine.Preservation],
    operator: str,
    rank: int,
    *policies: Policy,
) -> Policy:
    # One list of all, as the text has it.
    parts: list[Policy] = []
    for policy in policies:
        if not isinstance(policy, Policy):
            raise TypeError(f"pass a policy, not {policy!r}")
        if isinstance(policy, _Combined) and policy._rank == rank:
            parts += policy.parts
        else:
            parts.append(policy)
    shown = [repr(p) if p._rank > rank else f"({p!r})" for p in parts]
    return _Combined(
        engine([p._engine for p in parts]), operator.join(shown), rank, parts
    )


def _call(name: str, *arguments: Any, **options: tuple[Any, Any]) -> str:
    """The call, without the options that are as by default."""
    shown = [repr(argument) for argument in arguments]
    shown += [
        f"{k}={v!r}" for k, (v, default) in options.items() if v != default
    ]
    return f"{name}({', '.join(shown)})"
