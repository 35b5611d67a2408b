# SPDX-License-Identifier: Apache-2.0
"""The folder in which the processes of a DCP save meet."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ckptree.errors import InvalidArgumentError, UnsupportedError

if TYPE_CHECKING:
    from ckptree.store import Store


def check_folder(store: Store) -> None:
    """Parts of a save are handed over in the folder of its store.
    UnsupportedError, InvalidArgumentError: there is none for all ranks."""
    ranks = store._ranks
    if ranks is not None and not ranks.shared_folder:
        raise UnsupportedError(
            f"{store.path}: its ranks share no folder, and a StoreWriter needs "
            "one that all of them see: give rank 0 a store in such a folder, "
            "with remote= and durable='remote', and the others its path"
        )
    if "://" in store.path:
        raise InvalidArgumentError(
            f"{store.path} is open by its address, to read: make the writer "
            "from the folder that ships there"
        )
