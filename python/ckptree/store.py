# SPDX-License-Identifier: Apache-2.0
"""Store: one directory that holds every step of a training run."""

from __future__ import annotations

import functools
import os
from collections.abc import Iterable, Mapping

from ckptree import _engine, forks
from ckptree.arguments import TEXT, checked, either, integer, optional
from ckptree.catalog import Catalog
from ckptree.comparing import Comparing
from ckptree.errors import NotFoundError, while_opening
from ckptree.handle import SaveHandle
from ckptree.hints import TYPE_CHECKING, Any, TypeVar, overload
from ckptree.holding import open_stores
from ckptree.metadata import nanoseconds, to_json
from ckptree.options import OPEN, RESTORE, OpenOptions, RestoreOptions, takes
from ckptree.paths import local_path, place_to_read, with_parents
from ckptree.paths import plain_address
from ckptree.policy_argument import POLICY, policy_text
from ckptree.progress import stopping
from ckptree.ranks import OF_RANKS, Ranks, open_engine, own
from ckptree.ranks import telling, told, was_interrupted
from ckptree.report import Reporting
from ckptree.selector import SELECTOR, selector_text
from ckptree.sharing import share
from ckptree.step import Step
from ckptree.upkeep import Upkeep

if TYPE_CHECKING:
    import datetime

    from typing_extensions import Unpack

    from ckptree.selector import Selector

State = TypeVar("State")

OF_OPENING = {"local_keep": optional(either(POLICY, TEXT))}


@telling
@checked(
    {"step": SELECTOR, **OF_OPENING, **OF_RANKS},
    save={"step": integer()},
)
class Store(Catalog, Comparing, Upkeep, Reporting):
    """One directory that holds every step of a training run.

    `Store(path)` opens it for writing and creates it where the directory is
    absent or empty; `Store.open(path)` wants it to be there,
    `Store.create(path)` wants it not to; `ckptree.open(path)` only reads,
    beside a live trainer. One process at a time writes.

    Steps are chosen by number, "latest", "latest~2", "best:loss:min",
    "best:accuracy:max", "healthy" (the last without NaN and Inf), "@tag", and
    on a fork "BRANCH/latest"; KeyError where nothing matches. restore() and
    `store[step]` see what this store was told to save before; all else tells of
    steps that are saved.

    A process that opens a store again for writing, by Store or
    CheckpointManager, gets the same engine: it is closed with the last of them
    that holds it. Options that were given to the first hold for all; others are
    a StateError that names both values.

    Thread-safe. After fork() (multiprocessing, a DataLoader) every call in the
    child is a StateError, and so is opening for writing there, whether or not
    the store was closed before; reading is possible. At the exit of the
    interpreter saves in flight are finished; where one fails, the process ends
    with 120, and the failure is on stderr.

    Parameters
    ----------
    path : str or os.PathLike
        The directory. Only its owner writes. A new store may stand beside files
        and folders of others, but for those that are called as steps are, 100
        or step_100: they may be checkpoints of another kind.
    mode : str
        "write or create", "write", "create" or "read".
    ranks : Ranks, optional
        This process among several that save each step together, each of which
        opens the store so: this call returns on all of them, or fails on all.
        They begin the same steps in the same order. Only rank 0 can change
        what was saved; to the others that is a StateError.
    lock_wait : float
        Seconds to wait for another process that writes. A command that changes
        the store, as `ckptree tag` and `rm`, is waited for ten in any case.
    threads : int
        That hash, write and read, one per processor at most; 0: so many.
    staging_bytes : int
        Bound of the memory that copies of arrays wait in; 0: an eighth of the
        machine's, at most 4 GiB.
    staging_idle : float
        Seconds without a save after which that memory goes back to the system;
        float("inf"): when the store is closed. Where arrays lie on a device it
        is page-locked, and a save that makes it anew waits for that.
    chunk_bytes : int
        Of arrays, 64 KiB to 16 MiB.
    collect : bool
        Free the bytes of deleted steps in the background.
    collect_bytes_per_second : int
        What that reads at most, to write files again; 0: no bound.
    statistics : bool
        Record NaN, mean, norm, ... of every array. Without them it is not
        known whether a step is healthy: "healthy" does not choose it, and
        policies that ask for health are refused.
    permissions : int
        The most bits that files may have, less what the umask takes; 0o600:
        the owner's alone.
    max_saves_in_flight : int
        A save beyond waits.
    coding : {"none", "planes", "auto"}, optional
        How new arrays stand on the disk, and in the remote. "planes": without
        loss in a fifth less (bf16 a third; a bf16 copy of an fp32 array of the
        same save takes nothing), for up to half a second of a processor a GB.
        "auto": by whether the last save waited for the disk. None: "planes"
        with a remote, else "none". Any store reads both.
    remote : str
        An object store that gets every commit behind the disk: "s3://...",
        "rados://..." or "file://..."; "gs://..." where CKPTREE_GS_ENDPOINT is
        set and the bucket creates objects conditionally. An absent or empty
        directory becomes the store that is there; what another one lost of its
        segments comes back when it is opened, and array bytes that are damaged
        in it are read there. With ranks, rank 0 ships what all save. Where
        nobody answers there, opening it fails after about a minute. "": none.
    durable : {"local", "remote"}
        Where a step is once its save is done. Of saves alone: what tag(),
        delete() and the like changed is on the disk when they return, and
        follows there; wait_replicated() waits for it.
    take_over : bool
        Also where another process wrote to the remote less than ten minutes ago
        and did not close it: its saves fail from then on. Else a StateError.
        Also where the remote has lost the object `store`, which says whose
        the others are: it is made anew, where they are of one store. And
        where it has nothing of what this directory shipped there, as a share
        that is not mounted: all is shipped again. Else both are a StateError.
    remote_timeout : float
        Seconds that a save with `durable="remote"`, and close(), wait for it;
        not of opening it. Ranks that share no folder wait at most
        `Ranks(deadline=)` more, and some requests, where it does not answer.
    remote_grace : float
        Seconds that objects in the remote stay once nothing needs them: who
        reads there for longer may meet StepGone.
    local_keep : Policy or str, optional
        Which steps stay on this disk: `"latest(3)"`. Arrays that no such step
        needs leave it once they are in the remote, and are read there, with its
        credentials; metadata and statistics stay. The newest step of a branch
        always stays, pinned and tagged ones need not; no step is removed. One
        that is to stay again comes back, behind the opening: "all" brings back
        all, and info().far_nbytes is 0 then. None: nothing leaves, and what
        left stays away. Functions of a program cannot be among its rules.

    Raises
    ------
    StoreNotFoundError
        There is no store: a FileNotFoundError.
    UnavailableError
        Another process writes, which is named; or ranks did not come within
        the deadline, which are named.
    StateError
        The ranks do not agree; the store is of a newer format, or is open in
        this process with other options.
    PermissionDeniedError
        Nothing can be written there: a PermissionError. open() reads it.
    CorruptionError
        Saves that were acknowledged are missing.

    Examples
    --------
    >>> import ckptree, numpy as np
    >>> store = ckptree.Store(tmp / "run")
    >>> state = {"params": {"w": np.zeros((4, 3), "f4")}, "lr": 0.5}
    >>> for step in (100, 200):
    ...     state["params"]["w"] += 1
    ...     handle = store.save(step, state, metrics={"loss": 1 / step})
    >>> store.flush()
    >>> store.restore("best:loss:min")["params"]["w"].max()
    np.float32(2.0)
    """

    @takes(OpenOptions, OPEN)
    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        mode: str = "write or create",
        ranks: Ranks | None = None,
        **options: Unpack[OpenOptions],
    ) -> None:
        directory = place_to_read(path) if mode == "read" else local_path(path)
        keep = policy_text("local_keep", options["local_keep"])
        options["local_keep"] = keep
        options["remote"] = plain_address(options["remote"])

        def opened() -> _engine.Store:
            looking = was_interrupted(directory)
            with while_opening(reading=mode == "read", looking=looking):
                return with_parents(
                    directory,
                    "create" in mode,
                    lambda: open_engine(directory, mode, ranks, options),
                )

        self._ranks = ranks
        self._is_spread = ranks is not None and ranks.world > 1
        self._managed = None
        self._shared = None
        self._holder = object()
        try:
            if mode == "read":
                self._engine = opened()
            else:
                self._shared = share(
                    directory,
                    mode == "create",
                    options,
                    OPEN,
                    opened,
                    ranks,
                    self._holder,
                )
                self._engine = self._shared.engine
        except BaseException:
            _engine.deliver_opened()
            raise
        open_stores.add(self)
        try:
            # Handlers of logging may do anything: no lock is held here.
            _engine.deliver_opened()
        except BaseException:
            self._give_up()
            raise

    @classmethod
    @takes(OpenOptions, OPEN)
    def open(
        cls, path: str | os.PathLike[str], **options: Unpack[OpenOptions]
    ) -> Store:
        """A store that is there, for writing. FileNotFoundError elsewhere.

        >>> ckptree.Store.open(tmp / "no run")
        Traceback (most recent call last):
        ckptree.errors.StoreNotFoundError: ...no run...
        """
        return cls(path, mode="write", **options)

    @classmethod
    @takes(OpenOptions, OPEN)
    def create(
        cls, path: str | os.PathLike[str], **options: Unpack[OpenOptions]
    ) -> Store:
        """A new store. FileExistsError where there is one already; ValueError
        where the directory holds anything else.

        >>> with ckptree.Store.create(tmp / "new") as new:
        ...     new.steps()
        []
        """
        return cls(path, mode="create", **options)

    # ---- Saving and restoring ----

    def save(
        self,
        step: int,
        state: Any,
        *,
        metrics: Mapping[str, float] | None = None,
        note: str = "",
        metadata: Any = None,
        overwrite: bool = False,
        delete_later: bool = False,
        branch: str = "",
        borrow: bool = False,
        time: datetime.datetime | float | None = None,
        per_rank: Iterable[str] = (),
    ) -> SaveHandle:
        """Starts saving `state` as step number `step`.

        Returns when the memory of its arrays may change again. The bytes that
        are saved are those at the call. What did not change since the last
        save costs nothing.

        Parameters
        ----------
        step : int
            Its number.
        state : tree
            Dicts, lists, tuples, named tuples, dataclasses, None, bool, int,
            float, complex, str, bytes and arrays of NumPy, at any depth; with
            JAX all pytrees and jax.Arrays, with Flax modules and states of
            NNX; with PyTorch tensors, as in state_dict(). Where its root is a
            dict with str keys, these name the items of the step; else it
            becomes the item "state". The same array of NumPy, or tensors that
            are the same memory, at two paths are saved once, and come back as
            one array. Arrays of JAX are not copied: what another library lent
            to one must not change before handle.wait_staged(). Of a dataclass
            its fields are saved: arrays in other attributes, but those of
            functools.cached_property, are a TypeError.
        metrics : dict of str to float, optional
            At most 16 numbers, for "best:NAME:min" and "best:NAME:max"; of
            ints those that a float holds exactly.
        note : str
            A line for people.
        metadata : optional
            What json can write, with str for all keys of dicts; tuples come
            back as lists, which a warning says.
        overwrite : bool
            Replaces a step of that number; StateError where it is pinned or
            tagged.
        delete_later : bool
            Deletes all steps after it when it is committed, to go on from an
            older one.
        branch : str
            A fork to save to; "": the main branch.
        borrow : bool
            Waits for no copy, and copies nothing of the host: do not change
            arrays, and donate none of a device, before handle.wait_staged().
            Of what changes before, some bytes are old and some new: reading
            it may be a CorruptionError, as if the disk had damaged it.
        time : datetime.datetime or float, optional
            Of the step, for policies and listings, with its zone or in
            seconds since 1970: of a step that was saved before, elsewhere.
            None: now.
        per_rank : list of str
            With `ranks`: the subtrees ("rng", "loader") in which each rank
            has values of its own, under names of its own: state["rng"]["3"].
            Of an array of JAX that is spread over processes each saves its
            shards; all else every rank has to have alike, and one saves it.
            What `metrics`, `note` and `metadata` say counts from rank 0.

        Returns
        -------
        SaveHandle
            Says when the step is durable. With `ranks`, result() is the same
            on all of them: a failure of one is raised by all, and names it.

        Raises
        ------
        AlreadyExistsError
            There is such a step: a FileExistsError.
        StateError
            A step that would be deleted is pinned or tagged.
        TypeError, ValueError
            What cannot be saved, by its path.
        Error
            A failure of an earlier save that nobody has seen and whose handle
            nobody holds any more. While somebody does, flush() and close()
            raise it.

        Examples
        --------
        >>> handle = store.save(300, state, metrics={"loss": 0.1}, note="warm")
        >>> handle.result()
        300
        >>> store.step_info(300).new_bytes < 1000  # Nothing has changed.
        True
        """
        from ckptree import _rules

        subtrees = own(per_rank, self._ranks)
        arguments: dict[str, Any] = {
            "overwrite": overwrite,
            "delete_later": delete_later,
            "branch": branch,
            "metrics": metrics or {},
            "note": note,
            "metadata": to_json(metadata),
            "borrow": borrow,
            "time_ns": None if time is None else nanoseconds(time),
            "per_rank": subtrees,
        }
        rules = _rules.Spread(subtrees) if self._is_spread else _rules
        self._note()
        with told():
            begun = _engine.save(
                self._live(), step=step, state=state, rules=rules, **arguments
            )
        self._note(begun)
        return SaveHandle(begun)

    @overload
    def restore(
        self,
        step: Selector = "latest",
        like: None = None,
        **options: Unpack[RestoreOptions],
    ) -> Any: ...

    @overload
    def restore(
        self,
        step: Selector,
        like: State,
        **options: Unpack[RestoreOptions],
    ) -> State: ...

    @overload
    def restore(
        self,
        step: Selector = "latest",
        *,
        like: State,
        **options: Unpack[RestoreOptions],
    ) -> State: ...

    @takes(RestoreOptions, RESTORE)
    def restore(
        self,
        step: Selector = "latest",
        like: Any = None,
        **options: Unpack[RestoreOptions],
    ) -> Any:
        """The state of a step.

        Parameters
        ----------
        step : int, str or a record of the step
            Which one: a number, "latest", "best:loss:min", ... What this store
            was told to save before counts: a save that is in flight and may be
            the step is waited for; without ranks, where flush() does that.
        like : tree, optional
            A state of the same structure, whose containers and types are
            taken; its values are not read: jax.ShapeDtypeStruct does, or a
            tensor on the meta device. A new state is returned.
        partial : bool, str or list of str
            What the step lacks keeps the value of `like`, what `like` lacks is
            left out; a glob of names of the step, behind `rename`, or a list of
            them: only that is restored, without `like`, too.
        cast : bool or "lossy"
            Converts to the types of `like`, where the values stay the same;
            arrays are rounded from one floating type to another, but not to
            Inf. "lossy": whatever comes of it.
        rename : dict of str to str, optional
            Names in `like` to names in the step, of leaves or whole subtrees;
            "" is the whole tree.
        sharding : jax.sharding.Sharding, or a tree of them, optional
            Of all arrays, or of each.
        arrays : "numpy", "jax" or "torch"
            What arrays are without `like`.
        device : torch.device or str, optional
            Where tensors are put without `like`; None: the host.
        progress : bool or callable, optional
            True: a bar of tqdm. A function: it is called with the bytes that
            were read and the bytes in all, on this thread, at most ten times a
            second and once at the end; what it raises stops the call.

        Returns
        -------
        tree
            Without `like`: dicts, lists, tuples, numbers, str, bytes and
            arrays; named tuples come back as such, dataclasses and other
            objects as dicts of their fields. No framework is imported but the
            one that `arrays` names.

        Raises
        ------
        NotFoundError
            No step matches, or nothing is left to restore: a KeyError.
        MismatchError
            Lists every path that is missing, unexpected, of another kind,
            shape or dtype, or whose value `cast` would change (0.5 as an int, a
            float of Python as a float32).
        CorruptionError
            The bytes are not those that were saved.

        Examples
        --------
        >>> _ = store.save(1, {"w": np.ones(2), "biases": 0.5}).result()
        >>> store.restore(1, like={"w": np.zeros(2, "f4"), "bias": 0.0})
        Traceback (most recent call last):
        ckptree.errors.MismatchError: step 1 does not fit the template at 3
          paths:
          w: dtype differs, expected float32[2], the step has float64[2] (or
             pass cast=True)
          bias: missing, expected float (or pass rename={'bias': 'biases'})
          biases: unexpected, the step has float
        """
        return self[step].restore(like, **options)

    @takes(RestoreOptions, RESTORE)
    async def restore_async(
        self,
        step: Selector = "latest",
        like: Any = None,
        **options: Unpack[RestoreOptions],
    ) -> Any:
        """As restore(), without blocking the event loop: it runs on a thread,
        and so does `progress`. Where the task is cancelled it stops.

        >>> import asyncio
        >>> asyncio.run(store.restore_async(100, partial="lr"))
        {'lr': 0.5}
        """
        import asyncio

        with stopping(options["progress"], "restore") as told:
            options["progress"] = told
            return await asyncio.to_thread(
                lambda: self.restore(step, like, **options)
            )

    @takes(RestoreOptions, RESTORE)
    def restore_or(
        self,
        state: State,
        step: Selector = "latest",
        **options: Unpack[RestoreOptions],
    ) -> tuple[State, int | None]:
        """A state to go on from: that of the step, like `state`, and the step's
        number; where no step matches `state` itself, and None. The latest step
        of a fork that has none yet is that which it was made of.

        Parameters
        ----------
        state : tree
            What training begins with, and the template.
        step : int or str
            As in restore().
        partial, cast, rename, sharding, arrays, device, progress
            As in restore().

        Returns
        -------
        tuple
            The state, and the number of the step or None.

        Raises
        ------
        NotFoundError
            There is no such branch, or the step that a fork was made of, which
            has none yet, was deleted or saved anew: a KeyError.
        MismatchError, CorruptionError
            As restore() says: what is there and does not fit is an error.

        Examples
        --------
        >>> state, number = store.restore_or({"lr": 0.5}, partial="lr")
        >>> number
        200
        >>> store.restore_or(state, "@none")[1] is None
        True
        """
        opened = self._to_go_on_from(selector_text(step))
        if opened is None:
            return state, None
        return opened.restore(state, **options), opened.step

    def _to_go_on_from(self, selector: str) -> Step | None:
        """The step; of the latest one of a fork that has none yet, that which
        the fork was made of, as a manager has it. None: none matches.
        NotFoundError: there is no such branch, or the fork's origin is gone."""
        try:
            return self[selector]
        except NotFoundError:
            fork = forks.new_fork(self.branches(), selector)
        if fork is None or not forks.names_latest(selector):
            return None
        if forks.origin_is_dropped(fork):
            raise forks.origin_gone(fork, "was dropped")
        try:
            opened = self[forks.origin(fork)]
        except NotFoundError:
            raise forks.origin_gone(fork, "was deleted") from None
        if opened.info.version != fork.origin_version:
            raise forks.origin_gone(fork, "was saved anew")
        return opened

    def __getitem__(self, step: Selector) -> Step:
        """The step, open for reading. KeyError where nothing matches. Waits for
        saves that are in flight, where one of them may be what is asked for:
        of a number, that step."""
        selector = selector_text(step)
        try:
            found = _engine.restore(self._knowing(selector), selector)
        except NotFoundError as error:
            raise forks.advised(self.branches(), error, selector) from None
        return Step(found, selector, self)

    def __repr__(self) -> str:
        closed = ", closed" if self.closed else ""
        rank = f", {self._ranks.named}" if self._ranks else ""
        return f"<ckptree.Store {self.path}{rank}{closed}>"

    def _ipython_key_completions_(self) -> list[Selector]:
        tags = [f"@{tag.name}" for tag in self.tags()]
        return [*self, "latest", "healthy", *tags]

    def __reduce__(self) -> Any:
        """A reader is one of the same directory where it is unpickled."""
        reads = not self.closed and self._engine.info()["read_only"]
        if not reads or self._ranks is not None:
            raise TypeError(
                f"{self!r} cannot be pickled: one process writes; readers, of "
                "ckptree.open(), can"
            )
        return functools.partial(Store, mode="read"), (self.path,)

    def _repr_html_(self) -> str:
        from ckptree import html

        if self.closed:
            return html.text(repr(self))
        return html.store(self.path, self.steps())
