# SPDX-License-Identifier: Apache-2.0
"""What goes wrong, by kind. Everything here is also what Python calls it: a
step that is not there is a KeyError, a bad argument a ValueError.

>>> with ckptree.Store(tmp / "run") as store:
...     try:
...         store["latest"]
...     except KeyError as error:
...         print(type(error).__name__)
NotFoundError
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from ckptree.advice import in_python
from ckptree.hints import Any, NamedTuple

# Of many paths a message shows so many, and counts the others.
MAX_SHOWN = 20

__all__ = [
    "AbortedError",
    "AlreadyExistsError",
    "CancelledError",
    "CorruptionError",
    "CredentialsError",
    "Difference",
    "Error",
    "InternalError",
    "InvalidArgumentError",
    "MismatchError",
    "NoSpaceError",
    "NotFoundError",
    "PermissionDeniedError",
    "StateError",
    "StorageError",
    "StoreNotFoundError",
    "UnavailableError",
    "UnsupportedError",
    "WaitTimeoutError",
]


class Error(Exception):
    """Any failure of the engine.

    >>> try:
    ...     ckptree.open(tmp / "no run")
    ... except ckptree.Error as error:
    ...     print(type(error).__name__)
    StoreNotFoundError
    """


class NotFoundError(Error, KeyError):
    """Something was named that is not there: a step, a leaf, a tag, a branch.

    >>> with ckptree.Store(tmp / "run") as store:
    ...     store[5]
    Traceback (most recent call last):
    ckptree.errors.NotFoundError: ...step 5...
    """

    def __str__(self) -> str:
        return Exception.__str__(self)  # KeyError shows the repr.


class StoreNotFoundError(NotFoundError, FileNotFoundError):
    """There is no store in that directory.

    >>> ckptree.open(tmp / "no run")
    Traceback (most recent call last):
    ckptree.errors.StoreNotFoundError: ...no run...
    """


class AlreadyExistsError(Error, FileExistsError):
    """A step, tag, branch or store of that name is there already.

    >>> with ckptree.Store(tmp / "run") as store:
    ...     _ = store.save(1, {"lr": 0.5}).result()
    ...     store.save(1, {"lr": 0.5})
    Traceback (most recent call last):
    ckptree.errors.AlreadyExistsError: ...step 1...
    """


class InvalidArgumentError(Error, ValueError):
    """The call can never succeed.

    >>> ckptree.policies.parse("newest(3)")
    Traceback (most recent call last):
    ckptree.errors.InvalidArgumentError: ...newest...
    """


class StateError(Error):
    """Not now: read only, closed, pinned, forked, of a newer format.

    >>> with ckptree.Store(tmp / "run") as store:
    ...     pass
    >>> store.steps()
    Traceback (most recent call last):
    ckptree.errors.StateError: ...closed
    """


class CorruptionError(Error):
    """Bytes are not what was committed; names step, leaf and chunk.

    >>> issubclass(ckptree.CorruptionError, (OSError, ValueError))
    False
    """


class NoSpaceError(Error, OSError):
    """The disk is full, or memory or a quota is used up.

    >>> ckptree.errors.from_status(8, "the disk is full").errno == errno.ENOSPC
    True
    """


class UnavailableError(Error):
    """Another process has the store open for writing, a rank did not come in
    time, or an object store that has what is asked for does not answer; trying
    again may help.

    >>> issubclass(ckptree.UnavailableError, ckptree.Error)
    True
    """


class AbortedError(Error):
    """A race was lost; nothing was changed.

    >>> issubclass(ckptree.AbortedError, ckptree.Error)
    True
    """


class CancelledError(Error):
    """The save was cancelled.

    >>> issubclass(ckptree.CancelledError, ckptree.Error)
    True
    """


class StorageError(Error, OSError):
    """The disk failed in a way that is not known better.

    >>> issubclass(ckptree.StorageError, OSError)
    True
    """


class PermissionDeniedError(StorageError, PermissionError):
    """Files cannot be made or read: they are another user's, or the disk is
    mounted read-only. `errno` says which: EACCES, EPERM or EROFS.

    >>> ckptree.PermissionDeniedError("a: Read-only file system").errno
    30
    """

    def __init__(self, *said: object) -> None:
        super().__init__(*said)
        # The engine says it as the system does.
        text = str(said[-1]) if said else ""
        known = (errno.EROFS, errno.EPERM)
        said_so = [number for number in known if os.strerror(number) in text]
        self.errno = said_so[0] if said_so else errno.EACCES


class CredentialsError(StorageError, PermissionError):
    """An object store refuses who asks, or nobody is named: credentials are
    missing, wrong or expired, or the clock of this machine is wrong. The
    message says where they are looked for, and never what they are.

    >>> issubclass(ckptree.CredentialsError, PermissionError)
    True
    """

    def __init__(self, *said: object) -> None:
        super().__init__(*said)
        self.errno = errno.EACCES


class InternalError(Error, RuntimeError):
    """A fault of the engine's own.

    >>> issubclass(ckptree.InternalError, RuntimeError)
    True
    """


class UnsupportedError(Error, NotImplementedError):
    """Known, and not supported.

    >>> ckptree.Budget("1GB").decide([(1,)])
    Traceback (most recent call last):
    ckptree.errors.UnsupportedError: ...
    """


class WaitTimeoutError(Error, TimeoutError):
    """The time was over; what was waited for goes on.

    >>> issubclass(ckptree.WaitTimeoutError, TimeoutError)
    True
    """


class Difference(NamedTuple):
    """One path where a step and what was asked of it differ.

    >>> print(Difference("w", "missing", "int", ""))
    w: missing, expected int
    """

    path: str
    # "missing", "unexpected", "kind", "dtype", "shape", or "value": what
    # `cast` would make of it, in `found`, is another one; or "memory": it
    # cannot be read into what the template has there, as `expected` says.
    problem: str
    expected: str
    found: str
    suggestion: str = ""

    def __str__(self) -> str:
        if self.problem == "missing":
            text = f"{self.path}: missing, expected {self.expected}"
        elif self.problem == "unexpected":
            text = f"{self.path}: unexpected, the step has {self.found}"
        elif self.problem == "memory":
            text = f"{self.path}: {self.expected}"
        elif self.problem == "value":
            text = (
                f"{self.path}: as {self.expected} its value would change "
                f"{self.found}"
            )
        else:
            text = (
                f"{self.path}: {self.problem} differs, expected "
                f"{self.expected}, the step has {self.found}"
            )
        return f"{text} ({self.suggestion})" if self.suggestion else text


class MismatchError(InvalidArgumentError):
    """A step does not fit the template; `differences` has every path, the
    message the first twenty.

    >>> with ckptree.Store(tmp / "run") as store:
    ...     _ = store.save(1, {"lr": 0.5}).result()
    ...     try:
    ...         store.restore(1, like={"lr": 1})
    ...     except ckptree.MismatchError as error:
    ...         print(error.differences[0])
    lr: kind differs, expected int, the step has float
    """

    def __init__(
        self,
        step: str,
        differences: Sequence[Difference],
        hint: str = "",
        remedy: str = "",
    ) -> None:
        self._differences = differences
        lines = [
            f"step {step} does not fit the template at {len(differences)} "
            f"path{'s' if len(differences) != 1 else ''}:"
        ]
        if remedy:
            lines.append(f"  {remedy}")
        lines += [f"  {difference}" for difference in differences[:MAX_SHOWN]]
        if len(differences) > MAX_SHOWN:
            lines.append(f"  and {len(differences) - MAX_SHOWN} more")
        if hint:
            lines.append(f"  {hint}")
        super().__init__("\n".join(lines))

    @property
    def differences(self) -> list[Difference]:
        """All of them, in the order of the template; what it has no place for
        comes last.

        >>> missing = ckptree.Difference("w", "missing", "int", "")
        >>> ckptree.MismatchError("7", [missing]).differences[0].path
        'w'
        """
        if not isinstance(self._differences, list):
            self._differences = list(self._differences)
        return self._differences

    def __reduce__(self) -> Any:
        """Processes of a job send their errors to each other."""
        return _mismatch, (str(self), list(self.differences))


def _mismatch(message: str, differences: list[Difference]) -> MismatchError:
    error = MismatchError.__new__(MismatchError, message)
    error._differences = differences
    return error


def level_of_caller() -> int:
    """For warnings.warn(stacklevel=): the first frame outside this package."""
    package = __name__.partition(".")[0]
    level, frame = 1, sys._getframe(1)
    while frame.f_globals.get("__name__", "").partition(".")[0] == package:
        if frame.f_back is None:
            break
        level, frame = level + 1, frame.f_back
    return level


# As the engine says it of a lock.
_HELD = "is held by another writer"


def _is_refused_read(text: str) -> bool:
    """As the engine says it of an answer of an object store."""
    asked = text.partition(" at ")[0].split()
    return "credentials may not do that" in text and (
        "GET" in asked or "HEAD" in asked
    )


@contextmanager
def while_opening(
    *, reading: bool = False, looking: bool = False
) -> Iterator[None]:
    """Makes errors of the engine those of opening a store: what is not there
    is the store, and where another process writes, or nobody may write, what to
    do is said. `looking`: this process was interrupted while it opened that
    store among ranks, and may have it still."""
    try:
        yield
    except UnavailableError as error:
        if _HELD not in str(error):
            raise  # Ranks that did not come.
        if looking and f": pid {os.getpid()} on host " in str(error):
            raise UnavailableError(
                f"{error}; that is this process: where opening it was "
                "interrupted it looks for the other ranks up to their "
                "open_deadline; wait for that with lock_wait=SECONDS, or end it"
            ) from None
        raise UnavailableError(
            f"{error}; read it with ckptree.open(), or wait for the other "
            "writer with lock_wait=SECONDS"
        ) from None
    except NotFoundError as error:
        raise StoreNotFoundError(str(error)) from None
    except PermissionDeniedError as error:
        # Who may not read in an object store cannot open it to read, either.
        if reading or _is_refused_read(str(error)):
            raise
        raise PermissionDeniedError(
            f"{error}; a store that cannot be written to is read with "
            "ckptree.open()"
        ) from None


# By the numbers of absl::StatusCode.
_CLASSES: dict[int, Callable[[str], Exception]] = {
    1: CancelledError,
    2: StorageError,
    3: InvalidArgumentError,
    4: WaitTimeoutError,
    5: NotFoundError,
    6: AlreadyExistsError,
    7: PermissionDeniedError,
    8: lambda message: NoSpaceError(errno.ENOSPC, message),
    9: StateError,
    10: AbortedError,
    11: InvalidArgumentError,
    12: UnsupportedError,
    13: InternalError,
    14: UnavailableError,
    15: CorruptionError,
    16: CredentialsError,
}


def from_status(code: int, message: str) -> Exception:
    """The exception for a status of the engine."""
    return _CLASSES.get(code, InternalError)(in_python(message))


# The first that it is. What else a caller's own code raises has no class of the
# engine's: it is the state of the caller that is wrong.
_CODES: tuple[tuple[type[BaseException], int], ...] = (
    (KeyboardInterrupt, 1),
    (NotImplementedError, 12),
    (StateError, 9),
    (AbortedError, 10),
    (CancelledError, 1),
    (UnavailableError, 14),
    (CorruptionError, 15),
    (InternalError, 13),
    (NoSpaceError, 8),
    (FileExistsError, 6),
    (CredentialsError, 16),
    (PermissionError, 7),
    (NotFoundError, 5),
    (TypeError, 3),
    (ValueError, 3),
    (OSError, 2),
)


def to_status(error: BaseException) -> tuple[int, str]:
    """The code of the status that is nearest to an exception, and its text, for
    those who do not get the exception itself.

    >>> to_status(TypeError("f: a function is code"))
    (3, 'TypeError: f: a function is code')
    """
    code = next((code for kind, code in _CODES if isinstance(error, kind)), 9)
    try:
        text = str(error)
        text.encode()
    except Exception:
        text = repr(type(error))
    return code, f"{type(error).__name__}: {text}"


def at_path(path: str, raised: BaseException) -> Exception:
    """The exception for a value at `path` that could not be taken."""
    known = (TypeError, ValueError, NotImplementedError)
    kind = next((k for k in known if isinstance(raised, k)), ValueError)
    what = str(raised)
    if not isinstance(raised, known):
        what = f"{type(raised).__name__}: {what}"
    error = kind(f"{path}: {what}")
    error.__cause__ = raised
    return error
