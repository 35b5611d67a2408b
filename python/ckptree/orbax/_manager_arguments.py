# SPDX-License-Identifier: Apache-2.0
"""The arguments of a manager: items, their handlers, and which it has."""

from __future__ import annotations

import contextlib
import numbers
from typing import Any, Mapping

from ckptree.orbax import _items
from ckptree.orbax._handler import CheckpointHandler, arguments, shown_type
from ckptree.orbax._registry import (
    DefaultCheckpointHandlerRegistry,
    HandlerTable,
)
from ckptree.orbax.args import Composite
from ckptree.orbax.checkpoint_args import CheckpointArgs
from ckptree.orbax.checkpointers import Checkpointer

_MAX_METRICS = 16  # Of a step, by name.
_MAX_METRIC_NAME = 128  # Bytes.


class ManagerItems:
    """The items of a manager. `single`: it has one without a name; None: the
    first use will say."""

    def __init__(
        self,
        checkpointers: Any,
        item_names: Any,
        item_handlers: Any,
        registry: DefaultCheckpointHandlerRegistry | None,
    ) -> None:
        self.single: bool | None = None
        # Those that may be saved; None: any.
        self._names: set[str] | None = None
        if checkpointers is not None and (
            item_names is not None
            or item_handlers is not None
            or registry is not None
        ):
            raise ValueError(
                "checkpointers go without item_names, item_handlers and "
                "handler_registry"
            )
        if registry is not None and (
            item_names is not None or item_handlers is not None
        ):
            raise ValueError(
                "handler_registry goes without item_names and item_handlers"
            )
        handlers = self._handlers(checkpointers, item_names, item_handlers)
        if self.single is False:
            self._names = {*(item_names or ()), *handlers, _items.METRICS}
        self.table = HandlerTable(registry, handlers)

    def _handlers(
        self, checkpointers: Any, item_names: Any, item_handlers: Any
    ) -> dict[str, CheckpointHandler]:
        if isinstance(checkpointers, Checkpointer):
            self.single = True
            return {_items.DEFAULT: checkpointers.handler}
        if checkpointers is not None:
            _check_all(checkpointers, Checkpointer, "checkpointers")
            self.single = False
            return {name: c.handler for name, c in checkpointers.items()}
        if isinstance(item_handlers, CheckpointHandler):
            if item_names is not None:
                raise ValueError(
                    "item_names go with handlers by item, not with one"
                )
            self.single = True
            return {_items.DEFAULT: item_handlers}
        if item_handlers is not None:
            _check_all(item_handlers, CheckpointHandler, "item_handlers")
        if item_names is not None or item_handlers is not None:
            self.single = False
        return dict(item_handlers or {})

    def see(self, names: list[str]) -> None:
        """What a step has says it, where nothing did."""
        if self.single is None:
            self.single = _items.DEFAULT in names

    def of_call(
        self, items: Any, options: Any, args: Any, which: int
    ) -> Composite | None:
        """The arguments of a save (`which` 0) or restore (1), by item; None:
        there are none. ValueError: they do not go together."""
        if isinstance(items, CheckpointArgs):
            raise ValueError("CheckpointArgs are passed as args=, not as items")
        if args is None:
            if items is None and options is None:
                return None
            return self._checked(self._of_items(items, options, which), which)
        if not isinstance(args, CheckpointArgs):
            raise ValueError(
                "args are CheckpointArgs, such as args.StandardSave(...), not "
                f"{shown_type(args)}"
            )
        return self._checked(self._composite(args), which)

    def _checked(self, made: Composite, which: int) -> Composite:
        """ValueError: an item that is to be saved was not among those that
        the manager was made for."""
        for name in made if which == 0 and self._names is not None else ():
            if name not in (self._names or ()):
                raise ValueError(
                    f"item {name!r} does not match with any registered "
                    "handler! The manager was made for the items "
                    f"{', '.join(sorted(self._names or ()))}"
                )
        return made

    def _of_items(self, items: Any, options: Any, which: int) -> Composite:
        """Of objects, and what else their handlers take."""
        given = {_items.DEFAULT: (items, options or {})}
        if not self.single:
            given = {
                name: (item, (options or {}).get(name) or {})
                for name, item in (items or {}).items()
            }
        made: dict[str, Any] = {}
        for name, (item, others) in given.items():
            handler = self.table.known(name)
            if handler is None:
                raise ValueError(
                    f"item {name!r} has no handler: pass args=, or "
                    "checkpointers when the manager is made"
                )
            made[name] = arguments(handler, which, (item,), dict(others))
        return Composite(**made)

    def _composite(self, args: CheckpointArgs) -> Composite:
        if self.single is None:
            self.single = not isinstance(args, Composite)
        if isinstance(args, Composite):
            if self.single:
                raise ValueError(
                    "Cannot provide `args` of type `Composite` when dealing "
                    "with a single, unnamed (default) checkpointable object."
                )
            return args
        if not self.single:
            raise ValueError(
                "Must provide `args` of type `Composite` when dealing with "
                "multiple checkpointable objects."
            )
        return Composite(**{_items.DEFAULT: args})


def _check_all(given: Any, cls: type, what: str) -> None:
    """ValueError: it is no dict of such, or has some of Orbax's own."""
    wrong = [given]
    if isinstance(given, Mapping):
        wrong = [
            value
            for value in given.values()
            if not (isinstance(value, cls) or hasattr(value, "restore"))
            or type(value).__module__.startswith("orbax.")
        ]
    if wrong:
        raise ValueError(
            f"{what}: a {cls.__name__}, or a dict of such by item, not "
            f"{shown_type(wrong[0])}"
        )


def step_number(step: Any) -> int:
    """TypeError: it is no int."""
    if isinstance(step, bool) or not hasattr(step, "__index__"):
        raise TypeError(f"a step is an int, not {step!r}")
    return int(step.__index__())


def plain_metrics(metrics: Any) -> Any:
    """For JSON: numbers of NumPy and JAX as Python's. TypeError; ValueError:
    JSON has one name for two keys."""
    if isinstance(metrics, Mapping):
        names: dict[str, Any] = {}
        for key in metrics:
            other = names.setdefault(str(key), key)
            if other is not key:
                raise ValueError(
                    f"metrics: the keys {other!r} and {key!r} are both "
                    f"{str(key)!r} in JSON: rename one"
                )
        return {
            str(key): plain_metrics(value) for key, value in metrics.items()
        }
    if isinstance(metrics, (list, tuple)):
        return [plain_metrics(value) for value in metrics]
    if metrics is None or isinstance(metrics, (bool, int, float, str)):
        return metrics
    if isinstance(metrics, numbers.Number) or hasattr(metrics, "item"):
        plain: Any = metrics
        return (
            plain.item() if getattr(metrics, "size", 1) == 1 else plain.tolist()
        )
    raise TypeError(f"metrics: JSON cannot write a {type(metrics).__name__}")


def ordered_metrics(plain: Any) -> dict[str, float]:
    """Those that the store can order steps by; all are in an item."""
    if not isinstance(plain, dict):
        return {}
    numeric: dict[str, float] = {}
    for name, value in plain.items():
        if not isinstance(value, (int, float)) or len(numeric) == _MAX_METRICS:
            continue
        # No int of very many digits, and no name with half of a character.
        with contextlib.suppress(OverflowError, UnicodeEncodeError):
            if 0 < len(name.encode()) <= _MAX_METRIC_NAME:
                numeric[name] = float(value)
    return numeric


def listed_steps(steps: Any) -> list[int]:
    """ValueError: they cannot be listed."""
    try:
        return sorted(steps or ())
    except TypeError:
        raise ValueError(
            "save_on_steps: a list or set of steps; for anything else use "
            "should_save_fn"
        ) from None
