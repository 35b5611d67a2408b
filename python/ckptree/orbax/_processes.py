# SPDX-License-Identifier: Apache-2.0
"""The processes of JAX that save together, and how they agree on a call that
each of them makes: what one of them fails at, all of them raise.

Nothing here is a collective: a save that goes on in the background meets the
others' by texts that the coordination service of JAX keeps.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import sys
import threading
import time
from collections import Counter
from typing import (
    TYPE_CHECKING,
    Any,
    Callable,
    Iterator,
    NamedTuple,
    Protocol,
)

import ckptree
from ckptree import errors

if TYPE_CHECKING:
    from types import ModuleType

# How long a process waits for the others, in seconds: they may be slower.
DEADLINE = 600.0
# The first process answers later than those that wait for it began.
_SLACK = 30.0


class Options(Protocol):
    """MultiprocessingOptions, of here, of v1, or of Orbax."""

    @property
    def primary_host(self) -> int | None: ...

    @property
    def active_processes(self) -> set[int] | None: ...

    @property
    def barrier_sync_key_prefix(self) -> str | None: ...


class Job(NamedTuple):
    """Processes that make the same calls."""

    processes: tuple[int, ...]  # The primary one first.
    place: int  # Of this process among them.
    prefix: str
    deadline: float = DEADLINE

    @property
    def is_primary(self) -> bool:
        return self.place == 0

    def named(self, place: int) -> str:
        return f"process {self.processes[place]} of {len(self.processes)}"

    def ranks(self, name: str, shared_folder: bool = True) -> ckptree.Ranks:
        """These processes as ranks of a store; see ckptree.Ranks."""
        return ckptree.Ranks(
            self.place,
            len(self.processes),
            name,
            min(self.deadline, 300.0),
            self.deadline,
            shared_folder,
        )


def check(options: Options | None) -> None:
    """ValueError: it names a process that is not there; NotImplementedError:
    what cannot be."""
    if options is None:
        return
    board = _board()
    there = 1 if board is None else board.processes()
    host, active = options.primary_host, options.active_processes
    if host is None and there > 1 and len(active or ()) != 1:
        raise NotImplementedError(
            "primary_host=None: one process writes a store, and the others "
            "save their parts of it. For a store of each process: a path of "
            "its own, primary_host=jax.process_index() and "
            "active_processes={jax.process_index()}"
        )
    given = [("primary_host", host)] if host is not None else []
    given += [("active_processes", number) for number in active or ()]
    for name, number in given:
        if number not in range(there):
            raise ValueError(
                f"{name}: there is no process {number}, JAX runs in {there}"
            )
    if active and host is not None and host not in active:
        raise ValueError(
            f"primary_host={host} must be one of active_processes: they are "
            f"{', '.join(map(str, sorted(active)))}"
        )


def job(
    options: Options | None = None, deadline: float = DEADLINE
) -> Job | None:
    """The processes that save together; None: this one alone. ValueError: it
    does not belong to them."""
    board = _board()
    if board is None or board.processes() == 1:
        return None
    check(options)
    active = None if options is None else options.active_processes
    numbers = sorted(active or range(board.processes()))
    mine = board.process()
    if mine not in numbers:
        raise ValueError(
            f"process {mine} does not belong to active_processes: they are "
            f"{', '.join(map(str, numbers))}"
        )
    if len(numbers) == 1:
        return None
    primary = 0 if options is None else options.primary_host
    assert primary is not None
    ordered = (primary, *(n for n in numbers if n != primary))
    prefix = "" if options is None else options.barrier_sync_key_prefix or ""
    return Job(ordered, ordered.index(mine), prefix, deadline)


def is_alone() -> bool:
    """Whether JAX, if it is there, runs in one process."""
    board = _board()
    return board is None or board.processes() == 1


def _board() -> ModuleType | None:
    """None: JAX was not imported."""
    if "jax" not in sys.modules:
        return None
    from ckptree.adapters import jax_board

    return jax_board


_lock = threading.Lock()
_calls: Counter[str] = Counter()


class Call:
    """One call that each process of a job makes: `what` names it. The first of
    a name on each of them meet, the second, and so on."""

    def __init__(self, job: Job, what: str) -> None:
        self.job = job
        self._what = what
        said = repr((job.processes, job.prefix, what))
        key = hashlib.sha256(said.encode()).hexdigest()[:24]
        with _lock:
            _calls[key] += 1
            self._name = f"ckptree/orbax/{key}/{_calls[key]}"
        self._at = 0
        self.over = False  # It failed, here or elsewhere.
        self._failed_at: int | None = None  # Here.

    @contextlib.contextmanager
    def telling(self) -> Iterator[None]:
        """What the block raises, the others raise where they agree next."""
        try:
            yield
        except BaseException as error:
            self.fail(error)
            raise

    def fail(self, error: BaseException) -> None:
        """As telling(). Waits for nobody."""
        if self.over:
            return
        self.over = True
        self._failed_at = self._at
        said = _error_text(error)
        with contextlib.suppress(errors.UnavailableError):
            if self.job.is_primary:
                self._answer(self._at, {**said, "place": 0})
            else:
                self._put(f"{self._at}/{self.job.place}", said)

    def hear_all(self) -> None:
        """After fail(), on the first process: until the others have heard it,
        or the deadline is over."""
        at, self._failed_at = self._failed_at, None
        end = time.monotonic() + self.job.deadline
        if at is None or not self.job.is_primary:
            return
        with contextlib.suppress(errors.UnavailableError):
            for place in range(1, len(self.job.processes)):
                self._get(f"{at}/{place}", end - time.monotonic())

    def agree(
        self,
        said: Any = None,
        decide: Callable[[list[Any]], Any] = lambda says: None,
    ) -> Any:
        """What `decide` makes of what all of them say, by their places; the
        first one asks it. Raises what one of them failed at, or `decide`.
        UnavailableError: one did not come in time."""
        at, self._at = self._at, self._at + 1
        try:
            if self.job.is_primary:
                return self._gather(at, said, decide)
            return self._ask(at, said)
        except BaseException as error:
            if not isinstance(error, Exception):
                self._at = at  # Interrupted: the others still wait there.
                self.fail(error)
            self.over = True
            raise

    def _gather(
        self, at: int, said: Any, decide: Callable[[list[Any]], Any]
    ) -> Any:
        end = time.monotonic() + self.job.deadline
        says, late = [said], []
        failed: dict[str, Any] | None = None
        for place in range(1, len(self.job.processes)):
            text = self._get(f"{at}/{place}", end - time.monotonic())
            if text is None:
                late.append(place)
                continue
            heard = json.loads(text)
            says.append(heard.get("said"))
            if "error" in heard and failed is None:
                failed = {**heard, "place": place}
        if late and failed is None:
            failed = self._lateness(late)
        if failed is not None:
            self._answer(at, failed)
            raise self._raised(failed)
        try:
            decided = decide(says)
        except Exception as error:
            self._answer(at, _error_text(error))
            raise
        self._answer(at, {"said": decided})
        return decided

    def _ask(self, at: int, said: Any) -> Any:
        self._put(f"{at}/{self.job.place}", {"said": said})
        deadline = self.job.deadline + _SLACK
        text = self._get(f"{at}/to-{self.job.place}", deadline)
        if text is None:
            raise errors.UnavailableError(
                f"{self._what}: {self.job.named(0)} did not answer "
                f"{self.job.named(self.job.place)} within {deadline:g} s"
            )
        heard = json.loads(text)
        if "error" in heard:
            raise self._raised(heard)
        return heard["said"]

    def _lateness(self, late: list[int]) -> dict[str, Any]:
        numbers = ", ".join(str(self.job.processes[p]) for p in late)
        return _error_text(
            errors.UnavailableError(
                f"{self._what}: of {len(self.job.processes)} processes "
                f"{len(late)} did not come within {self.job.deadline:g} s: "
                f"{numbers}. Each of them makes the same calls"
            )
        )

    def _raised(self, heard: dict[str, Any]) -> Exception:
        kinds, message = heard["error"]
        kind = next((_RAISED[k] for k in kinds if k in _RAISED), RuntimeError)
        place = heard.get("place")
        if place is not None:
            message = f"{self.job.named(place)}: {message}"
        return kind(message)

    def _answer(self, at: int, answer: dict[str, Any]) -> None:
        for place in range(1, len(self.job.processes)):
            self._put(f"{at}/to-{place}", answer)

    def _put(self, name: str, said: Any) -> None:
        from ckptree.adapters import jax_board

        jax_board.put(f"{self._name}/{name}", json.dumps(said))

    def _get(self, name: str, deadline: float) -> str | None:
        """Read once: it is gone then."""
        from ckptree.adapters import jax_board

        found = jax_board.get(f"{self._name}/{name}", max(0.0, deadline))
        if found is not None:
            jax_board.drop(f"{self._name}/{name}")
        return found


# What may be raised again in another process, by its name.
_RAISED: dict[str, Callable[[str], Exception]] = {
    kind.__name__: kind
    for kind in (
        errors.AlreadyExistsError,
        errors.CorruptionError,
        errors.Error,
        errors.InvalidArgumentError,
        errors.NotFoundError,
        errors.StateError,
        errors.StoreNotFoundError,
        errors.UnavailableError,
        errors.UnsupportedError,
        FileExistsError,
        FileNotFoundError,
        KeyError,
        NotImplementedError,
        OSError,
        PermissionError,
        RuntimeError,
        TimeoutError,
        TypeError,
        ValueError,
    )
}


def _error_text(error: BaseException) -> dict[str, Any]:
    kinds = [kind.__name__ for kind in type(error).__mro__]
    return {"error": [kinds, str(error) or type(error).__name__]}
