# SPDX-License-Identifier: Apache-2.0
"""Names of steps, as paths have them. In a store steps have numbers only:
`directory/name` is still understood where a checkpoint is restored."""

from __future__ import annotations

import abc
import dataclasses
import os
import pathlib
import re
from typing import TYPE_CHECKING, Any, Generic, Iterator, Sequence, TypeVar

import ckptree
from ckptree.orbax import _place

if TYPE_CHECKING:
    from ckptree.records import StepInfo

    PathLike = str | os.PathLike[str]


@dataclasses.dataclass(frozen=True)
class Metadata:
    """A step that is there."""

    step: int
    path: pathlib.Path
    info: StepInfo | None = dataclasses.field(default=None, compare=False)

    @property
    def init_timestamp_nsecs(self) -> int | None:
        return None if self.info is None else self.info.begun_ns

    @property
    def commit_timestamp_nsecs(self) -> int | None:
        return None if self.info is None else self.info.committed_ns

    @property
    def commit_timestamp(self) -> Any:
        """Aware, UTC."""
        import datetime

        if self.info is None:
            return None
        return datetime.datetime.fromtimestamp(
            self.info.committed_ns / 1e9, datetime.timezone.utc
        )


MetadataT = TypeVar("MetadataT", bound=Metadata)


class NameFormat(abc.ABC, Generic[MetadataT]):
    """How steps are called. `NameFormat[Metadata]` is the same."""

    @abc.abstractmethod
    def build_name(self, step: int) -> str:
        """The name of a step."""

    @abc.abstractmethod
    def matches(self, name: str) -> bool:
        """Whether a step may be called that."""

    def find_all(self, base_path: PathLike) -> Iterator[Metadata]:
        """All steps of a manager's directory; none where it is not there."""
        if not _place.is_store(base_path):
            return
        with ckptree.open(base_path) as store:
            for info in store.steps():
                path = pathlib.Path(
                    os.fspath(base_path), self.build_name(info.step)
                )
                yield Metadata(info.step, path, info)

    def find_step(self, base_path: PathLike, step: int) -> Metadata:
        """ValueError where there is no such step."""
        for found in self.find_all(base_path):
            if found.step == step:
                return found
        raise ValueError(
            f"No step path found with name={self.build_name(step)} in "
            f"{os.fspath(base_path)}"
        )


@dataclasses.dataclass(frozen=True)
class _StandardNameFormat(NameFormat[Metadata]):
    step_prefix: str | None = None
    step_format_fixed_length: int | None = None
    single_host_load_and_broadcast: bool = False

    def build_name(self, step: int) -> str:
        width = self.step_format_fixed_length or 0
        return self._prefix() + f"{step:0{width}d}"

    def matches(self, name: str) -> bool:
        width = self.step_format_fixed_length
        digits = (
            r"(0|[1-9]\d*)"
            if not width
            else rf"(0\d{{{width - 1}}}|[1-9]\d{{{width - 1}}}\d*)"
        )
        return bool(re.fullmatch(re.escape(self._prefix()) + digits, name))

    def _prefix(self) -> str:
        return f"{self.step_prefix}_" if self.step_prefix else ""


def standard_name_format(
    *,
    step_prefix: str | None = None,
    step_format_fixed_length: int | None = None,
    single_host_load_and_broadcast: bool = False,
    temporary_path_cls: Any = None,
    atomicity_options: Any = None,
) -> NameFormat[Metadata]:
    """Steps as numbers, after a prefix, with zeros before them.

    >>> names = standard_name_format(
    ...     step_prefix="step", step_format_fixed_length=4)
    >>> names.build_name(23)
    'step_0023'
    """
    return _StandardNameFormat(
        step_prefix, step_format_fixed_length, single_host_load_and_broadcast
    )


def is_standard_name_format(name_format: NameFormat[Metadata]) -> bool:
    """Whether standard_name_format() made it.

    >>> is_standard_name_format(standard_name_format())
    True
    """
    return isinstance(name_format, _StandardNameFormat)


class _CompositeNameFormat(NameFormat[Metadata]):
    def __init__(
        self,
        write: NameFormat[Metadata],
        reads: Sequence[NameFormat[Metadata]],
    ) -> None:
        self._write = write
        self._reads = list(reads)

    def build_name(self, step: int) -> str:
        return self._write.build_name(step)

    def matches(self, name: str) -> bool:
        return any(known.matches(name) for known in self._reads)


def composite_name_format(
    write_name_format: NameFormat[Metadata],
    read_name_formats: Sequence[NameFormat[Metadata]],
) -> NameFormat[Metadata]:
    """One name to write, others to read. ValueError: the first is not among
    the others."""
    if write_name_format not in read_name_formats:
        raise ValueError("read_name_formats lacks write_name_format")
    return _CompositeNameFormat(write_name_format, read_name_formats)


def single_host_load_and_broadcast_name_format(
    name_format: NameFormat[Metadata],
) -> NameFormat[Metadata]:
    """The same, which says so: every process may read a store. ValueError: it
    is not of standard_name_format()."""
    if not isinstance(name_format, _StandardNameFormat):
        raise ValueError(
            f"{name_format!r} was not made by standard_name_format()"
        )
    return dataclasses.replace(name_format, single_host_load_and_broadcast=True)


def name_format_of(options: Any) -> NameFormat[Metadata]:
    """Of the options of a manager. ValueError: they contradict each other."""
    wanted = options.step_name_format
    if wanted is None:
        return standard_name_format(
            step_prefix=options.step_prefix,
            step_format_fixed_length=options.step_format_fixed_length,
            single_host_load_and_broadcast=options.single_host_load_and_broadcast,
        )
    if not hasattr(wanted, "build_name"):
        raise TypeError(f"step_name_format: {wanted!r} has no build_name()")
    flag = bool(getattr(wanted, "single_host_load_and_broadcast", False))
    if options.single_host_load_and_broadcast != flag:
        raise ValueError(
            "single_host_load_and_broadcast: "
            f"{options.single_host_load_and_broadcast} in the options, and "
            f"{flag} in step_name_format: set both or none"
        )
    found: NameFormat[Metadata] = wanted
    return found


def get_save_directory(
    step: int,
    directory: PathLike,
    name: str | None = None,
    step_prefix: str | None = None,
    override_directory: PathLike | None = None,
    step_format_fixed_length: int | None = None,
    step_name_format: NameFormat[Metadata] | None = None,
) -> pathlib.Path:
    """The path that names a step, or an item of it.

    >>> get_save_directory(7, "run", "state", step_prefix="step")
    PosixPath('run/step_7/state')
    """
    if directory is None:
        raise ValueError("pass a directory")
    if override_directory is not None:
        base = pathlib.Path(os.fspath(override_directory))
    else:
        names = step_name_format or standard_name_format(
            step_prefix=step_prefix,
            step_format_fixed_length=step_format_fixed_length,
        )
        base = pathlib.Path(os.fspath(directory), names.build_name(step))
    return base if name is None else base / name


def checkpoint_steps_paths(checkpoint_dir: PathLike) -> list[pathlib.Path]:
    """The paths that name the steps there are."""
    return [
        found.path for found in standard_name_format().find_all(checkpoint_dir)
    ]


def checkpoint_steps(checkpoint_dir: PathLike) -> list[int]:
    """The steps there are, ascending."""
    return [
        found.step for found in standard_name_format().find_all(checkpoint_dir)
    ]


def all_temporary_paths(*args: Any, **kwargs: Any) -> list[pathlib.Path]:
    """None: what is not committed has no path."""
    return []


def is_path_finalized(path: PathLike, *args: Any, **kwargs: Any) -> bool:
    """Whether a path names a step, item or checkpoint that is there."""
    try:
        place = _place.locate(path)
        with ckptree.open(place.store) as store:
            _place.open_step(store, place)
    except (FileNotFoundError, _place.OrbaxCheckpointError):
        return False
    return True


def is_path_temporary(path: PathLike, *args: Any, **kwargs: Any) -> bool:
    """Never: what is not committed cannot be seen."""
    return False


def any_checkpoint_step(checkpoint_dir: PathLike) -> int | None:
    """One of the steps there are; None: there are none."""
    return next(iter(checkpoint_steps(checkpoint_dir)), None)


def step_from_checkpoint_name(name: str) -> int:
    """The number in a name. ValueError: there is none.

    >>> step_from_checkpoint_name("7"), step_from_checkpoint_name("step_7")
    (7, 7)
    """
    found = re.fullmatch(r"(?:.+_)?(\d+)(?:\.orbax-checkpoint-tmp.*)?", name)
    if found is None:
        raise ValueError(f"{name}: it is not the name of a step, as step_7 is")
    return int(found.group(1))


# As Orbax calls them, too.
is_checkpoint_finalized = is_path_finalized
is_tmp_checkpoint = is_path_temporary
tmp_checkpoints = all_temporary_paths
