# SPDX-License-Identifier: Apache-2.0
"""Managers whose directory is an address of an object store: which folder of
this machine has the store, and how it is opened."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import fcntl
import hashlib
import os
import pathlib
import re
import shutil
import tempfile
from typing import TYPE_CHECKING, Any, Callable, Iterator, TypeVar

from ckptree.arguments import BOOL, PATH, TEXT, either, optional
from ckptree.errors import InvalidArgumentError, StateError
from ckptree.paths import local_path, plain_address, place_to_read
from ckptree.policy_argument import POLICY, rule_text

if TYPE_CHECKING:
    from ckptree.orbax._processes import Job

T = TypeVar("T")

_LOCAL_KEEP = optional(either(POLICY, TEXT))

# What an open says of a folder of which every commit is in the remote.
_NOTHING_OF_ITS_OWN = "after this directory was shipped, all of it"
# And where that has gone, or another store is there.
_PARTED = ("nothing of it is there now", "give it an address of its own")
_ADVICE_OF_A_MANAGER = (
    "For a manager of ckptree.orbax: pass "
    "remote_options=RemoteOptions(take_over=True)"
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class RemoteOptions:
    """Of ckptree: of a manager whose directory is an address.

    >>> RemoteOptions(local_directory="/scratch/lm").take_over
    False
    """

    # The folder of this machine that has the store while it is written; None:
    # one in $XDG_CACHE_HOME/ckptree, or ~/.cache/ckptree, named by the address.
    # It stays, and is fetched from the address where it is absent or empty.
    # Of processes that save together the first one's; what another one builds
    # lies beside it, in a folder of that name and its place, as lm.1.
    local_directory: str | os.PathLike[str] | None = None
    # Write also where another machine wrote less than ten minutes ago and did
    # not close the store: its saves fail from then on. And where nothing is at
    # the address any more: what the folder of this machine has is shipped there
    # again, so that a run goes on whose objects were lost. To begin anew at an
    # address, remove that folder as well.
    take_over: bool = False
    # Which steps keep their arrays in that folder, by a policy of ckptree or
    # its text, as "latest(3)": those of all others leave it once they are at
    # the address, and are read there. "all" brings back all; None: nothing
    # leaves, and what left stays away.
    local_keep: Any = None

    def __post_init__(self) -> None:
        if optional(PATH)("local_directory", self.local_directory) is not None:
            _local_directory(self.local_directory)  # type: ignore[arg-type]
        BOOL("take_over", self.take_over)
        keep = _LOCAL_KEEP("local_keep", self.local_keep)
        text = rule_text("local_keep", keep)
        object.__setattr__(self, "local_keep", text)


class Remote:
    """An address, and the folder of the store on this machine."""

    def __init__(self, address: str, options: RemoteOptions) -> None:
        self.address = address
        self._take_over = options.take_over
        self._local_keep = options.local_keep
        self._own = options.local_directory is None
        self.directory = pathlib.Path(
            _usual_directory(address)
            if options.local_directory is None
            else _local_directory(options.local_directory)
        )

    def of_job(self, job: Job | None) -> Remote:
        """The same with a folder of this process alone: those that save
        together may run on one machine, or not."""
        if job is None or job.is_primary:
            return self
        found = copy.copy(self)
        found.directory = self.directory.with_name(
            f"{self.directory.name}.{job.place}"
        )
        return found

    def opening(self, timeout: float) -> dict[str, Any]:
        """The options of a store that ships there: a save is done when it is
        durable there."""
        return {
            "remote": self.address,
            "durable": "remote",
            "take_over": self._take_over,
            "remote_timeout": timeout,
            "local_keep": self._local_keep,
        }

    def opened(
        self, open_it: Callable[[], T], advice: str = _ADVICE_OF_A_MANAGER
    ) -> T:
        """What `open_it` returns. A folder of the cache that another machine
        has left behind, and that has nothing of its own, is fetched anew.
        `advice`: how this caller takes over."""
        with advice_to_take_over(advice), self._naming_the_cache():
            try:
                return open_it()
            except StateError as error:
                if not self._own or _NOTHING_OF_ITS_OWN not in str(error):
                    raise
            with _turn_in(self.directory.parent):
                # Another process may have fetched it since.
                try:
                    return open_it()
                except StateError as error:
                    if _NOTHING_OF_ITS_OWN not in str(error):
                        raise
                _remove_whole(self.directory)
                return open_it()

    @contextlib.contextmanager
    def _naming_the_cache(self) -> Iterator[None]:
        """Says what the folder is where nobody has given one, and the address
        has another store, or no longer one."""
        try:
            yield
        except StateError as error:
            said = str(error)
            if not self._own or not any(word in said for word in _PARTED):
                raise
            raise StateError(
                f"{said}. That folder is in the cache of this machine, as no "
                "local_directory was given: remove it where you need "
                "nothing of it any more"
            ) from None


@contextlib.contextmanager
def _turn_in(directory: pathlib.Path) -> Iterator[None]:
    """One process of this machine at a time."""
    held = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(held, fcntl.LOCK_EX)
        yield
    finally:
        os.close(held)


def _remove_whole(directory: pathlib.Path) -> None:
    """In one step, as others may be opening it."""
    away = tempfile.mkdtemp(
        prefix=f"{directory.name}.removed-", dir=directory.parent
    )
    os.rename(directory, away)
    shutil.rmtree(away)


@contextlib.contextmanager
def advice_to_take_over(advice: str) -> Iterator[None]:
    """Adds `advice` where another machine may still write to the address."""
    try:
        yield
    except StateError as error:
        if "may still be training" not in str(error):
            raise
        raise StateError(f"{error}. {advice}") from None


def remote_of(
    directory: str | os.PathLike[str],
    options: RemoteOptions | None,
    read_only: bool,
) -> Remote | None:
    """None: `directory` is a path of this machine. An address of a folder,
    file:///..., is one where a store was shipped there, or options of a remote
    are given; else it is that path."""
    place = place_to_read(directory)
    given = os.fsdecode(os.fspath(directory))
    if options is not None and given.startswith("file:///"):
        place = plain_address(given)
    if "://" not in place:
        if options is not None:
            raise InvalidArgumentError(
                f"remote_options are of an address, and {given!r} is a "
                "directory: pass the address, as s3://bucket/run, in its place "
                f"with RemoteOptions(local_directory={given!r}), or leave them "
                "out"
            )
        return None
    options = options or RemoteOptions()
    if read_only and options != RemoteOptions():
        raise InvalidArgumentError(
            "local_directory, take_over and local_keep are of a manager that "
            "saves: leave them out, or read_only"
        )
    return Remote(place, options)


def cache_of(address: str) -> str:
    """The folder of this machine for what an address needs here."""
    root = os.environ.get("XDG_CACHE_HOME", "")
    if not os.path.isabs(root):
        root = os.path.expanduser("~/.cache")
    if not os.path.isabs(root):
        raise InvalidArgumentError(
            f"{address} wants a folder of this machine: set XDG_CACHE_HOME, or "
            "pass remote_options=RemoteOptions(local_directory=...)"
        )
    return os.path.join(root, "ckptree")


def _local_directory(path: str | os.PathLike[str]) -> str:
    """InvalidArgumentError, by the name of the option: it is an address."""
    try:
        return local_path(path)
    except InvalidArgumentError as error:
        raise InvalidArgumentError(f"local_directory: {error}") from None


def _usual_directory(address: str) -> str:
    words = re.sub(r"[^A-Za-z0-9._]+", "-", address)[-80:].strip("-.")
    digest = hashlib.sha256(address.encode()).hexdigest()[:16]
    return os.path.join(cache_of(address), f"run-{words}-{digest}")
