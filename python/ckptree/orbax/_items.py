# SPDX-License-Identifier: Apache-2.0
"""Items: the top-level subtrees of a step, as handlers make and take them."""

from __future__ import annotations

import os
import re
import time
from typing import TYPE_CHECKING, Any, Callable, Iterable, Mapping, NamedTuple

from ckptree.errors import NotFoundError
from ckptree.metadata import as_json_has_it

if TYPE_CHECKING:
    from ckptree import _engine
    from ckptree.step import Step, StepMetadata

# The item of a checkpoint that has one without a name, as Orbax calls it, and
# that of the metrics.
DEFAULT = "default"
METRICS = "metrics"

# After the name of an item: files that belong to it. No item has a '/'.
_FILES = "/files"

# Names that are their own text form.
_PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z_0-9-]*")


class Item(NamedTuple):
    """What a handler made of its arguments."""

    state: Any  # For the engine: a tree, or a document.
    # Plain data that restoring it also needs.
    about: dict[str, Any] = {}
    # What a handler of the user's own wrote beside it.
    files: dict[str, Any] = {}
    # Of a handler that goes on in the background: waits for it, and returns
    # the item. The rest of this one is nothing by then.
    later: Callable[[], Item] | None = None


class StoredItem:
    """An item of a step that is open for reading."""

    def __init__(self, step: Step, name: str, path: str, about: Any) -> None:
        self.step = step
        self.name = name
        self.path = path  # Where Orbax would have its directory.
        self.about: dict[str, Any] = about or {}

    def infos(
        self, listed: Iterable[_engine.LeafInfo] | None = None
    ) -> list[_engine.LeafInfo]:
        """All that is listed under it; `listed`: all that the step has, where
        it is known."""
        if listed is None:
            listed = self.step._engine.leaves("")
        if not _PLAIN_NAME.fullmatch(self.name):
            return [info for info in listed if info.path[0][1] == self.name]
        # No path is made of the names of thousands of leaves.
        below = self.name + "/"
        return [
            info
            for info in listed
            if (name := info.name).startswith(below) or name == self.name
        ]

    def find(self, name: str) -> _engine.LeafInfo:
        """A leaf of the step, by its whole name."""
        return self.step._engine.find(name)

    def files(self) -> StoredItem | None:
        """What a handler of the user's own wrote beside it."""
        if self.name + _FILES not in self.step.metadata.items:
            return None
        return StoredItem(self.step, self.name + _FILES, self.path, None)

    def document(self) -> Any:
        """Its value, where it is one: JSON as what it says, else bytes."""
        from ckptree.arrays import values

        if _PLAIN_NAME.fullmatch(self.name):
            infos = [self.find(self.name)]  # Without a list of all leaves.
        else:
            infos = self.infos()
        if len(infos) != 1 or not infos[0].is_leaf:
            raise ValueError(f"{self.path}: the item {self.name!r} is a tree")
        (value,) = values.read(self.step._engine, infos)
        return value


class About(NamedTuple):
    """What is kept with a step, as JSON in its custom metadata."""

    items: dict[str, dict[str, Any]]  # By their names.
    custom: dict[str, Any]  # The user's own.
    begun_ns: int

    def json(self) -> dict[str, Any]:
        return {"orbax": 1, **self._asdict()}

    @classmethod
    def of(cls, step: Step, metadata: StepMetadata | None = None) -> About:
        """Of a step, also of one that was not saved by this package.
        `metadata`: the step's, where it was read."""
        found = (metadata or step.metadata).custom
        if isinstance(found, dict) and found.get("orbax") == 1:
            return cls(found["items"], found["custom"], found["begun_ns"])
        custom = found if isinstance(found, dict) else {}
        return cls({}, custom, step.info.begun_ns)


def finished(items: Mapping[str, Item]) -> dict[str, Item]:
    """All of them as they are to be saved. Raises what handlers raise that are
    in the background, when each of them has ended."""
    made: dict[str, Item] = {}
    failed: BaseException | None = None
    for name, item in items.items():
        try:
            made[name] = item if item.later is None else _done(item)
        except BaseException as error:
            failed = failed or error
    if failed is not None:
        raise failed
    return made


def _done(item: Item) -> Item:
    """What was kept of it beside its state, such as its handler, stays."""
    assert item.later is not None
    done = item.later()
    return done._replace(about={**done.about, **item.about})


def about(items: Mapping[str, Item], custom: Any) -> dict[str, Any]:
    """What to keep with a step that holds `items`. TypeError, ValueError:
    `custom` is no dict that JSON can write, or loses an entry there."""
    if custom is None:
        custom = {}
    if not isinstance(custom, dict):
        raise ValueError(
            f"custom_metadata is a dict, not a {type(custom).__name__}"
        )
    custom = as_json_has_it(custom)
    kept = {name: item.about for name, item in items.items()}
    return About(kept, custom, time.time_ns()).json()


# An item of which a step says only that it has none.
LEFT_OUT = Item(None, {"left_out": True})


def left_out(step: Step) -> list[str]:
    """Items that were saved as None."""
    kept = About.of(step).items
    return [name for name, about in kept.items() if about.get("left_out")]


def names(step: Step) -> list[str]:
    """The items of a step, in the order of the store."""
    return _names(step.metadata)


def _names(metadata: StepMetadata) -> list[str]:
    there = metadata.items
    return [
        name
        for name in there
        if not (name.endswith(_FILES) and name.removesuffix(_FILES) in there)
    ]


def states(items: Mapping[str, Item]) -> dict[str, Any]:
    """What to save of `items`."""
    made = {}
    for name, item in items.items():
        if item is LEFT_OUT:
            continue
        made[name] = item.state
        if item.files:
            made[name + _FILES] = item.files
    return made


def stored(
    step: Step, name: str, directory: str | os.PathLike[str]
) -> StoredItem:
    """KeyError where the step has no such item."""
    metadata = step.metadata
    there = _names(metadata)
    if name not in there:
        raise NotFoundError(
            f"{os.fspath(directory)}: no item {name!r}; there are "
            f"{', '.join(there) or 'none'}"
        )
    path = os.path.join(directory, name)
    about = About.of(step, metadata).items.get(name)
    return StoredItem(step, name, path, about)
