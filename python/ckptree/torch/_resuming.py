# SPDX-License-Identifier: Apache-2.0
"""resume(): a training goes on from its latest step."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Iterable

from ckptree.arguments import checked
from ckptree.errors import InvalidArgumentError, NotFoundError
from ckptree.manager import CheckpointManager
from ckptree.ranks import PER_RANK
from ckptree.store import Store
from ckptree.torch._calls import APP, STORE, load
from ckptree.torch._together import GROUP, Together

if TYPE_CHECKING:
    from ckptree.progress import Progress
    from ckptree.step import Step


@checked(
    {"store": STORE, "app": APP, "broadcast": GROUP, "per_rank": PER_RANK}
)
def resume(
    store: Store | CheckpointManager,
    app: dict[str, Any],
    *,
    branch: str = "",
    device: Any = None,
    per_rank: Iterable[str] = (),
    broadcast: Any = None,
    progress: Progress = None,
) -> int:
    """Loads the latest step into an app, and says where to go on. Of a fork
    that has no step yet that is the one which it was made of.

    Parameters
    ----------
    store : Store or CheckpointManager
        Where from.
    app : dict
        As save() takes it; load() says what becomes of it.
    branch : str
        Of a store: the fork to go on from; "": the main branch. A manager has
        one.
    device : torch.device or str, optional
        Of modules on the meta device and of new tensors, as in load().
    per_rank : list of str
        As in load().
    broadcast : torch.distributed.ProcessGroup or True, optional
        As in load(). The latest step is that which the first process sees.
    progress : bool or callable, optional
        As in Store.restore().

    Returns
    -------
    int
        The number after that of the latest step; 0 where there is none, and
        then the app is as it was.

    Raises
    ------
    MismatchError, CorruptionError, ValueError
        As load() says: what is there and does not fit is an error.
    NotFoundError
        There is no such branch, or the step that a fork was made of, which has
        none yet, was deleted or saved anew: a KeyError.

    Examples
    --------
    >>> import torch
    >>> app = {"model": torch.nn.Linear(3, 1), "rng": ckptree.torch.Rng()}
    >>> with ckptree.Store(tmp / "run") as store:
    ...     before = resume(store, app)
    ...     _ = ckptree.torch.save(store, 4, app).result()
    ...     before, resume(store, app)
    (0, 5)
    """
    latest = "latest"
    if branch:
        if not isinstance(store, Store):
            raise InvalidArgumentError(
                "branch is of a Store: a CheckpointManager has one"
            )
        latest = f"{branch}/latest"
    if broadcast is None:
        opened = _latest(store, latest)
        if opened is None:
            return 0
        load(opened, app, device=device, per_rank=per_rank, progress=progress)
        return opened.step + 1
    with Together(broadcast) as together:
        newest = _latest(store, latest) if together.reads else None
        # Whatever comes after it.
        found = None if newest is None else newest._name
        together.meet("the latest step")
        found = together.first_of(found)
    if found is None:
        return 0
    load(
        # By names of all branches; a manager knows those of its own.
        store if isinstance(store, Store) else store.store,
        app,
        step=found,
        device=device,
        per_rank=per_rank,
        broadcast=broadcast,
        progress=progress,
    )
    return int(found.rpartition("/")[2]) + 1


def _latest(store: Store | CheckpointManager, latest: str) -> Step | None:
    """None: there is none."""
    if isinstance(store, Store):
        return store._to_go_on_from(latest)
    try:
        return store[latest]
    except NotFoundError:
        if not store.branch:
            return None
    return store.store._to_go_on_from(f"{store.branch}/{latest}")
