# SPDX-License-Identifier: Apache-2.0
"""Metadata as the store has it: a text of JSON, empty for none."""

from __future__ import annotations

import json
from typing import Any


def to_json(metadata: Any) -> str:
    """TypeError or ValueError where json cannot write it.

    >>> to_json({"seed": 1}), to_json(None)
    ('{"seed": 1}', '')
    """
    if metadata is None:
        return ""
    try:
        return json.dumps(metadata, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise type(error)(f"metadata is what json can write: {error}") from None


def from_json(text: str) -> Any:
    """What to_json() made the text of.

    >>> from_json('{"seed": 1}'), from_json("")
    ({'seed': 1}, None)
    """
    return json.loads(text) if text else None
