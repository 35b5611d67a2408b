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


def _load_engine() -> None:
    """Of the functions of its libraries few are ever called: each is looked up
    when it is, not all of them at the import."""
    import os
    import sys

    flags = sys.getdlopenflags()
    sys.setdlopenflags(os.RTLD_LAZY)
    try:
        import ckptree._engine
    finally:
        sys.setdlopenflags(flags)


from ckptree.garbage import without_collection as _without_collection

# Of what an import makes nearly all stays.
with _without_collection():
    _load_engine()

    import ckptree.forking
    from ckptree.hints import TYPE_CHECKING, Any
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
    from ckptree.ranks import Ranks
    from ckptree.step import Step
    from ckptree.store import Store
    from ckptree.stores import close_all, open
    from ckptree.view import LeafView
    from ckptree._engine import VERSION as __version__

if TYPE_CHECKING:
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

if not TYPE_CHECKING:
    _LATER = {"decisions", "manager", "policies"}

    def __getattr__(name: str) -> Any:
        """What is imported when it is named first: a program that reads one
        leaf is done before it would be there."""
        if name == "CheckpointManager":
            from ckptree.manager import CheckpointManager

            return CheckpointManager
        # The import puts them where they are found from then on.
        if name == "decisions":
            import ckptree.decisions as decisions

            return decisions
        if name == "manager":
            import ckptree.manager as manager

            return manager
        if name == "policies":
            import ckptree.policies as policies

            return policies
        if name in __all__:  # A policy: all others are there.
            import ckptree.policies as policies

            return getattr(policies, name)
        raise AttributeError(f"module 'ckptree' has no attribute {name!r}")

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__, *_LATER})
