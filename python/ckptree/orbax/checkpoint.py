# SPDX-License-Identifier: Apache-2.0
"""The same as ckptree.orbax, for programs in which "orbax" alone is replaced:
`from ckptree.orbax import checkpoint as ocp`, `import ckptree.orbax.checkpoint
as ocp`. Modules below it are those of ckptree.orbax, not copies."""

from __future__ import annotations

import sys

import ckptree.orbax
from ckptree.orbax import *  # noqa: F403

_WITHOUT, _WITH = "ckptree.orbax", "ckptree.orbax.checkpoint"

for _name in list(sys.modules):
    if _name.startswith(_WITHOUT + ".") and not _name.startswith(_WITH + "."):
        sys.modules[_WITH + _name.removeprefix(_WITHOUT)] = sys.modules[_name]
sys.modules[_WITH] = ckptree.orbax
