# SPDX-License-Identifier: Apache-2.0
"""Which parts of a step were states of NNX. A store saves the values of their
variables alone: it is noted for those who want the variables, and restoring
needs none of it."""

from __future__ import annotations

import json
from typing import Mapping, Sequence

# The name of the line of a step's lineage that has all of it.
LINE = "variables"
# A line may have that much; where there is more it is left out.
_MAX_BYTES = 1 << 20

# Leaves of a state that are no variables, by the keys below it.
Others = Sequence[Sequence[str]]


def to_text(states: Mapping[str, Others]) -> str:
    """Of states by their names; empty where there are none, or too many.

    >>> to_text({"model": [], "opt": [("count",)]})
    '{"model":[],"opt":[["count"]]}'
    """
    text = json.dumps(states, separators=(",", ":")) if states else ""
    return text if len(text) <= _MAX_BYTES else ""


def from_text(text: str) -> dict[str, Others]:
    """What to_text() made the text of.

    >>> from_text('{"model":[],"opt":[["count"]]}')
    {'model': [], 'opt': [['count']]}
    """
    found: dict[str, Others] = json.loads(text) if text else {}
    return found
