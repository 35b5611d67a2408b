# SPDX-License-Identifier: Apache-2.0
"""ckptree: every checkpoint of a training run in one small store.

>>> import ckptree, numpy as np
>>> with ckptree.Store(tmp / "run") as store:
...     state = {"params": {"w": np.eye(2)}}
...     handle = store.save(1000, state, metrics={"loss": 0.5})
...     handle.result()
...     store["latest"]["params/w"][0]
1000
array([1., 0.])

NumPy is imported when arrays are; JAX, Flax and PyTorch never by this package.
"""

from __future__ import annotations

from ckptree.errors import (
    AbortedError,
    AlreadyExistsError,
    CancelledError,
    CorruptionError,
    CredentialsError,
    Difference,
    Error,
    InternalError,
    InvalidArgumentError,
    MismatchError,
    NoSpaceError,
    NotFoundError,
    PermissionDeniedError,
    StateError,
    StorageError,
    StoreNotFoundError,
    UnavailableError,
    UnsupportedError,
    WaitTimeoutError,
)
from ckptree.handle import SaveHandle
from ckptree.leaf import Leaf
from ckptree.manager import CheckpointManager
from ckptree.policies import (
    All,
    Best,
    Budget,
    Closest,
    Custom,
    Every,
    EveryN,
    EverySeconds,
    Healthy,
    KeepIf,
    Latest,
    Logarithmic,
    SpecificSteps,
    Within,
)
from ckptree.ranks import Ranks
from ckptree.step import Step
from ckptree.store import Store, close_all, open
from ckptree.view import LeafView
from ckptree._engine import VERSION as __version__

__all__ = [
    "AbortedError",
    "All",
    "AlreadyExistsError",
    "Best",
    "Budget",
    "CancelledError",
    "CheckpointManager",
    "Closest",
    "CorruptionError",
    "CredentialsError",
    "Custom",
    "Difference",
    "Error",
    "Every",
    "EveryN",
    "EverySeconds",
    "Healthy",
    "InternalError",
    "InvalidArgumentError",
    "KeepIf",
    "Latest",
    "Leaf",
    "LeafView",
    "Logarithmic",
    "MismatchError",
    "NoSpaceError",
    "NotFoundError",
    "PermissionDeniedError",
    "Ranks",
    "SaveHandle",
    "SpecificSteps",
    "StateError",
    "Step",
    "StorageError",
    "Store",
    "StoreNotFoundError",
    "UnavailableError",
    "UnsupportedError",
    "WaitTimeoutError",
    "Within",
    "__version__",
    "close_all",
    "open",
]
