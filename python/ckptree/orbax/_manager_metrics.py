# SPDX-License-Identifier: Apache-2.0
"""The metrics of a manager's steps, as they were given."""

from __future__ import annotations

import copy
import json
import logging
from typing import TYPE_CHECKING, Any, Mapping

from ckptree.orbax import _items
from ckptree.orbax._document_handlers import json_item
from ckptree.orbax._manager_arguments import ordered_metrics, plain_metrics

if TYPE_CHECKING:
    from ckptree.orbax._items import Item
    from ckptree.orbax._manager_options import CheckpointManagerOptions
    from ckptree.step import Step
    from ckptree.store import Store

_log = logging.getLogger("ckptree.orbax")


class StepMetrics:
    """Knows the metrics of steps: functions of them are asked while a commit is
    made, and must not read the store then."""

    def __init__(self, options: CheckpointManagerOptions) -> None:
        self._options = options
        self._known: dict[int, Any] = {}
        self._read: dict[int, Any] = {}  # By read(), as they are stored.
        self._learned = False

    def checked(self, step: int, metrics: Any) -> Any:
        """As put() wants them. Raises what best_fn raises."""
        if metrics is None:
            if self._options.best_fn is not None:
                _log.warning("save(%d): no metrics, which best_fn wants", step)
            return None
        try:
            metrics = plain_metrics(metrics)
            json_item(metrics)
        except (TypeError, ValueError):
            if not self._options.prevent_write_metrics:
                raise  # Else they are known to this process only.
        if self._options.best_fn is not None:
            self._options.best_fn(metrics)
        return metrics

    def put(
        self, step: int, items: dict[str, Item], metrics: Any
    ) -> dict[str, float]:
        """Makes an item of what checked() returns; returns those that the store
        can order by."""
        self._read.pop(step, None)
        if metrics is None:
            return {}
        self._known[step] = metrics
        try:
            items[_items.METRICS] = json_item(metrics)
        except (TypeError, ValueError):
            return {}
        return ordered_metrics(metrics)

    def told(self, metrics: Any) -> Any:
        """What other processes can be told of them; None: nothing."""
        try:
            return json.loads(json.dumps(metrics))
        except (TypeError, ValueError):
            return None

    def learn(self, store: Store) -> None:
        """Reads those of all steps, where somebody may ask for them."""
        given = self._options
        if self._learned or (
            given.best_fn is None and given.preservation_policy is None
        ):
            return
        self._learned = True  # Those that follow are saved by this manager.
        for info in store.steps():
            if info.step not in self._known:
                self._known[info.step] = stored_metrics(store[info.step])

    def read(self, store: Store, step: int) -> Any:
        """Those of a step that is there; reads them once."""
        if step not in self._read:
            self._read[step] = stored_metrics(store[step])
        return copy.deepcopy(self._read[step])

    def of(self, step: int, stored: Mapping[str, float]) -> Any:
        """Those that are known; else what the step's record has of them."""
        if step not in self._known:
            self._known[step] = dict(stored) or None
        return self._known[step]

    def given(self, step: int) -> Any:
        """Those of a save that is on its way; None: there are none."""
        return self._known.get(step)

    def forget(self) -> None:
        """Another process may have saved others."""
        self._known.clear()
        self._read.clear()
        self._learned = False


def stored_metrics(step: Step) -> Any:
    """None: there are none."""
    try:
        item = _items.stored(step, _items.METRICS, "")
    except KeyError:
        return None
    return item.document()
