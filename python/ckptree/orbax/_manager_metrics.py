# SPDX-License-Identifier: Apache-2.0
"""The metrics of a manager's steps, as they were given."""

from __future__ import annotations

import contextlib
import copy
import json
import logging
import math
import weakref
from typing import TYPE_CHECKING, Any, Iterator, Mapping, NamedTuple

import numpy as np

from ckptree.orbax import _items
from ckptree.orbax._document_handlers import json_item
from ckptree.orbax._manager_arguments import ordered_metrics, plain_metrics
from ckptree.unmeasured import text_of_nan

if TYPE_CHECKING:
    from ckptree.handle import SaveHandle
    from ckptree.orbax._items import Item
    from ckptree.orbax._manager_options import CheckpointManagerOptions
    from ckptree.records import StepInfo
    from ckptree.sharing import Shared
    from ckptree.step import Step
    from ckptree.store import Store

_log = logging.getLogger("ckptree.orbax")


class _Known(NamedTuple):
    """The metrics of a step. `version`: which one of that number it is; None:
    one that this process saves, and has not looked at since. `stored`: what its
    record has of them, which tells it from another one of its number."""

    version: int | None
    metrics: Any
    stored: Mapping[str, float]
    save: SaveHandle | None = None  # Of one that is not looked at.
    before: _Known | None = None  # Which that save replaces, unless it fails.

    def failed(self) -> bool:
        return self.save is not None and self.save.progress().phase == "failed"

    def succeeded(self) -> bool:
        return self.save is not None and self.save.progress().phase == "done"

    def is_of(self, stored: Mapping[str, float]) -> bool:
        return self.stored.keys() == stored.keys() and all(
            value == stored[name]
            or (math.isnan(value) and math.isnan(stored[name]))
            for name, value in self.stored.items()
        )


class _Knowledge:
    """Of the steps of a store, shared by all managers that this process has of
    it: the policy of one is asked when another one saves."""

    def __init__(self) -> None:
        self.steps: dict[int, _Known] = {}
        # Saves that were begun and that failed, when it was last complete.
        self.seen: tuple[int, int] | None = None

    def of(self, step: int) -> Iterator[_Known]:
        """Those that the step may have, the latest first: a save that is on its
        way may fail yet."""
        known = self.steps.get(step)
        while known is not None:
            if not known.failed():
                yield known
            known = known.before


_of_engines: weakref.WeakKeyDictionary[Shared, _Knowledge] = (
    weakref.WeakKeyDictionary()
)


class StepMetrics:
    """Knows the metrics of steps: functions of them are asked while a commit is
    made, and must not read the store then."""

    def __init__(self, options: CheckpointManagerOptions) -> None:
        self._options = options
        self._knowledge = _Knowledge()
        self._said_nan = False
        # By read(), as they are stored.
        self._read: dict[int, tuple[int, Any]] = {}

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
            self._see(step, self._options.best_fn(metrics))
        return metrics

    def _see(self, step: int, best: Any) -> None:
        """What best_fn returns for a step that is saved."""
        given = self._options
        if self._said_nan or given.max_to_keep is None:
            return
        if not given.keep_checkpoints_without_metrics:
            return
        if isinstance(best, (float, np.floating)) and math.isnan(best):
            self._said_nan = True
            remedy = "keep_checkpoints_without_metrics=False"
            _log.warning(text_of_nan(step, "what best_fn returns", remedy))

    @contextlib.contextmanager
    def put(
        self, step: int, items: dict[str, Item], metrics: Any
    ) -> Iterator[dict[str, float]]:
        """Makes an item of what checked() returns, for the save that the block
        begins; gives those that the store can order by. Behind learn()."""
        stored = _put(items, metrics)
        known = self._knowledge
        before = next(known.of(step), None)
        # Before the save is begun: its commit may ask for them at once.
        mine = _Known(None, metrics, stored, before=before)
        known.steps[step] = mine
        if known.seen is not None:
            begun, failed = known.seen
            known.seen = begun + 1, failed
        try:
            yield stored
        except BaseException:
            if known.steps.get(step) is mine:
                del known.steps[step]
                if before is not None:
                    known.steps[step] = before
            # It may not be among those that were begun.
            known.seen = None
            raise

    def begun(self, step: int, save: SaveHandle | None) -> None:
        """Behind put(): where that fails later, its metrics are not asked."""
        steps = self._knowledge.steps
        mine = steps.get(step)
        if mine is not None and mine.version is None:
            steps[step] = mine._replace(save=save)
        for number, known in list(steps.items()):
            if known.succeeded():  # It needs no more memory than one read.
                steps[number] = known._replace(save=None, before=None)

    def told(self, metrics: Any) -> Any:
        """What other processes can be told of them; None: nothing."""
        try:
            return json.loads(json.dumps(metrics))
        except (TypeError, ValueError):
            return None

    def learn(self, store: Store) -> None:
        """Reads those of all steps that others have saved, where somebody may
        ask for them."""
        shared = store._shared
        if shared is not None:
            self._knowledge = _of_engines.setdefault(shared, _Knowledge())
        given = self._options
        if given.best_fn is None and given.preservation_policy is None:
            return
        known = self._knowledge
        seen = store._engine.saves_begun(), store.counters().saves_failed
        if known.seen == seen:
            return  # All that came since are of managers that said so.
        # One that is on its way may take the place of another of its number.
        saves = [] if shared is None else list(shared.saves)
        underway = {save.step for save in saves if not save.done()}
        there: dict[int, _Known] = {}
        for info in store.steps():
            found = known.steps.get(info.step)
            if found is None or (
                found.version != info.version and info.step not in underway
            ):
                before = next(known.of(info.step), None)
                found = self._looked_at(store, info, before)
            there[info.step] = found
        for step in underway & known.steps.keys():
            there[step] = known.steps[step]
        known.steps = there
        known.seen = seen

    def _looked_at(
        self, store: Store, info: StepInfo, before: _Known | None
    ) -> _Known:
        metrics = stored_metrics(store[info.step])
        if metrics is None:  # It may be of no manager of Orbax's kind.
            metrics = dict(info.metrics) or None
        if metrics is None and before is not None and before.version is None:
            if self._options.prevent_write_metrics:
                metrics = before.metrics  # It is not stored.
        return _Known(info.version, metrics, dict(info.metrics))

    def read(self, store: Store, step: int) -> Any:
        """Those of a step that is there; reads them once."""
        version = store.step_info(step).version
        found = self._read.get(step)
        if found is None or found[0] != version:
            found = self._read[step] = version, stored_metrics(store[step])
        return copy.deepcopy(found[1])

    def of(self, step: int, stored: Mapping[str, float]) -> Any:
        """Those that are known; else what the step's record has of them."""
        for known in self._knowledge.of(step):
            if known.is_of(stored):
                return known.metrics
        return dict(stored) or None

    def given(self, step: int) -> Any:
        """Those of a save that is on its way; None: there are none."""
        known = self._knowledge.steps.get(step)
        return None if known is None else known.metrics

    def forget(self) -> None:
        """Another process may have saved others."""
        self._knowledge.steps.clear()
        self._knowledge.seen = None
        self._read.clear()


def _put(items: dict[str, Item], metrics: Any) -> dict[str, float]:
    if metrics is None:
        return {}
    try:
        items[_items.METRICS] = json_item(metrics)
    except (TypeError, ValueError):
        return {}
    return ordered_metrics(metrics)


def stored_metrics(step: Step) -> Any:
    """None: there are none."""
    try:
        item = _items.stored(step, _items.METRICS, "")
    except KeyError:
        return None
    return item.document()
