# SPDX-License-Identifier: Apache-2.0
"""CheckpointManagerOptions, and what the engine's manager makes of them."""

from __future__ import annotations

import dataclasses
import datetime
import logging
from typing import Any, Callable, Container

from ckptree.orbax._option_states import check_processes, tell_of
from ckptree.orbax.checkpoint_managers import (
    AnyPreservationPolicy,
    BestN,
    PolicyCheckpointInfo,
    PreservationContext,
    PreservationPolicy,
    SaveDecisionPolicy,
)
from ckptree.orbax.checkpoint_managers.preservation_policy import Keeps
from ckptree.orbax.options import (
    AsyncOptions,
    AtomicityOptions,
    FileOptions,
    MultiprocessingOptions,
)
from ckptree.orbax.type_handlers import is_of_orbax
from ckptree.policies import Custom, Policy, PolicyStep

_log = logging.getLogger("ckptree.orbax")


@dataclasses.dataclass
class CheckpointManagerOptions:
    """How a manager works; see README.md for each. What has no meaning for a
    store is taken and does nothing, and a warning says so once."""

    save_interval_steps: int | None = 1
    max_to_keep: int | None = None
    keep_time_interval: datetime.timedelta | None = None
    keep_period: int | None = None
    should_keep_fn: Callable[[int], bool] | None = None
    best_fn: Callable[[Any], float] | None = None
    best_mode: str = "max"
    keep_checkpoints_without_metrics: bool = True
    step_prefix: str | None = None
    step_format_fixed_length: int | None = None
    step_name_format: Any = None
    create: bool = True
    cleanup_tmp_directories: bool = False
    save_on_steps: Container[int] | None = None
    single_host_load_and_broadcast: bool = False
    todelete_subdir: str | None = None
    todelete_full_path: str | None = None
    enable_background_delete: bool = False
    num_deletion_threads: int | None = None
    read_only: bool = False
    enable_async_checkpointing: bool = True
    async_options: AsyncOptions | None = None
    multiprocessing_options: MultiprocessingOptions = dataclasses.field(
        default_factory=MultiprocessingOptions
    )
    should_save_fn: Callable[[int, int | None], bool] | None = None
    file_options: FileOptions = dataclasses.field(default_factory=FileOptions)
    save_root_metadata: bool = True
    temporary_path_class: Any = None
    atomicity_options: AtomicityOptions | None = None
    save_decision_policy: SaveDecisionPolicy | None = None
    preservation_policy: PreservationPolicy | None = None
    prevent_write_metrics: bool = False
    enable_should_save_is_saving_in_progress_check: bool = True
    enable_per_process_directory_creation: bool = False
    lightweight_initialize: bool = False

    def __post_init__(self) -> None:
        if self.best_mode not in ("min", "max"):
            raise ValueError(f"best_mode {self.best_mode!r}: 'min' or 'max'")
        if self.read_only:
            _log.warning("read_only: nothing is saved, deleted or created")
            self._make_read_only()
        if (
            self.todelete_subdir is not None
            and self.todelete_full_path is not None
        ):
            raise ValueError(
                "todelete_subdir and todelete_full_path: one of them"
            )
        if (
            self.todelete_subdir is not None
            or self.todelete_full_path is not None
        ):
            raise NotImplementedError(
                "todelete_subdir, todelete_full_path: steps have no "
                "directories to move. Deleting one takes microseconds, and its "
                "bytes are freed in the background: leave these options out"
            )
        keep = self.max_to_keep
        if self.preservation_policy is None and keep is not None and keep < 0:
            raise ValueError(
                "Setting of max_to_keep must be None or non-negative: "
                f"it is {keep}"
            )
        if self.save_on_steps is None:
            self.save_on_steps = frozenset()
        check_processes(self.multiprocessing_options)
        if self.enable_per_process_directory_creation:
            if self.multiprocessing_options.primary_host is not None:
                raise ValueError(
                    "enable_per_process_directory_creation wants "
                    "primary_host=None"
                )
            raise NotImplementedError(
                "enable_per_process_directory_creation: one process writes a "
                "store: leave this out"
            )
        tell_of(self, "CheckpointManagerOptions")
        tell_of(self.async_options)
        tell_of(self.file_options)
        tell_of(self.atomicity_options)

    def _make_read_only(self) -> None:
        self.save_interval_steps = 0
        self.max_to_keep = None
        self.keep_time_interval = None
        self.keep_period = None
        self.should_keep_fn = None
        self.should_save_fn = None
        self.create = False
        self.cleanup_tmp_directories = False
        self.save_on_steps = frozenset()
        self.todelete_subdir = None
        self.todelete_full_path = None


def as_options(given: Any) -> CheckpointManagerOptions:
    """`given`, or the same of Orbax's own. TypeError: it is neither."""
    if given is None:
        return CheckpointManagerOptions()
    if isinstance(given, CheckpointManagerOptions):
        return given
    if not is_of_orbax(given, "CheckpointManagerOptions"):
        raise TypeError(
            f"options: CheckpointManagerOptions, not a {type(given).__name__}"
        )
    names = [
        field.name for field in dataclasses.fields(CheckpointManagerOptions)
    ]
    return CheckpointManagerOptions(
        **{name: getattr(given, name) for name in names if hasattr(given, name)}
    )


def check_options(options: CheckpointManagerOptions) -> None:
    """ValueError: options that say the same twice, or nothing that can be."""
    asynchronous = options.async_options or AsyncOptions()
    if asynchronous.timeout_secs <= 0:
        raise ValueError(
            f"timeout_secs={asynchronous.timeout_secs}: it must be positive"
        )
    if not options.enable_async_checkpointing:
        if asynchronous.post_finalization_callback is not None:
            raise ValueError(
                "post_finalization_callback goes with "
                "enable_async_checkpointing=True"
            )
    if options.create and options.multiprocessing_options.active_processes:
        raise NotImplementedError(
            "create=True with active_processes: pass create=False, and the "
            "first save makes the directory"
        )
    if options.preservation_policy is None:
        return
    for name in ("max_to_keep", "keep_time_interval", "keep_period"):
        if getattr(options, name):
            raise ValueError(
                f"preservation_policy and {name}: join them in one "
                "AnyPreservationPolicy"
            )


class Kept:
    """Policies of Orbax's kind as the engine's; keeps what their functions
    raise, as they raised it."""

    def __init__(
        self, metrics_of: Callable[[int, dict[str, float]], Any]
    ) -> None:
        self._metrics_of = metrics_of
        self.raised: BaseException | None = None

    def policy(self, given: Any) -> Policy:
        """TypeError: it is no policy."""
        if isinstance(given, Policy):
            return given
        if isinstance(given, AnyPreservationPolicy):
            parts = [self.policy(part) for part in given.policies]
            whole = parts[0]
            for part in parts[1:]:
                whole = whole | part
            return whole
        if isinstance(given, BestN):
            return given.by(self.metric(given.get_metric_fn))
        if isinstance(given, Keeps):
            return given._policy()
        if not hasattr(given, "should_preserve"):
            raise TypeError(
                f"preservation_policy: {given!r} has no should_preserve()"
            )
        return Custom(_Named(type(given).__name__, self._asking(given)))

    def metric(
        self, function: Callable[[Any], Any]
    ) -> Callable[[dict[str, float], int], float | None]:
        """A function of the metrics as they were given to save()."""

        def by(stored: dict[str, float], step: int) -> float | None:
            metrics = self._metrics_of(step, stored)
            if metrics is None:
                return None
            with self:
                return float(function(metrics))
            return None

        return by

    def _asking(self, given: Any) -> Callable[[list[PolicyStep]], list[bool]]:
        def ask(steps: list[PolicyStep]) -> list[bool]:
            infos = [
                PolicyCheckpointInfo(
                    step.step,
                    datetime.datetime.fromtimestamp(
                        step.time, datetime.timezone.utc
                    ),
                    self._metrics_of(step.step, dict(step.metrics)),
                )
                for step in steps
            ]
            with self:
                return [
                    bool(keep)
                    for keep in given.should_preserve(
                        infos, context=PreservationContext()
                    )
                ]
            return []

        return ask

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: Any, error: BaseException | None, trace: Any
    ) -> None:
        if error is not None:
            self.raised = error

    def take(self, message: str) -> BaseException | None:
        """What was raised, if it is that of which an error of the engine
        speaks."""
        raised = self.raised
        if raised is None:
            return None
        said = type(raised).__name__ + (f": {raised}" if str(raised) else "")
        if said not in message:
            return None
        self.raised = None
        return raised


class _Named:
    """A function with a name, which is stored with the policy."""

    def __init__(self, name: str, function: Callable[..., Any]) -> None:
        self.__name__ = name
        self._function = function

    def __call__(self, *args: Any) -> Any:
        return self._function(*args)
