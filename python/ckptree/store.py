"""Store: one directory that holds every step of a training run."""

from __future__ import annotations

import atexit
import os
import warnings
import weakref
from typing import TYPE_CHECKING, Any, Iterable, Mapping

from ckptree import _engine
from ckptree.handle import SaveHandle
from ckptree.records import (
    CollectReport,
    FreedBytes,
    LineInfo,
    PolicyInfo,
    PolicyReport,
    StepInfo,
    StepUsage,
    StoreInfo,
    StoreStats,
    SubtreeUsage,
    TagInfo,
    UsageReport,
    VerifyReport,
)

if TYPE_CHECKING:
    from types import TracebackType

    from ckptree.policies import Policy
    from ckptree.step import Step

    Selector = int | str | StepInfo | StepUsage | TagInfo

_open_stores: weakref.WeakSet[Store] = weakref.WeakSet()


class Store:
    """One directory that holds every step of a training run.

    `Store(path)` opens it for writing and creates it where the directory is
    absent or empty; `Store.open(path)` wants it to be there, `Store.create(path)`
    wants it not to; `ckptree.open(path)` only reads, beside a live trainer. One
    process at a time writes: UnavailableError after `lock_wait` seconds names
    the other one. FileNotFoundError: no store. StateError: of a newer format.
    CorruptionError: acknowledged saves are missing.

    Steps are chosen by number, "latest", "latest~2", "best:loss",
    "best:accuracy:max", "healthy" (the last without NaN and Inf), "@tag", and
    on a fork "LINE/latest"; KeyError where nothing matches.

    `threads`: that hash, write and read; 0: one per processor. `staging_bytes`:
    bound of the memory that copies of arrays wait in. `chunk_bytes`: of arrays,
    64 KiB to 16 MiB. `collect`: free the bytes of deleted steps in the
    background. `statistics`: record NaN, mean, norm, ... of every array.

    Thread-safe. After fork() (multiprocessing, a DataLoader) every call in the
    child is a StateError. At the exit of the interpreter saves in flight are
    finished.

    >>> import ckptree, numpy as np
    >>> with ckptree.Store(tmp / "run") as store:
    ...     for step in (10, 20):
    ...         _ = store.save(step, {"w": np.full(4, step)}, metrics={"loss": 1 / step})
    >>> reader = ckptree.open(tmp / "run")
    >>> reader.restore("best:loss")
    {'w': array([20, 20, 20, 20])}
    >>> reader.close()
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        mode: str = "write or create",
        lock_wait: float = 0,
        threads: int = 0,
        staging_bytes: int = 4 << 30,
        chunk_bytes: int = 4 << 20,
        collect: bool = True,
        collect_bytes_per_second: int = 256 << 20,
        statistics: bool = True,
    ) -> None:
        if mode not in ("write or create", "write", "create", "read"):
            raise ValueError(
                f"mode {mode!r}: 'write or create', 'write', 'create' or 'read'"
            )
        try:
            self._engine = _engine.open(
                os.fspath(path),
                mode=mode,
                lock_wait=lock_wait,
                threads=threads,
                staging_bytes=staging_bytes,
                chunk_bytes=chunk_bytes,
                collect=collect,
                collect_bytes_per_second=collect_bytes_per_second,
                statistics=statistics,
            )
        except KeyError as error:
            from ckptree.errors import StoreNotFoundError

            raise StoreNotFoundError(str(error)) from None
        _open_stores.add(self)

    @classmethod
    def open(cls, path: str | os.PathLike[str], **options: Any) -> Store:
        """A store that is there, for writing. FileNotFoundError elsewhere."""
        return cls(path, mode="write", **options)

    @classmethod
    def create(cls, path: str | os.PathLike[str], **options: Any) -> Store:
        """A new store. FileExistsError where there is one already; ValueError
        where the directory holds anything else."""
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
        line: str = "",
        borrow: bool = False,
    ) -> SaveHandle:
        """Starts saving `state` as step number `step`; returns when the memory
        of its arrays may change again. The bytes that are saved are those at
        the call. What did not change since the last save costs nothing.

        `state`: dicts, lists, tuples, named tuples, dataclasses, None, bool,
        int, float, complex, str, bytes and arrays of NumPy, at any depth; with
        JAX all pytrees and jax.Arrays, with Flax modules and states of NNX.
        Where its root is a dict with str keys, these name the items of the
        step; else it becomes the item "state". The same array of NumPy at
        two paths is saved once and comes back as one.

        Arrays of JAX cannot change, so they are not copied. `borrow` promises
        the same of NumPy's: do not change them before handle.staged().

        `metrics`: at most 16 numbers, for "best:NAME". `metadata`: what json
        can write. `line`: a fork to save to.

        FileExistsError: there is such a step; `overwrite` replaces it.
        TypeError, ValueError: what cannot be saved, by its path. A failure of
        an earlier save that nobody has seen is raised here.
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
                line=line,
                metrics={k: float(v) for k, v in (metrics or {}).items()},
                note=note,
                metadata="" if metadata is None else _json(metadata),
                borrow=borrow,
            )
        )

    def restore(
        self,
        step: Selector = "latest",
        like: Any = None,
        *,
        partial: bool | str | list[str] = False,
        cast: bool = False,
        rename: dict[str, str] | None = None,
        sharding: Any = None,
    ) -> Any:
        """The state of a step.

        Without `like`: dicts, lists, tuples, numbers, str, bytes and arrays of
        NumPy; named tuples come back as such, dataclasses and other objects as
        dicts of their fields. No framework is imported.

        `like`: a state of the same structure, whose containers and types are
        taken; its values are not read, jax.ShapeDtypeStruct does. A new state
        is returned. MismatchError lists every path that is missing, unexpected
        or of another kind, shape or dtype. `partial`: what the step lacks keeps
        the value of `like`, what `like` lacks is left out; a glob, or a list of
        them: only that is restored. `cast`: converts elements. `rename`: names
        in `like` to names in the step, of leaves or whole subtrees.

        `sharding`: of JAX, one for all arrays or a tree like the state.

        >>> import ckptree, numpy as np
        >>> store = ckptree.Store(tmp / "run")
        >>> _ = store.save(1, {"w": np.ones(2), "biases": 0.5}).result()
        >>> store.restore(like={"w": np.zeros(2, "f4"), "bias": 0.0})
        Traceback (most recent call last):
        ckptree.errors.MismatchError: step 1 does not fit the template at 3 paths:
          w: dtype differs, expected float32[2], the step has float64[2] (or pass cast=True)
          bias: missing, expected float (or pass rename={'bias': 'biases'})
          biases: unexpected, the step has float
        >>> store.close()
        """
        return self[step].restore(
            like, partial=partial, cast=cast, rename=rename, sharding=sharding
        )

    def __getitem__(self, step: Selector) -> Step:
        """The step, open for reading. KeyError where nothing matches."""
        from ckptree.step import Step

        selector = _selector(step)
        return Step(_engine.restore(self._engine, selector), selector)

    def __contains__(self, step: Selector) -> bool:
        try:
            self._engine.resolve(_selector(step))
        except KeyError:
            return False
        return True

    def flush(self, timeout: float | None = None) -> None:
        """Waits until every save begun so far is done; raises the first failure
        that no handle raised, or TimeoutError."""
        self._engine.flush(timeout)

    # ---- The catalog ----

    def steps(self, line: str = "") -> list[StepInfo]:
        """All steps of a line, ascending by number."""
        return [StepInfo(**fields) for fields in self._engine.steps(line)]

    def info(self, step: Selector = "latest") -> StepInfo:
        """What a step is, without opening it."""
        return StepInfo(**self._engine.resolve(_selector(step)))

    def delete(self, *steps: Selector) -> None:
        """Removes steps, durably, all or none. Their bytes are freed in the
        background, or by collect(). StateError where one is pinned."""
        self._engine.delete([_selector(step) for step in steps])

    def tag(self, name: str, step: Selector, *, move: bool = False) -> None:
        """A name for a step: "@name". FileExistsError without `move` where
        another step has it."""
        self._engine.tag(name, _selector(step), move)

    def untag(self, name: str) -> None:
        self._engine.untag(name)

    def tags(self) -> list[TagInfo]:
        return [TagInfo(**fields) for fields in self._engine.tags()]

    def pin(self, step: Selector) -> None:
        """A pinned step is neither deleted nor overwritten."""
        self._engine.pin(_selector(step))

    def unpin(self, step: Selector) -> None:
        self._engine.unpin(_selector(step))

    def fork(self, step: Selector, line: str) -> None:
        """A new line that goes on from `step` and shares its bytes; save to it
        with `line`."""
        self._engine.fork(_selector(step), line)

    def drop_line(self, line: str) -> None:
        """Deletes the line with all its steps."""
        self._engine.drop_line(line)

    def lines(self) -> list[LineInfo]:
        """The main line first."""
        return [LineInfo(**fields) for fields in self._engine.lines()]

    # ---- The policy ----

    def policy(self, line: str = "") -> PolicyInfo:
        """Which steps of the line live. Where none was set all do."""
        return PolicyInfo(**self._engine.policy(line))

    def set_policy(self, policy: Policy | str, line: str = "") -> None:
        """From now on every save to the line, by whatever program, removes the
        steps that `policy` (of ckptree.policies, or its text) does not keep.
        Pinned and tagged ones stay. Nothing is removed by this call.

        >>> import ckptree
        >>> with ckptree.Store(tmp / "run") as store:
        ...     store.set_policy(ckptree.Latest(2) | ckptree.EveryN(1000))
        ...     for step in (1000, 1001, 1002, 1003):
        ...         _ = store.save(step, {"w": step}).result()
        ...     [info.step for info in store.steps()]
        ...     store.policy().text
        [1000, 1002, 1003]
        'latest(2) | every(1000)'
        """
        self._engine.set_policy(_policy(policy), line)

    def preview_policy(
        self, policy: Policy | str | None = None, line: str = ""
    ) -> PolicyReport:
        """What the policy of the line, or `policy`, keeps of the steps there
        are, why, and what removing the others would free. Changes nothing."""
        given = None if policy is None else _policy(policy)
        return PolicyReport.of(self._engine.preview_policy(line, given))

    def apply_policy(self, line: str = "") -> list[int]:
        """Removes now what the policy of the line does not keep; returns it."""
        return self._engine.apply_policy(line)

    def metadata(self, line: str = "") -> Any:
        """What set_metadata() said of the run; None: nothing."""
        import json

        text = self._engine.metadata(line)
        return json.loads(text) if text else None

    def set_metadata(self, metadata: Any, line: str = "") -> None:
        """Of the run as a whole: what json can write. None: nothing."""
        text = "" if metadata is None else _json(metadata)
        self._engine.set_metadata(text, line)

    # ---- The bytes ----

    def verify(
        self, level: str = "full", steps: Iterable[Selector] = ()
    ) -> VerifyReport:
        """Reads and checks the steps, or all. "quick": records only; "full":
        every chunk against its digest; "deep": everything that can be computed
        again. What is wrong is in the report. Ctrl-C stops it."""
        selectors = [_selector(step) for step in steps]
        return VerifyReport.of(self._engine.verify(level, selectors))

    def collect(
        self, min_dead_fraction: float = 0.25, bytes_per_second: int = 0
    ) -> CollectReport:
        """Frees now what no step needs. Files of which at least that fraction
        is dead are written again; 1: none. Ctrl-C stops it: what was freed
        stays so."""
        return CollectReport.of(
            self._engine.collect(min_dead_fraction, bytes_per_second)
        )

    def usage(self) -> UsageReport:
        """What each step costs. Reads no arrays."""
        return UsageReport.of(self._engine.usage())

    def would_free(self, *steps: Selector) -> FreedBytes:
        """What deleting these steps would free."""
        selectors = [_selector(step) for step in steps]
        return FreedBytes.of(self._engine.would_free(selectors))

    def subtrees(
        self, step: Selector = "latest", depth: int = 1
    ) -> list[SubtreeUsage]:
        """What the subtrees of a step cost, down to `depth` keys."""
        found = self._engine.subtrees(_selector(step), depth)
        return [SubtreeUsage(**fields) for fields in found]

    # ---- The store as a whole ----

    @property
    def path(self) -> str:
        return self._engine.directory

    @property
    def closed(self) -> bool:
        return self._engine.closed

    def about(self) -> StoreInfo:
        """What the store as a whole is."""
        return StoreInfo(**self._engine.info())

    def stats(self) -> StoreStats:
        """Counts since it was opened."""
        return StoreStats(**self._engine.stats())

    def refresh(self) -> None:
        """Readers: sees what was committed meanwhile."""
        self._engine.refresh()

    def close(self) -> None:
        """Waits for saves in flight, then closes; raises what failed unseen.
        Steps and leaves of the store cannot be read any more."""
        self._engine.close()
        _open_stores.discard(self)

    def __enter__(self) -> Store:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def __del__(self) -> None:
        # There is none where opening failed.
        engine = getattr(self, "_engine", None)
        if engine is None or engine.closed:
            return
        warnings.warn(
            f"{self!r} was not closed", ResourceWarning, stacklevel=2, source=self
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


def _selector(step: Selector) -> str:
    if isinstance(step, (StepInfo, StepUsage, TagInfo)):
        return f"{step.line}/{step.step}" if step.line else str(step.step)
    if isinstance(step, str):
        return step
    if isinstance(step, bool) or not hasattr(step, "__index__"):
        raise TypeError(f"a step is an int or a str like 'latest', not {step!r}")
    return str(step.__index__())


def _policy(policy: Policy | str) -> _engine.Preservation:
    if isinstance(policy, str):
        return _engine.parse_policy(policy)
    try:
        return policy._engine
    except AttributeError:
        raise TypeError(f"a policy or its text is wanted, not {policy!r}") from None


def _json(metadata: Any) -> str:
    import json

    try:
        return json.dumps(metadata, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise type(error)(f"metadata is what json can write: {error}") from None


def _close_all() -> None:
    for store in list(_open_stores):
        store.close()


def _after_fork_in_child() -> None:
    if _open_stores:
        _engine.exit_without_destructors()


# Whoever registers later is called earlier: what saves at exit still can.
atexit.register(_close_all)
os.register_at_fork(after_in_child=_after_fork_in_child)
