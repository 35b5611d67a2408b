# SPDX-License-Identifier: Apache-2.0
"""Metadata as the store has it, a text of JSON, empty for none; and times."""

from __future__ import annotations

import datetime
import json
import math
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


# Of times.
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc)


def nanoseconds(time: datetime.datetime | float) -> int:
    """Since 1970. ValueError: it says no zone, or is before 1678 or after 2261;
    TypeError: it is no time.

    >>> nanoseconds(1.5)
    1500000000
    >>> utc = datetime.timezone.utc
    >>> nanoseconds(datetime.datetime(1970, 1, 2, tzinfo=utc))
    86400000000000
    """
    if isinstance(time, datetime.datetime):
        if time.tzinfo is None:
            raise ValueError(
                f"time={time}: it has no zone: pass it with tzinfo, such as "
                "datetime.timezone.utc"
            )
        since = time - _EPOCH
        return _possible(
            since // datetime.timedelta(microseconds=1) * 1000, time
        )
    if isinstance(time, bool) or not isinstance(time, (int, float)):
        raise TypeError(
            f"time={time!r}: a datetime.datetime, or seconds since 1970"
        )
    if not math.isfinite(time):
        raise ValueError(f"time={time}: a number of seconds since 1970")
    return _possible(round(time * 1e9), time)


def _possible(since: int, time: object) -> int:
    """`since`, where 64 bits can hold it; ValueError otherwise."""
    if abs(since) < 2**63 - 1:
        return since
    raise ValueError(f"time={time}: the years 1678 to 2261 are possible")
