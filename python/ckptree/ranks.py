# SPDX-License-Identifier: Apache-2.0
"""Ranks: this process among those that save one step together."""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Iterable, Iterator, Mapping

from ckptree import _engine
from ckptree.arguments import (
    ANY,
    BOOL,
    TEXT,
    Kind,
    checked,
    integer,
    listed,
    real,
    refuse,
)
from ckptree.errors import InvalidArgumentError, StateError
from ckptree.hints import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from ckptree.options import OpenOptions

Opened = TypeVar("Opened", bound=type)
# Of an exception that the other ranks know of.
_TOLD = "_ckptree_told"
_interrupted: set[str] = set()
# As the engine's.
_MAX_WORLD = 4096
_JOB = r"[A-Za-z0-9_.-]{1,64}"


@checked(
    {
        "group": ANY,
        "job": TEXT,
        "rank": integer(low=0, high=_MAX_WORLD - 1),
        "world": integer(low=1, high=_MAX_WORLD),
        "deadline": real(low=0),
        "open_deadline": real(low=0),
        "shared_folder": BOOL,
    }
)
class Ranks:
    """This process among those that save one step together: Store(path,
    ranks=...) on each of them.

    Parameters
    ----------
    rank : int
        Its number, from 0. Rank 0 has the store open for writing, the others
        to read.
    world : int
        How many ranks there are; at most 4096.
    job : str
        Names the job, the same on all ranks: letters, digits, '-', '_' and
        '.', at most 64. A run that is started again takes another name, so
        that no rank of before is met.
    deadline : float
        Seconds that a rank may say nothing before it counts as lost: the
        others wait no longer, and the step fails on all of them. One that
        copies and writes says so, however long that takes.
    open_deadline : float
        Seconds that opening waits for the other ranks, which may start later.
        Rank 0 counts from when it has the store, and any other from when it
        sees rank 0, and then waits up to 30 s more for its word, which names
        those that did not come: all of them name the same ranks.
        Where rank 0 is refused the store all hear why at once, by its error;
        but not who starts later than that, nor, without a shared folder, of a
        `remote` that rank 0 does not reach: these wait that long for it.
    shared_folder : bool
        All ranks see the folder of the store. False: each has a directory of
        its own, as on hosts that share none, and they meet in the store's
        `remote`, with durable="remote": rank 0's is the store, with all that
        is saved; the others build beside theirs what they upload, and read
        the store by its address. The same on all ranks.

    Raises
    ------
    TypeError, ValueError
        One of these is not possible; it is named.

    Examples
    --------
    >>> import ckptree, numpy as np
    >>> ranks = ckptree.Ranks(0, 1, job="run-7")
    >>> with ckptree.Store(tmp / "run", ranks=ranks) as store:
    ...     store.save(1, {"w": np.ones(3)}).result()
    1
    """

    rank: int
    world: int
    job: str
    deadline: float
    open_deadline: float
    shared_folder: bool

    def __init__(
        self,
        rank: int,
        world: int,
        job: str = "job",
        deadline: float = 300.0,
        open_deadline: float = 600.0,
        shared_folder: bool = True,
    ) -> None:
        # By hand: dataclasses would bring inspect, which takes as long to
        # import as this package.
        vars(self).update(
            rank=rank,
            world=world,
            job=job,
            deadline=deadline,
            open_deadline=open_deadline,
            shared_folder=shared_folder,
        )
        if self.rank >= self.world:
            raise refuse(
                "rank", self.rank, f"0 to {self.world - 1} of {self.world}"
            )
        import re

        if not re.fullmatch(_JOB, self.job):
            raise refuse(
                "job",
                self.job,
                "1 to 64 letters, digits, '-', '_' and '.'",
            )
        for name in ("deadline", "open_deadline"):
            seconds = getattr(self, name)
            if not 0 < seconds < 1e9:
                raise refuse(name, seconds, "above 0 and below a billion")

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"cannot assign to {name!r} of Ranks")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"cannot delete {name!r} of Ranks")

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Ranks):
            return NotImplemented
        return vars(self) == vars(other)

    def __hash__(self) -> int:
        return hash(tuple(vars(self).values()))

    def __repr__(self) -> str:
        fields = ", ".join(f"{name}={v!r}" for name, v in vars(self).items())
        return f"Ranks({fields})"

    @property
    def named(self) -> str:
        """As messages call it.

        >>> ckptree.Ranks(0, 4).named
        'rank 0 of 4'
        """
        return f"rank {self.rank} of {self.world}"

    @classmethod
    def jax(
        cls,
        *,
        deadline: float = 300.0,
        open_deadline: float = 600.0,
        shared_folder: bool = True,
    ) -> Ranks:
        """The processes of jax.distributed, which has to be initialized before.

        Every process calls it equally often: the name of the job is rank 0's,
        and goes to the others by the coordination service, without a
        collective.

        Parameters
        ----------
        deadline : float
            As of Ranks.
        open_deadline : float
            As of Ranks; also how long the name is waited for.
        shared_folder : bool
            As of Ranks.

        Returns
        -------
        Ranks
            Of one process alone, where JAX runs in one.

        Raises
        ------
        UnavailableError
            The others did not come in time.
        ImportError
            JAX is not installed.

        Examples
        --------
        >>> ckptree.Ranks.jax().world
        1
        """
        from ckptree.adapters import jax_job

        return cls(
            *jax_job.meet(open_deadline), deadline, open_deadline, shared_folder
        )

    @classmethod
    def torch(
        cls,
        *,
        group: Any = None,
        deadline: float = 300.0,
        open_deadline: float = 600.0,
        shared_folder: bool = True,
    ) -> Ranks:
        """The processes of torch.distributed, where that is initialized.

        Every process of the group calls it: the name of the job is broadcast.

        Parameters
        ----------
        group : torch.distributed.ProcessGroup, optional
            Those that save; None: all.
        deadline : float
            As of Ranks.
        open_deadline : float
            As of Ranks.
        shared_folder : bool
            As of Ranks.

        Returns
        -------
        Ranks
            Of one process alone, where torch.distributed is not initialized.

        Raises
        ------
        ValueError
            This process is not of the group.
        ImportError
            PyTorch is not installed.

        Examples
        --------
        >>> ckptree.Ranks.torch().world
        1
        """
        from ckptree.adapters import torch_job

        return cls(
            *torch_job.meet(group), deadline, open_deadline, shared_folder
        )


def open_engine(
    directory: str, mode: str, ranks: Ranks | None, options: OpenOptions
) -> _engine.Store:
    """The engine of a store, of one process or of one of several."""
    if ranks is None:
        return _engine.open(directory, mode=mode, **options)
    if mode in ("create", "read"):
        raise InvalidArgumentError(
            f"mode={mode!r} is of one process: without ranks=, or "
            "mode='write' or 'write or create'"
        )
    try:
        return _engine.open_ranks(
            directory,
            create="create" in mode,
            rank=ranks.rank,
            world=ranks.world,
            job=ranks.job,
            deadline=ranks.deadline,
            open_deadline=ranks.open_deadline,
            shared_folder=ranks.shared_folder,
            options=dict(options),
        )
    except BaseException as error:
        if not isinstance(error, Exception):
            _interrupted.add(os.path.realpath(directory))
        raise


def was_interrupted(directory: str) -> bool:
    """Whether this process may still look for the ranks of an opening."""
    return os.path.realpath(directory) in _interrupted


def check_writes(
    call: str, engine: _engine.Store, ranks: Ranks | None
) -> None:
    """StateError where another rank has to make that call."""
    if ranks is not None and ranks.rank != 0 and not engine.closed:
        raise StateError(
            f"{call}() is rank 0's alone: this is {ranks.named}, which has "
            f"{engine.directory} open to read"
        )


def telling(store: Opened) -> Opened:
    """A class of stores or managers whose save() tells the other ranks why it
    comes to nothing before the step is begun: they do not wait for this one."""
    saves = store.save  # type: ignore[attr-defined]

    @functools.wraps(saves)
    def save(self: Any, *arguments: Any, **given: Any) -> Any:
        try:
            return saves(self, *arguments, **given)
        except BaseException as error:
            if self._is_spread and not getattr(error, _TOLD, False):
                step = arguments[0] if arguments else given.get("step")
                give_up(self._engine, step, error, given)
            raise

    store.save = save  # type: ignore[attr-defined]
    return store


@contextlib.contextmanager
def told() -> Iterator[None]:
    """What the engine raises of a step that it began it has told itself."""
    try:
        yield
    except BaseException as error:
        with contextlib.suppress(Exception):
            setattr(error, _TOLD, True)
        raise


def give_up(
    engine: _engine.Store | _engine.Manager,
    step: Any,
    error: BaseException,
    options: Mapping[str, Any],
) -> None:
    """Tells the other ranks that this one does not save that step, and why. A
    step that is no number at all is this rank's own mistake."""
    if isinstance(engine, _engine.Manager):
        # It asks whether the step is saved: who was interrupted waits for
        # nobody.
        if isinstance(error, Exception):
            with contextlib.suppress(Exception):
                engine.give_up_save(
                    integer()("step", step),
                    error,
                    force=options.get("force", False) is True,
                    overwrite=options.get("overwrite", False) is True,
                )
        return
    branch = options.get("branch", "")
    with contextlib.suppress(Exception):
        _engine.give_up(
            engine,
            integer()("step", step),
            error,
            overwrite=options.get("overwrite", False) is True,
            delete_later=options.get("delete_later", False) is True,
            branch=branch if isinstance(branch, str) else "",
        )


def own(per_rank: Iterable[str], ranks: Ranks | None) -> list[str]:
    """Subtrees that are a rank's own. ValueError without ranks."""
    subtrees = list(per_rank)
    if subtrees and ranks is None:
        raise InvalidArgumentError(
            "per_rank is of several processes: open the store with ranks="
        )
    return subtrees


def _subtree(name: str, value: Any) -> Any:
    if not isinstance(value, str):
        return NotImplemented
    subtree = value.removesuffix("/**")
    if "*" in subtree or subtree.startswith("re:"):
        raise refuse(name, value, "the name of a subtree, like 'rng'")
    return subtree


# What is a rank's own, and the ranks themselves, as arguments of a store.
PER_RANK = listed(Kind("a str", _subtree), "a list of str")
RANKS = Kind(
    "a ckptree.Ranks or None",
    lambda name, value: (
        value if value is None or isinstance(value, Ranks) else NotImplemented
    ),
)
OF_RANKS = {"per_rank": PER_RANK, "ranks": RANKS}
