# SPDX-License-Identifier: Apache-2.0
"""Several items, each by a handler of its own."""

from __future__ import annotations

import dataclasses
import os
from typing import TYPE_CHECKING, Any

from ckptree.orbax import _checkpoint, _folders, _items, _saving
from ckptree.orbax._document_handlers import JsonCheckpointHandler
from ckptree.orbax._files_handler import FilesHandler
from ckptree.orbax._handler import (
    CheckpointHandler,
    StoreHandler,
    StoringHandler,
    is_of_a_store,
    only_args,
    overrides,
    shown_type,
)
from ckptree.orbax._option_states import check_processes, tell_of
from ckptree.orbax._registry import (
    DefaultCheckpointHandlerRegistry,
    HandlerTable,
)
from ckptree.orbax.args import Composite
from ckptree.orbax.checkpoint_args import CheckpointArgs
from ckptree.orbax.metadata import StepMetadata, StepStatistics
from ckptree.orbax.options import MultiprocessingOptions

if TYPE_CHECKING:
    from ckptree.orbax._items import Item, StoredItem
    from ckptree.step import Step


@dataclasses.dataclass
class CompositeOptions:
    """Of all items. What has no meaning for a store does nothing, and a
    warning says so once."""

    multiprocessing_options: MultiprocessingOptions = dataclasses.field(
        default_factory=MultiprocessingOptions
    )
    temporary_path_class: Any = None
    file_options: Any = None
    atomicity_options: Any = None
    async_options: Any = None


def as_store_handler(
    handler: CheckpointHandler, synchronous: bool = False
) -> StoreHandler:
    """`handler`, or one that calls its methods; see FilesHandler."""
    if is_of_a_store(handler):
        assert isinstance(handler, StoreHandler)
        return handler
    return FilesHandler(handler, synchronous)


def pack_item(
    handler: CheckpointHandler, args: Any, synchronous: bool = False
) -> Item:
    """The item that a handler makes; which it was is kept with it."""
    made = as_store_handler(handler, synchronous).pack(args)
    return made._replace(about={**made.about, "handler": handler.typestr()})


def pack(table: HandlerTable, args: Composite) -> dict[str, Item]:
    """The items of `args`. ValueError: one has no arguments, or another
    handler."""
    items = {}
    for name in sorted(args):
        given = args[name]
        if given is None and table.known(name) is not None:
            items[name] = _items.LEFT_OUT
            continue
        if not isinstance(given, CheckpointArgs):
            raise ValueError(
                f"item {name!r}: pass CheckpointArgs, such as "
                f"args.StandardSave(...), not {shown_type(given)}"
            )
        items[name] = pack_item(table.find(name, given), given)
    return items


def unpack_item(
    handler: CheckpointHandler, item: StoredItem, args: Any
) -> Any:
    return as_store_handler(handler).unpack(item, args)


def unpack(
    table: HandlerTable,
    step: Step,
    directory: str | os.PathLike[str],
    args: Composite | None,
) -> Composite:
    """The items that `args` name; all, without, with the metrics, and None for
    each that was saved as None. KeyError: one that is named is not there."""
    wanted: dict[str, Any] = dict(args) if args else {}
    if not wanted:
        wanted = dict.fromkeys(_items.names(step))
    made: dict[str, Any] = {}
    if not args:
        made = dict.fromkeys(_items.left_out(step))
    for name, given in wanted.items():
        item = _items.stored(step, name, directory)
        if given is None and args:
            handler = table.known(name)
            if handler is None:
                raise ValueError(
                    f"item {name!r}: Provided `None` for `CheckpointArgs`, and "
                    "its handler is not known yet: pass its arguments"
                )
        elif given is None:
            saved_by = item.about.get("handler")
            if name == _items.METRICS and saved_by is None:
                made[name] = item.document()  # The manager wrote them.
                continue
            handler = table.find_by_name(name, saved_by)
        elif not isinstance(given, CheckpointArgs):
            raise ValueError(
                f"item {name!r}: pass CheckpointArgs, such as "
                f"args.StandardRestore(...), not {shown_type(given)}"
            )
        else:
            handler = table.find(name, given)
        made[name] = unpack_item(handler, item, given)
    return Composite(**made)


def describe(
    table: HandlerTable, step: Step, directory: str | os.PathLike[str]
) -> StepMetadata:
    """What a step says of itself; of items whose handler is not known: None."""
    about = _items.About.of(step)
    found: dict[str, Any] = {}
    handlers: dict[str, Any] = {}
    metrics: Any = {}
    for name in _items.names(step):
        item = _items.stored(step, name, directory)
        if name == _items.METRICS:
            metrics = item.document()
        handlers[name] = item.about.get("handler")
        if name == _items.METRICS and handlers[name] is None:
            # The manager wrote them.
            handlers[name] = JsonCheckpointHandler.typestr()
            found[name] = None
            continue
        try:
            handler = table.find_by_name(name, handlers[name])
        except ValueError:
            found[name] = None
            continue
        found[name] = as_store_handler(handler).describe(item)
    info = step.info
    seconds = (info.committed_ns - info.begun_ns) / 1e9
    return StepMetadata(
        item_handlers=handlers,
        item_metadata=Composite(**found),
        metrics=metrics,
        performance_metrics=StepStatistics(seconds),
        init_timestamp_nsecs=about.begun_ns,
        commit_timestamp_nsecs=info.committed_ns,
        custom_metadata=about.custom,
    )


def of_one_item(found: StepMetadata) -> StepMetadata:
    """The same, of a step with one item that has no name."""
    return dataclasses.replace(
        found,
        item_handlers=found.item_handlers.get(_items.DEFAULT),
        item_metadata=found.item_metadata.get(_items.DEFAULT),
    )


class CompositeCheckpointHandler(StoringHandler):
    """Several items. Those that are named may be saved; without names any."""

    def __init__(
        self,
        *item_names: str,
        composite_options: CompositeOptions | None = None,
        handler_registry: DefaultCheckpointHandlerRegistry | None = None,
        **items_and_handlers: CheckpointHandler,
    ) -> None:
        if composite_options is not None:
            check_processes(composite_options.multiprocessing_options)
            tell_of(composite_options)
            tell_of(composite_options.file_options)
            tell_of(composite_options.atomicity_options)
            tell_of(composite_options.async_options)
        if handler_registry is not None and (item_names or items_and_handlers):
            raise ValueError("handler_registry goes without names and handlers")
        self._names = {*item_names, *items_and_handlers}
        self.table = HandlerTable(handler_registry, items_and_handlers)

    def pack(self, args: Any) -> dict[str, Item]:
        """The items of `args`, a Composite."""
        for name in args if self._names else ():
            if name not in self._names:
                raise ValueError(
                    f"no item {name!r}: the handler has "
                    f"{', '.join(sorted(self._names))}"
                )
        return pack(self.table, args)

    def _save(
        self, directory: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        given = one_of(args, kwargs)
        items = self.pack(composite(given))
        folder = _folders.at(directory)
        if folder is not None and folder.several:
            folder.take(items)
        else:
            items = _items.finished(items)
            _saving.save(directory, items, force=True)

    def restore(self, directory: Any, *args: Any, **kwargs: Any) -> Any:
        given = one_of(args, kwargs)
        with _checkpoint.opened(directory) as (step, place):
            folder = place.store / str(step.step)
            wanted = None if given is None else composite(given)
            return unpack(self.table, step, folder, wanted)

    def metadata(self, directory: Any) -> StepMetadata:
        with _checkpoint.opened(directory) as (step, place):
            return describe(self.table, step, place.store / str(step.step))

    def close(self) -> None:
        self.table.close()


def pack_composite(
    handler: CompositeCheckpointHandler, args: Any, synchronous: bool = False
) -> dict[str, Item]:
    """The items that it makes of `args`, a Composite."""
    given = composite(args)
    if overrides(handler, "save", "async_save", "finalize"):
        return FilesHandler(handler, synchronous).pack_all(given)
    return handler.pack(given)


def one_of(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The Composite of a call, which is passed alone. TypeError: it is not."""
    given = only_args(args, kwargs)
    if given is not None:
        return given
    wrong = [k for k in kwargs if k != "args"] or args[1:]
    if wrong:
        raise TypeError(
            f"unexpected argument {wrong[0]!r}: items go in one Composite"
        )
    return args[0] if args else None


def composite(args: Any) -> Composite:
    """`args`, checked. ValueError where it is not a Composite."""
    if not isinstance(args, Composite):
        raise ValueError(
            f"args must be a Composite of items, not {shown_type(args)}"
        )
    return args
