# SPDX-License-Identifier: Apache-2.0
"""Store: one directory that holds every step of a training run."""

from __future__ import annotations

import atexit
import os
import warnings
import weakref
from typing import TYPE_CHECKING, Any, Literal, Mapping

from ckptree import _engine
from ckptree.catalog import Catalog
from ckptree.closing import Closing
from ckptree.errors import while_opening
from ckptree.handle import SaveHandle
from ckptree.history import History
from ckptree.metadata import to_json
from ckptree.paths import local_path
from ckptree.records import StoreInfo, StoreStats
from ckptree.retention import Retention
from ckptree.selector import selector_text
from ckptree.upkeep import Upkeep

if TYPE_CHECKING:
    from ckptree.selector import Selector
    from ckptree.step import Step

_open_stores: weakref.WeakSet[Store] = weakref.WeakSet()


class Store(Catalog, History, Retention, Upkeep, Closing):
    """One directory that holds every step of a training run.

    `Store(path)` opens it for writing and creates it where the directory is
    absent or empty; `Store.open(path)` wants it to be there,
    `Store.create(path)` wants it not to; `ckptree.open(path)` only reads,
    beside a live trainer. One process at a time writes: UnavailableError after
    `lock_wait` seconds names the other one. FileNotFoundError: no store.
    StateError: of a newer format. CorruptionError: acknowledged saves are
    missing.

    Steps are chosen by number, "latest", "latest~2", "best:loss:min",
    "best:accuracy:max", "healthy" (the last without NaN and Inf), "@tag", and
    on a fork "BRANCH/latest"; KeyError where nothing matches.

    `threads`: that hash, write and read; 0: one per processor. `staging_bytes`:
    bound of the memory that copies of arrays wait in; 0: an eighth of the
    machine's, at most 4 GiB. `chunk_bytes`: of arrays, 64 KiB to 16 MiB.
    `collect`: free the bytes of deleted steps in the background. `statistics`:
    record NaN, mean, norm, ... of every array. `permissions`: the most bits
    that files may have, less what the umask takes; 0o600: the owner's alone.
    Only the owner of the directory writes. `max_saves_in_flight`: a save beyond
    waits.

    Thread-safe. After fork() (multiprocessing, a DataLoader) every call in the
    child is a StateError, and so is opening for writing there, whether or not
    the store was closed before; reading is possible. At the exit of the
    interpreter saves in flight are finished.

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

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        mode: str = "write or create",
        lock_wait: float = 0,
        threads: int = 0,
        staging_bytes: int = 0,
        chunk_bytes: int = 4 << 20,
        collect: bool = True,
        collect_bytes_per_second: int = 256 << 20,
        statistics: bool = True,
        permissions: int = 0o666,
        max_saves_in_flight: int = 2,
    ) -> None:
        if mode not in ("write or create", "write", "create", "read"):
            raise ValueError(
                f"mode {mode!r}: 'write or create', 'write', 'create' or 'read'"
            )
        with while_opening():
            self._engine = _engine.open(
                local_path(path),
                mode=mode,
                lock_wait=lock_wait,
                threads=threads,
                staging_bytes=staging_bytes,
                chunk_bytes=chunk_bytes,
                collect=collect,
                collect_bytes_per_second=collect_bytes_per_second,
                statistics=statistics,
                permissions=permissions,
                max_saves_in_flight=max_saves_in_flight,
            )
        _open_stores.add(self)

    @classmethod
    def open(cls, path: str | os.PathLike[str], **options: Any) -> Store:
        """A store that is there, for writing. FileNotFoundError elsewhere.

        >>> ckptree.Store.open(tmp / "no run")
        Traceback (most recent call last):
        ckptree.errors.StoreNotFoundError: ...no run...
        """
        return cls(path, mode="write", **options)

    @classmethod
    def create(cls, path: str | os.PathLike[str], **options: Any) -> Store:
        """A new store. FileExistsError where there is one already; ValueError
        where the directory holds anything else.

        >>> with ckptree.Store.create(tmp / "new") as new:
        ...     new.steps()
        []
        """
        return cls(path, mode="create", **options)

    @classmethod
    def _opened(cls, engine: _engine.Store) -> Store:
        """The store of a manager."""
        store = cls.__new__(cls)
        store._engine = engine
        _open_stores.add(store)
        return store

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
    ) -> SaveHandle:
        """Starts saving `state` as step number `step`; returns when the memory
        of its arrays may change again. The bytes that are saved are those at
        the call. What did not change since the last save costs nothing.

        `state`: dicts, lists, tuples, named tuples, dataclasses, None, bool,
        int, float, complex, str, bytes and arrays of NumPy, at any depth; with
        JAX all pytrees and jax.Arrays, with Flax modules and states of NNX;
        with PyTorch tensors, as in state_dict(). Where its root is a dict with
        str keys, these name the items of the step; else it becomes the item
        "state". The same array of NumPy, or tensors that are the same memory,
        at two paths are saved once, and come back as one array.

        Arrays of JAX cannot change, so they are not copied. `borrow` promises
        the same of the others: do not change them before
        handle.wait_staged().

        `metrics`: at most 16 numbers, for "best:NAME:min" and "best:NAME:max".
        `metadata`: what json can write. `branch`: a fork to save to.

        FileExistsError: there is such a step; `overwrite` replaces it.
        `delete_later`: all steps after it are deleted when it is committed, to
        go on from an older one; StateError where one is pinned or tagged.
        TypeError, ValueError: what cannot be saved, by its path. A failure of
        an earlier save that nobody has seen is raised here.

        >>> handle = store.save(300, state, metrics={"loss": 0.1}, note="warm")
        >>> handle.result()
        300
        >>> store.info(300).new_bytes < 1000  # Nothing has changed.
        True
        """
        from ckptree import _rules

        if isinstance(step, bool) or not hasattr(step, "__index__"):
            raise TypeError(f"a step is an int, not {step!r}")
        self._prefetch(state)
        return SaveHandle(
            _engine.save(
                self._engine,
                step=step.__index__(),
                state=state,
                rules=_rules,
                overwrite=overwrite,
                delete_later=delete_later,
                branch=branch,
                metrics={k: float(v) for k, v in (metrics or {}).items()},
                note=note,
                metadata=to_json(metadata),
                borrow=borrow,
            )
        )

    def restore(
        self,
        step: Selector = "latest",
        like: Any = None,
        *,
        partial: bool | str | list[str] = False,
        cast: bool | Literal["lossy"] = False,
        rename: dict[str, str] | None = None,
        sharding: Any = None,
        arrays: Literal["numpy", "jax", "torch"] = "numpy",
        device: Any = None,
    ) -> Any:
        """The state of a step.

        Without `like`: dicts, lists, tuples, numbers, str, bytes and arrays of
        NumPy; named tuples come back as such, dataclasses and other objects as
        dicts of their fields. No framework is imported. `arrays`: "torch" gives
        tensors of PyTorch, on `device` or the host, "jax" jax.Arrays.

        `like`: a state of the same structure, whose containers and types are
        taken; its values are not read: jax.ShapeDtypeStruct does, or a tensor
        on the meta device. A new state is returned. MismatchError lists every
        path that is missing, unexpected or of another kind, shape or dtype.
        `partial`: what the step lacks keeps the value of `like`, what `like`
        lacks is left out; a glob, or a list of them: only that is restored;
        KeyError where that is nothing. `rename`: names in `like` to names in
        the step, of leaves or whole subtrees.

        `cast`: converts to the types of `like`, where the values stay the same;
        arrays are rounded from one floating type to another, but not to Inf.
        Where a value would change (0.5 as an int, a float of Python as a
        float32) that is a MismatchError. "lossy": whatever comes of it.

        `sharding`: of JAX, one for all arrays or a tree like the state.

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
        return self[step].restore(
            like,
            partial=partial,
            cast=cast,
            rename=rename,
            sharding=sharding,
            arrays=arrays,
            device=device,
        )

    def __getitem__(self, step: Selector) -> Step:
        """The step, open for reading. KeyError where nothing matches."""
        from ckptree.step import open_step

        return open_step(self._engine, step, self)

    def __contains__(self, step: Selector) -> bool:
        try:
            self._engine.resolve(selector_text(step))
        except KeyError:
            return False
        return True

    def flush(self, timeout: float | None = None) -> None:
        """Waits until every save begun so far is done; raises the first failure
        that no handle raised, or TimeoutError.

        >>> handle = store.save(300, state)
        >>> store.flush()
        >>> handle.done()
        True
        """
        self._engine.flush(timeout)

    # ---- The store as a whole ----

    @property
    def path(self) -> str:
        """Of its directory.

        >>> store.path == str(tmp / "run")
        True
        """
        return self._engine.directory

    @property
    def closed(self) -> bool:
        """True after close().

        >>> store.closed
        False
        """
        return self._engine.closed

    def about(self) -> StoreInfo:
        """What the store as a whole is.

        >>> about = store.about()
        >>> about.read_only, about.warnings
        (False, [])
        """
        return StoreInfo(**self._engine.info())

    def stats(self) -> StoreStats:
        """Counts since it was opened.

        >>> store.stats().saves_committed
        2
        """
        return StoreStats(**self._engine.stats())

    def refresh(self) -> None:
        """Readers: sees what was committed since the last look.

        >>> with ckptree.open(tmp / "run") as reader:
        ...     _ = store.save(300, state).result()
        ...     reader.refresh()
        ...     300 in reader
        True
        """
        self._engine.refresh()

    def close(self) -> None:
        """Waits for saves in flight, then closes; raises what failed unseen.
        Steps and leaves of the store cannot be read any more. A store that is
        not closed is when nobody holds it, nor a step or a leaf of it.

        >>> store.close()
        >>> store.steps()
        Traceback (most recent call last):
        ckptree.errors.StateError: ...closed...
        """
        self._engine.close()
        _open_stores.discard(self)

    def __del__(self) -> None:
        # There is none where opening failed.
        engine = getattr(self, "_engine", None)
        if engine is None or engine.closed:
            return
        warnings.warn(
            f"{self!r} was not closed",
            ResourceWarning,
            stacklevel=2,
            source=self,
        )
        engine.close()

    def __repr__(self) -> str:
        closed = ", closed" if self.closed else ""
        return f"<ckptree.Store {self.path}{closed}>"

    def _repr_html_(self) -> str:
        from ckptree import html

        return html.store(self)

    def _prefetch(self, state: Any) -> None:
        """Starts all copies from devices before the first is waited for."""
        import sys

        if "jax" in sys.modules:
            from ckptree import jax

            jax.prefetch(state)


def open(path: str | os.PathLike[str], **options: Any) -> Store:
    """A store for reading: no lock, nothing is written, safe beside a live
    trainer; refresh() shows what it saved since.

    >>> import ckptree
    >>> ckptree.Store(tmp / "run").close()
    >>> with ckptree.open(tmp / "run") as reader:
    ...     reader.steps()
    []
    """
    return Store(path, mode="read", **options)


def _close_all() -> None:
    for store in list(_open_stores):
        store.close()


# Whoever registers later is called earlier: what saves at exit still can.
atexit.register(_close_all)
