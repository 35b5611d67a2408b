# SPDX-License-Identifier: Apache-2.0
"""Parameters of Flax before Linen."""

from __future__ import annotations

import re
from typing import Any, Mapping

_NUMBERED = re.compile(r"(.+)_(\d+)")


def convert_pre_linen(params: Any) -> Any:
    """Renumbers submodules, "Dense_0", "Conv_1", ..., by their kind, as Linen
    calls them; at every level. Changes nothing that is numbered so already.

    >>> convert_pre_linen({"Conv_0": 1, "Dense_1": 2, "Conv_2": {"Dense_3": 3}})
    {'Conv_0': 1, 'Dense_0': 2, 'Conv_1': {'Dense_0': 3}}
    """
    if not isinstance(params, Mapping):
        return params
    numbered = []
    for name in params:
        match = _NUMBERED.fullmatch(name) if isinstance(name, str) else None
        if match:
            numbered.append((int(match.group(2)), match.group(1), name))
    counts: dict[str, int] = {}
    new: dict[str, str] = {}
    for _, kind, name in sorted(numbered):
        number = counts.get(kind, 0)
        counts[kind] = number + 1
        new[name] = f"{kind}_{number}"
    return type(params)(
        {new.get(k, k): convert_pre_linen(v) for k, v in params.items()}  # type: ignore[call-arg]
    )
