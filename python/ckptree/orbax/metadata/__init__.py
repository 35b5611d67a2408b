# SPDX-License-Identifier: Apache-2.0
"""What a checkpoint says of itself: plain data, read without its arrays and
without the devices it was saved on."""

from ckptree.orbax.metadata.checkpoint import (
    RootMetadata,
    StepMetadata,
    StepStatistics,
)
from ckptree.orbax.metadata.sharding import (
    NamedShardingMetadata,
    ShardingMetadata,
    SingleDeviceShardingMetadata,
)
from ckptree.orbax.metadata.tree import TreeMetadata, tree_of
from ckptree.orbax.metadata.value import (
    ArrayMetadata,
    Metadata,
    ScalarMetadata,
    StorageMetadata,
    StringMetadata,
)

__all__ = [
    "ArrayMetadata",
    "Metadata",
    "NamedShardingMetadata",
    "RootMetadata",
    "ScalarMetadata",
    "ShardingMetadata",
    "SingleDeviceShardingMetadata",
    "StepMetadata",
    "StepStatistics",
    "StorageMetadata",
    "StringMetadata",
    "TreeMetadata",
    "tree_of",
]
