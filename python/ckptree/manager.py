# SPDX-License-Identifier: Apache-2.0
"""CheckpointManager: the steps of a training loop."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Callable, Iterable, Mapping

from ckptree import _engine
from ckptree.arguments import TEXT, checked, either, integer, optional
from ckptree.closing import Closing
from ckptree.decisions import DECISION
from ckptree.errors import Error, InvalidArgumentError, while_opening
from ckptree.handle import SaveHandle, follow, with_more
from ckptree.manager_reading import ManagerReading
from ckptree.metadata import to_json
from ckptree.options import OPEN, OpenOptions, takes
from ckptree.policy_argument import POLICY, engine_policy
from ckptree.policy_step import of_metrics
from ckptree.progress import showing
from ckptree.ranks import OF_RANKS, Ranks, own, telling, told
from ckptree.store import Store
from ckptree.unmeasured import Unmeasured

if TYPE_CHECKING:
    from datetime import timedelta

    from typing_extensions import Unpack

    from ckptree.decisions import Decision
    from ckptree.policies import Policy
    from ckptree.policy_step import MetricOfStep
    from ckptree.progress import Progress


@telling
@checked(
    {
        "step": integer(),
        "preservation": optional(either(POLICY, TEXT)),
        "local_keep": optional(either(POLICY, TEXT)),
        "save_decision": optional(DECISION),
        **OF_RANKS,
    },
    reached_preemption={"step": optional(integer())},
)
class CheckpointManager(ManagerReading, Closing):
    """The steps of a training loop: decides which are saved, keeps those that a
    policy wants, and resumes. The store is made where there is none.

    Saved are the first step, steps that `save_interval_steps` divides, those of
    `save_on_steps`, and one at a preemption. Kept are the latest `max_to_keep`,
    or with `best_metric` or `best_fn` the best ones, and with them what
    `keep_period`, `keep_time_interval` and `should_keep_fn` say.

    Failures in the background are raised by the next save(),
    wait_until_finished(), check_for_errors() or close(), each once. That a
    policy could not be applied stops no save: the last three raise it, once.
    Thread-safe. Functions must not call the manager.

    A process may have several of them, and Stores, on one path: they share what
    is open, which closes with the last of them. Each decides by itself what it
    saves, sees the saves of all as steps as soon as they begin, and is told of
    the failures of its own. Of their policies that one holds whose manager
    began a save last: one that only restores changes nothing. What was set by
    hand since a manager was opened stays for its saves.

    Parameters
    ----------
    path : str or os.PathLike
        The store's directory, as of Store().
    max_to_keep : int, optional
        How many steps to keep, of the latest or of the best; None: all.
    keep_period : int, optional
        Also steps that it divides.
    keep_time_interval : datetime.timedelta or float, optional
        Also one step each so long; seconds where it is a number.
    should_keep_fn : callable, optional
        Also steps for whose number it is true.
    preservation : Policy or str, optional
        Instead of all these: a policy or its text. With none of them the policy
        of the store holds, but one that came with the options of a program,
        which goes. It is set by the first save: a manager that only restores
        changes nothing.
    best_metric : str
        The metric that says which steps are the best. Where no step has it all
        of them stay, and steps of which it is NaN stay beside the best ones; a
        warning of each is logged once.
    best_fn : callable, optional
        Instead: a function of a step's metrics.
    best_mode : "min" or "max", optional
        Whether the smallest or the largest value is the best. One must be said
        where there is a metric.
    keep_checkpoints_without_metrics : bool
        Whether steps that lack the metric stay beside the best ones.
    save_interval_steps : int, optional
        Saves steps that it divides; None: none for that.
    save_on_steps : list of int
        Also saves these.
    should_save_fn : callable, optional
        Instead of the two: a function of the step and the latest one, or None.
    save_decision : Decision, optional
        One of ckptree.decisions, which decides all.
    metadata : optional
        Of the run: what json can write; stored where there is none.
    branch : str
        A fork to work on; "": the main branch.
    read_only : bool
        Reads beside a trainer that writes; reload() shows its later steps.
    create : bool
        Makes the store where there is none; False: StoreNotFoundError.
    watch_sigterm : bool
        SIGTERM is a preemption; handlers that were set before run, too.
    save_timeout : float, optional
        Seconds that save() waits for earlier saves, and at a preemption for its
        own; TimeoutError then. None waits on.
    ranks : Ranks, optional
        This process among those that save one step together, as in Store. Each
        has a manager, and calls save(), should_save(),
        reached_preemption(step), delete(), delete_after() and fork_from() for
        the same steps in the same order. Whether a step is saved, and which
        ones live, rank 0 decides: clocks, functions, metrics, `force` and
        `metadata` of other ranks count nowhere. Nobody waits for it where its
        options name numbers of steps and this is none of them; else a rank
        waits up to Ranks.deadline. A failed save is raised on every rank, by
        its next save() that rank 0 was asked about, or by
        wait_until_finished(). SIGTERM on any rank is a preemption of all, at
        the same step: with `watch_sigterm`, for which rank 0 is asked at each
        step, the next one.
    lock_wait, threads, staging_bytes, staging_idle, chunk_bytes, collect,
    collect_bytes_per_second, statistics, permissions, max_saves_in_flight,
    coding, remote, durable, take_over, remote_timeout, remote_grace, local_keep
        As in Store; but one save is in flight, and save() waits for it.

    Raises
    ------
    StoreNotFoundError
        There is no store, and none is to be made.
    UnavailableError
        Another process writes, which is named; or ranks did not come.
    StateError
        It is open in this process with other options; both values are named.
        The ranks do not agree.
    TypeError, ValueError
        Options of a wrong type; that make no sense, or contradict each other.

    Examples
    --------
    >>> import ckptree, numpy as np
    >>> manager = ckptree.CheckpointManager(
    ...     tmp / "run", best_metric="accuracy", best_mode="max"
    ... )
    >>> for step in range(4):
    ...     state = {"w": np.full(3, step), "lr": 0.5}
    ...     saved = manager.save(step, state, metrics={"accuracy": step % 3})
    >>> manager.wait_until_finished()
    >>> manager.restore("best")
    {'lr': 0.5, 'w': array([2, 2, 2])}
    """

    @takes(OpenOptions, {**OPEN, "max_saves_in_flight": 1})
    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        max_to_keep: int | None = None,
        keep_period: int | None = None,
        keep_time_interval: timedelta | float | None = None,
        should_keep_fn: Callable[[int], bool] | None = None,
        preservation: Policy | str | None = None,
        best_metric: str = "",
        best_fn: (
            Callable[[dict[str, float]], float | None] | MetricOfStep | None
        ) = None,
        best_mode: str | None = None,
        keep_checkpoints_without_metrics: bool = True,
        save_interval_steps: int | None = 1,
        save_on_steps: Iterable[int] = (),
        should_save_fn: Callable[[int, int | None], bool] | None = None,
        save_decision: Decision | None = None,
        metadata: Any = None,
        branch: str = "",
        read_only: bool = False,
        create: bool = True,
        watch_sigterm: bool = False,
        save_timeout: float | None = 1200,
        ranks: Ranks | None = None,
        **opening: Unpack[OpenOptions],
    ) -> None:
        if read_only and ranks is not None:
            raise InvalidArgumentError(
                "read_only=True is of one process: leave ranks out, each can "
                "read by itself"
            )
        if (best_metric or best_fn) and best_mode is None:
            raise ValueError(
                "best_mode is missing: 'min' where the smallest value of the "
                "metric is the best, 'max' where the largest is"
            )
        options: dict[str, Any] = {
            "max_to_keep": max_to_keep,
            "keep_period": keep_period,
            "keep_time_interval": _microseconds(keep_time_interval),
            "should_keep_fn": _of_number(should_keep_fn),
            "preservation": (
                None if preservation is None else engine_policy(preservation)
            ),
            "best_metric": best_metric,
            "best_fn": of_metrics(best_fn),
            "best_mode": best_mode,
            "keep_checkpoints_without_metrics": (
                keep_checkpoints_without_metrics
            ),
            "save_interval_steps": save_interval_steps,
            "save_on_steps": list(save_on_steps),
            "should_save_fn": should_save_fn,
            "save_decision": None
            if save_decision is None
            else save_decision._engine,
            "metadata": to_json(metadata),
            "branch": branch,
            "read_only": read_only,
            "watch_sigterm": watch_sigterm,
            "save_timeout": save_timeout,
            "max_saves_in_flight": opening["max_saves_in_flight"],
        }
        self._unmeasured = Unmeasured()
        if options["preservation"] is not None:
            policy = options["preservation"].text()
            self._unmeasured = Unmeasured(policy=policy)
        elif keep_checkpoints_without_metrics and max_to_keep is not None:
            self._unmeasured = Unmeasured(best_metric, best_fn)
        _engine.check_manager(options)
        opening["max_saves_in_flight"] = max(
            opening["max_saves_in_flight"], OPEN["max_saves_in_flight"]
        )
        # A branch is of a store that is there.
        mode = "write" if branch or not create else "write or create"
        store = Store(
            path, mode="read" if read_only else mode, ranks=ranks, **opening
        )
        try:
            with while_opening():
                self._engine = _engine.manage(store._live(), options)
        except BaseException:
            store._give_up()
            raise
        store._managed = self._engine
        self._store = store
        self._is_spread = store._is_spread
        self._ranks = ranks
        self._save_timeout = save_timeout
        self._last: SaveHandle | None = None
        self._saves: list[_engine.SaveHandle] = []

    # ---- Saving ----

    def should_save(self, step: int) -> bool:
        """Whether save() would. Never for a step that is not after the latest.

        >>> manager.should_save(4), manager.should_save(2)
        (True, False)
        """
        return self._engine.should_save(step)

    def save(
        self,
        step: int,
        state: Any,
        *,
        metrics: Mapping[str, float] | None = None,
        metadata: Any = None,
        note: str = "",
        force: bool = False,
        overwrite: bool = False,
        borrow: bool = False,
        per_rank: Iterable[str] = (),
    ) -> bool:
        """Saves `state`, of any kind that Store.save() takes, where the step is
        to be saved: returns whether. The save goes on in the background; the
        arrays may change at once, but for `borrow`: not before
        last_save.wait_staged(). At a preemption it returns when the step is
        durable.

        Parameters
        ----------
        step : int
            Its number.
        state : tree
            As Store.save() takes it.
        metrics : dict of str to float, optional
            For the best steps, and "best:NAME:min".
        metadata : optional
            Of the step: what json can write.
        note : str
            A line for people.
        force : bool
            Whatever the decision is, also before the latest step: then it
            returns when the step is durable, or is refused.
        overwrite : bool
            Replaces a step of that number, whatever the decision is.
        borrow : bool
            As Store.save() has it.
        per_rank : list of str
            With `ranks`: the subtrees in which each rank has values of its
            own, as Store.save() takes them.

        Returns
        -------
        bool
            Whether the step is saved, the same on all ranks. One that is not
            after the latest step is not, of which the first time a warning is
            logged.

        Raises
        ------
        AlreadyExistsError
            There is such a step: a FileExistsError. With `overwrite` it is
            replaced.
        StateError
            Before the latest step, with `force`: the policy would not keep it.
        TimeoutError
            Earlier saves took longer than `save_timeout`.
        UnavailableError
            Rank 0 did not come to this save, or has ended.
        Error
            A failure of an earlier save that nobody has seen.

        Examples
        --------
        >>> manager.save(4, state), manager.save(2, state)
        (True, False)
        """
        from ckptree import _rules

        subtrees = own(per_rank, self._ranks)
        document = to_json(metadata)
        rules = _rules.Spread(subtrees) if self._is_spread else _rules
        with told():
            begun = self._engine.save(
                step=step,
                state=state,
                rules=rules,
                metrics=metrics or {},
                metadata=document,
                note=note,
                force=force,
                overwrite=overwrite,
                borrow=borrow,
                per_rank=subtrees,
            )
        if begun is None:
            return False
        self._last = SaveHandle(begun)
        self._saves = with_more(self._saves, begun)
        self._store._note(begun)
        if self._ranks is None or self._ranks.rank == 0:
            self._unmeasured.see(self.path, step, metrics)
        latest = self._engine.latest_step() if force else None
        if latest is not None and step < latest:
            # The policy may not keep it, which the commit finds.
            with told():
                self._wait_for_last()
        return True

    def _wait_for_last(self) -> None:
        """Raises what the last save fails of; nobody else will."""
        assert self._last is not None
        try:
            self._last.result(self._save_timeout)
        except Error as failed:
            try:
                self._engine.check_for_errors()
            except Error as told_first:
                if str(told_first) != str(failed):
                    raise
            raise failed from None

    @property
    def last_save(self) -> SaveHandle | None:
        """Of the last save() that was True.

        >>> manager.last_save.result()
        3
        """
        return self._last

    def wait_until_finished(
        self, timeout: float | None = None, *, progress: Progress = None
    ) -> None:
        """Waits for its saves in flight; raises the first failure that nobody
        saw, or TimeoutError. `progress`, as in SaveHandle.result(), is told the
        bytes of all of them.

        >>> manager.wait_until_finished(timeout=60)
        >>> manager.is_saving_in_progress()
        False
        """
        with showing(progress, "save") as meter:
            follow(
                self._engine.wait_until_finished, timeout, self._saves, meter
            )

    def check_for_errors(self) -> None:
        """Raises a failure that nobody saw. Never waits.

        >>> manager.check_for_errors()  # There is none.
        """
        self._engine.check_for_errors()

    def is_saving_in_progress(self) -> bool:
        """Whether a save of its own has begun that is not durable yet.

        >>> manager.is_saving_in_progress()
        False
        """
        return self._engine.is_saving_in_progress()

    # ---- Preemption ----

    def request_preemption(self) -> None:
        """From now on: for whoever is told by other means than SIGTERM.

        >>> manager.request_preemption()
        >>> manager.reached_preemption()
        True
        """
        self._engine.request_preemption()

    def reached_preemption(self, step: int | None = None) -> bool:
        """Whether SIGTERM came, or request_preemption() was called.

        Parameters
        ----------
        step : int, optional
            With `ranks`: each rank asks at this step, and learns the same of
            rank 0, whichever of them the signal came to. None: what was told
            so far.

        Returns
        -------
        bool

        Raises
        ------
        UnavailableError
            Rank 0 did not come to this step, or has ended.

        Examples
        --------
        >>> manager.reached_preemption()
        False
        """
        return self._engine.reached_preemption(step)

    def saved_for_preemption(self) -> bool:
        """True once the step of the preemption is durable: time to leave.

        >>> manager.request_preemption()
        >>> manager.save(4, state)
        True
        >>> manager.saved_for_preemption()
        True
        """
        return self._engine.saved_for_preemption()

    # ---- Changing ----

    def delete(self, step: int, *, tagged: bool = False) -> None:
        """KeyError where there is none; StateError where it is pinned, or,
        without `tagged`, has a tag.

        >>> manager.delete(0)
        >>> manager.all_steps()
        [1, 2, 3]
        """
        self._engine.delete(step, tagged)

    def delete_after(self, step: int, *, tagged: bool = False) -> None:
        """Deletes all later steps, to go on from this one; none where one is
        pinned, or, without `tagged`, has a tag.

        >>> manager.delete_after(1)
        >>> manager.all_steps()
        [0, 1]
        """
        self._engine.delete_after(step, tagged)

    def fork_from(self, step: int, branch: str) -> None:
        """Goes on from this step on a new branch, and leaves the later ones on
        theirs.

        >>> manager.fork_from(1, "colder")
        >>> manager.save(2, state)
        True
        >>> manager.branch
        'colder'
        """
        self._engine.fork_from(step, branch)

    # ---- The store ----

    @property
    def store(self) -> Store:
        """Tags, pins, usage, ...; closed with the manager, which is closed with
        it.

        >>> manager.store.tag("good", 3)
        >>> manager.restore("@good")["w"]
        array([3, 3, 3])
        """
        return self._store

    @property
    def path(self) -> str:
        """Of the store's directory.

        >>> manager.path == str(tmp / "run")
        True
        """
        return self._store.path

    @property
    def branch(self) -> str:
        """Empty: the main branch.

        >>> manager.branch
        ''
        """
        return self._engine.branch

    @property
    def closed(self) -> bool:
        """True after close().

        >>> manager.closed
        False
        """
        return self._store.closed

    def close(self) -> None:
        """Waits for its saves in flight and closes; raises the first failure
        that nobody saw. What else of this process has the store open goes on.

        >>> manager.close()
        >>> manager.closed
        True
        """
        self._store.close()

    def __repr__(self) -> str:
        closed = ", closed" if self.closed else ""
        rank = f", {self._ranks.named}" if self._ranks else ""
        return f"<ckptree.CheckpointManager {self.path}{rank}{closed}>"

    def _repr_html_(self) -> str:
        from ckptree import html

        if self.closed:
            return html.text(repr(self))
        store, branch = self._store, self.branch
        steps, policy = store.steps(branch), store.policy(branch).text
        return html.manager(self.path, steps, policy, self.best_step())


def _of_number(function: Callable[[int], bool] | None) -> Any:
    if function is None:
        return None
    return lambda step, time, metrics, healthy: function(step)


def _microseconds(interval: timedelta | float | None) -> int | None:
    if interval is None:
        return None
    from datetime import timedelta

    if not isinstance(interval, timedelta):
        interval = timedelta(seconds=interval)
    return interval // timedelta(microseconds=1)

