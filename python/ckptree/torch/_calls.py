# SPDX-License-Identifier: Apache-2.0
"""save() and load()."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, Iterable, Literal, Mapping, overload

import torch

from ckptree.adapters.protocol import DICT, DICT_KEY, Container
from ckptree.adapters.torch import whole
from ckptree.adapters.torch_parts import Wrapped
from ckptree.arguments import (
    ANY,
    BOOL,
    Kind,
    checked,
    instance,
    integer,
    listed,
    optional,
    shown,
)
from ckptree.errors import InvalidArgumentError, NotFoundError, at_path
from ckptree.handle import SaveHandle
from ckptree.manager import CheckpointManager
from ckptree.options import RESTORE
from ckptree.progress import showing
from ckptree.ranks import PER_RANK, give_up
from ckptree.restoring import plain, template
from ckptree.selector import SELECTOR
from ckptree.step import Step
from ckptree.store import Store
from ckptree.torch import _app, _meta
from ckptree.torch._in_place import InPlace, template_of
from ckptree.torch._slot import Slot
from ckptree.torch._together import GROUP, Together

if TYPE_CHECKING:
    import datetime

    from ckptree.options import RestoreOptions
    from ckptree.progress import Progress
    from ckptree.selector import Selector

STORE = instance(
    "a ckptree.Store or ckptree.CheckpointManager", Store, CheckpointManager
)
_SOURCE = instance(
    "a step, a ckptree.Store or a ckptree.CheckpointManager",
    Step,
    Store,
    CheckpointManager,
)
APP = Kind(
    "a dict",
    lambda name, value: value if type(value) is dict else NotImplemented,
)
# save() of the store looks at them, and among ranks tells the others.
_PASSED_ON = dict.fromkeys(
    (
        "metrics",
        "note",
        "overwrite",
        "borrow",
        "per_rank",
        "delete_later",
        "branch",
    ),
    ANY,
)
_CLASSES = listed(instance("a class", type), "a list of classes")


@overload
def save(
    store: Store,
    step: int,
    app: dict[str, Any],
    *,
    metrics: Mapping[str, float] | None = None,
    note: str = "",
    metadata: Any = None,
    overwrite: bool = False,
    borrow: bool = False,
    per_rank: Iterable[str] = (),
    delete_later: bool = False,
    branch: str = "",
    time: datetime.datetime | float | None = None,
) -> SaveHandle: ...


@overload
def save(
    store: CheckpointManager,
    step: int,
    app: dict[str, Any],
    *,
    metrics: Mapping[str, float] | None = None,
    note: str = "",
    metadata: Any = None,
    overwrite: bool = False,
    borrow: bool = False,
    per_rank: Iterable[str] = (),
    force: bool = False,
) -> bool: ...


@checked({**_PASSED_ON, "store": STORE, "step": integer(), "app": APP})
def save(
    store: Store | CheckpointManager,
    step: int,
    app: dict[str, Any],
    *,
    metrics: Mapping[str, float] | None = None,
    note: str = "",
    metadata: Any = None,
    overwrite: bool = False,
    borrow: bool = False,
    per_rank: Iterable[str] = (),
    delete_later: bool = False,
    branch: str = "",
    time: datetime.datetime | float | None = None,
    force: bool = False,
) -> SaveHandle | bool:
    """Starts saving an app as step number `step`.

    Returns when its tensors may change again; the save goes on in the
    background. A manager asks for no state_dict() where the step is not due.

    Parameters
    ----------
    store : Store or CheckpointManager
        Where to.
    step : int
        Its number.
    app : dict
        As the module says: objects with a state_dict(), generators, tensors
        and plain values by their names.
    metrics, note, metadata, overwrite, borrow
        As Store.save() takes them.
    per_rank : list of str
        Of a store or manager with `ranks`: the subtrees in which each rank has
        values of its own, under names of its own, as app["rng"]["3"]. All else
        every rank has to have alike, and one saves it.
    delete_later, branch, time
        Of a store: as Store.save() takes them.
    force : bool
        Of a manager: as CheckpointManager.save() takes it.

    Returns
    -------
    SaveHandle or bool
        Of a store the handle, which says when the step is durable; of a
        manager whether the step is saved.

    Raises
    ------
    AlreadyExistsError
        There is such a step: a FileExistsError.
    TypeError, ValueError
        What cannot be saved, by its path: a tensor on the meta device, code, an
        object with a state_dict() and no load_state_dict(). An option that is
        of stores alone, or of managers.
    Error
        A failure of an earlier save that nobody has seen; of a store one whose
        handle nobody holds any more. While somebody does, flush() and close()
        raise it.

    Examples
    --------
    >>> model = torch.nn.Linear(3, 1)
    >>> with ckptree.Store(tmp / "run") as store:
    ...     handle = save(store, 7, {"model": model, "epoch": 2})
    ...     handle.result(), list(store[7])
    (7, ['epoch', 'model/bias', 'model/weight'])
    """
    given: dict[str, Any] = {
        "metrics": metrics,
        "note": note,
        "metadata": metadata,
        "overwrite": overwrite,
        "borrow": borrow,
        "per_rank": per_rank,
    }
    of_stores: dict[str, Any] = {
        "delete_later": delete_later,
        "branch": branch,
        "time": time,
    }
    if isinstance(store, Store):
        if force:
            raise InvalidArgumentError(
                "force is of a CheckpointManager: a Store saves every step"
            )
        try:
            state = _app.state_of(app)
        except BaseException as error:
            if store._is_spread:
                give_up(store._engine, step, error, {**given, **of_stores})
            raise
        return store.save(step, state, **given, **of_stores)
    for name, value in of_stores.items():
        if value:
            refused = InvalidArgumentError(
                f"{name} is of a Store, not of a CheckpointManager: "
                f"{shown(value)}"
            )
            if store._is_spread:
                give_up(store._engine, step, refused, {**given, "force": force})
            raise refused
    due = _WhenDue(app)
    try:
        return store.save(step, due, **given, force=force)
    except Exception as error:
        if due.failed is not None:
            raise due.failed from error
        raise


class _WhenDue(Wrapped):
    """The state of an app, made when a manager has decided to save it."""

    __slots__ = ("_app", "failed")

    def __init__(self, app: dict[str, Any]) -> None:
        self._app = app
        self.failed: Exception | None = None

    @property
    def container(self) -> Container:  # type: ignore[override]
        try:
            state = _app.state_of(self._app)
        except Exception as error:
            self.failed = error
            raise
        children = [(DICT_KEY, name, value) for name, value in state.items()]
        return Container(DICT, "", children, lambda made: made)


@overload
def load(
    source: Step | Store | CheckpointManager,
    app: None = None,
    *,
    step: Selector = "latest",
    device: Any = None,
    classes: Iterable[type] = (),
    broadcast: Any = None,
    progress: Progress = None,
) -> Any: ...


@overload
def load(
    source: Step | Store | CheckpointManager,
    app: dict[str, Any],
    *,
    step: Selector = "latest",
    device: Any = None,
    partial: bool = False,
    cast: bool | Literal["lossy"] = False,
    rename: dict[str, str] | None = None,
    classes: Iterable[type] = (),
    per_rank: Iterable[str] = (),
    broadcast: Any = None,
    progress: Progress = None,
) -> dict[str, Any]: ...


@checked(
    {
        "source": _SOURCE,
        "app": optional(APP),
        "step": SELECTOR,
        "partial": BOOL,
        "classes": _CLASSES,
        "per_rank": PER_RANK,
        "broadcast": GROUP,
    }
)
def load(
    source: Step | Store | CheckpointManager,
    app: dict[str, Any] | None = None,
    *,
    step: Selector = "latest",
    device: Any = None,
    partial: bool = False,
    cast: bool | Literal["lossy"] = False,
    rename: dict[str, str] | None = None,
    classes: Iterable[type] = (),
    per_rank: Iterable[str] = (),
    broadcast: Any = None,
    progress: Progress = None,
) -> Any:
    """Reads a step into an app, in place; or, without one, as new tensors.

    The bytes go straight into the memory of tensors that are there: the host
    holds no second copy, and a device gets them through a small pool of pinned
    memory. Then each object's load_state_dict() is called with them, as
    PyTorch's own torch.distributed.checkpoint does. The state of an optimizer
    that has made no step is empty: its tensors are made new, where its
    parameters are. Tied tensors stay tied.

    Nothing has changed when an error says that the step does not fit. While the
    bytes are read and objects are loaded an error (damage, a load_state_dict()
    that fails) or Ctrl-C leaves the app half read, and a note of the exception
    says so: load a step again, or leave.

    A dict without a tensor in it, as of counters, which has other keys from one
    moment to the next, becomes what the step says: keys that the step lacks go,
    unless `partial` is given. One with a tensor in it has to fit key by key.
    Keys that are there keep their order, others come in that of the store,
    which sorts them.

    Where the app, or the state_dict() of an object, has nothing yet (None, {},
    []) arrays become tensors; an array of NumPy where there is one now, or in
    the same list: no step says which of the two was saved.

    A module on the meta device gets memory first, on `device`; its parameters
    stay the same objects, so that optimizers and ties hold them still.

    Parameters
    ----------
    source : Step, Store or CheckpointManager
        Where from.
    app : dict, optional
        As save() takes it. None: dicts, lists, numbers and new tensors.
    step : int or str
        Which one of a store or manager: as Store.restore() takes it.
    device : torch.device or str, optional
        Of tensors that are made new and have no place: without an app all of
        them, and those that are on the meta device, or that the app has no
        tensor for, as in {"best": None}. None: the host.
    partial : bool
        What the step lacks stays as it is, also keys of a dict without
        tensors; what the app lacks is left out, but keys of such a dict.
    cast : bool or "lossy"
        Converts to the element types of the app, as Store.restore() does; such
        tensors are read beside it first.
    rename : dict of str to str, optional
        Names in the app to names in the step, of leaves or whole subtrees.
    classes : list of type
        Subclasses of torch.Tensor, and classes that their contexts have, which
        may be made of what the step says, where the app has no such tensor:
        without one, and in the state of an optimizer that has made no step.
        Others come back as dicts of their parts.
    per_rank : list of str
        Subtrees of which each rank saved what lies below a name of its own:
        what the app has there is read, as app["rng"]["3"], and what the step
        has of other ranks is left out.
    broadcast : torch.distributed.ProcessGroup or True, optional
        All processes of the group (True: all there are) call this with apps
        that are alike, as under DistributedDataParallel: the first of them
        reads, and sends the bytes to the others by the group's collectives on
        memory of the host, as gloo has them. They fail together.
    progress : bool or callable, optional
        As in Store.restore().

    Returns
    -------
    dict
        `app`, or what was saved.

    Raises
    ------
    NotFoundError
        No step matches: a KeyError.
    MismatchError
        Lists every path that is missing, unexpected, or of another kind, shape
        or dtype; and tensors that are one memory, or have some in common, of
        which the step has two values.
    CorruptionError
        The bytes are not those that were saved.
    ValueError
        An option that needs an app, or none; an object that does not take its
        state, by its path; a group that sends no memory of the host.
    StateError
        With `broadcast`: what went wrong elsewhere, by the rank; or it loads
        something else.

    Examples
    --------
    >>> model = torch.nn.Linear(3, 1)
    >>> with ckptree.Store(tmp / "run") as store:
    ...     _ = save(store, 7, {"model": model, "epoch": 2}).result()
    ...     app = {"model": torch.nn.Linear(3, 1), "epoch": 0}
    ...     _ = load(store, app)
    ...     load(store, step=7)["model"]["bias"] == model.bias
    tensor([True])
    >>> app["epoch"], bool((app["model"].weight == model.weight).all())
    (2, True)
    """
    subtrees = list(per_rank)
    if app is None and (partial or cast or rename or subtrees):
        raise InvalidArgumentError(
            "partial, cast, rename and per_rank need an app to load into"
        )
    if subtrees and broadcast is not None:
        raise InvalidArgumentError(
            "per_rank: each rank reads what is its own, and broadcast sends "
            "what one has read: leave one of them out"
        )
    options: RestoreOptions = {
        **RESTORE,
        "partial": partial,
        "cast": cast,
        "rename": rename,
    }

    def opened() -> Step:
        return source if isinstance(source, Step) else source[step]

    def loaded(reading: Any) -> Any:
        allowed = list(classes)
        with showing(progress, "load") as meter:
            template.warn_of_loss(reading)
            if app is None:
                return _new(reading, device, allowed, meter)
            return _into(
                app, reading, options, device, allowed, subtrees, meter
            )

    if broadcast is None:
        return loaded(opened()._engine)
    with Together(broadcast) as together:
        if not isinstance(source, Step):
            _refresh(source)
        return loaded(together.same(opened()))


def _new(step: Any, device: Any, classes: list[type], meter: Any) -> Any:
    return plain.restore(
        step,
        "torch",
        {"device": device},
        None,
        meter,
        functools.partial(whole, classes=classes),
    )


def _into(
    app: dict[str, Any],
    step: Any,
    options: RestoreOptions,
    device: Any,
    classes: list[type],
    per_rank: list[str],
    meter: Any,
) -> dict[str, Any]:
    def loading() -> InPlace:
        return InPlace(step, options, device, classes, per_rank)

    on_meta = _meta.modules_on_meta(app)
    for name, module in on_meta.items():
        _meta.check(name, module)
    if on_meta:
        # Before anything changes.
        loading().compare(template_of(app, per_rank))
    for name, module in on_meta.items():
        _meta.materialize(name, module, "cpu" if device is None else device)
    into = loading()
    into.meter = meter
    try:
        _apply(app, into.run(template_of(app, per_rank)), options["partial"])
    except BaseException as error:
        if into.began and hasattr(error, "add_note"):  # Python 3.11.
            error.add_note(
                f"the app is half read: some of it is that of step "
                f"{into.where()}, the rest as before; load a step again "
                "before you use it"
            )
        raise
    return app


def _apply(app: dict[str, Any], made: dict[str, Any], partial: Any) -> None:
    """Gives what was read to the objects of an app, and puts values in."""
    later: list[tuple[str, _app.Object, Any]] = []

    def put(value: Any, new: Any, name: str) -> Any:
        if isinstance(new, Slot):
            return value  # The step has nothing for it, which was allowed.
        found = _app.object_of(value, name)
        if found is not None:
            later.append((name, found, new))
            return value
        if type(value) in _app.DICTS and type(new) is type(value):
            # A step from before a dict grew has it as it was.
            gone = [key for key in value if key not in new]
            for key in [] if partial else gone:
                del value[key]
            for key, child in new.items():
                value[key] = below(value.get(key), child, name, key)
            return value
        if type(value) is list and type(new) is list:
            old = value + [None] * (len(new) - len(value))
            value[:] = [below(old[i], child, name, i)
                        for i, child in enumerate(new)]
            return value
        if type(value) is tuple and type(new) is tuple:
            if len(value) == len(new):
                pairs = enumerate(zip(value, new))
                return tuple(below(a, b, name, i) for i, (a, b) in pairs)
        return new

    def below(value: Any, new: Any, name: str, key: Any) -> Any:
        return put(value, new, f"{name}/{key}" if name else str(key))

    put(app, made, "")
    for name, found, state in sorted(later, key=lambda entry: entry[1].last):
        try:
            found.load(state)
        except Exception as error:
            raise at_path(name, error) from error


def _refresh(source: Store | CheckpointManager) -> None:
    """The process that reads may see later steps than a reader that was opened
    long ago."""
    if isinstance(source, Store) and source.info().read_only:
        source.refresh()
