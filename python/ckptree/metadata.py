# SPDX-License-Identifier: Apache-2.0
"""Metadata as the store has it, a text of JSON, empty for none; and times."""

from __future__ import annotations

import math
import warnings

from ckptree.arguments import shown
from ckptree.errors import level_of_caller
from ckptree.hints import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import datetime

# As deep as the engine takes it.
_MAX_DEPTH = 500


def to_json(metadata: Any) -> str:
    """TypeError or ValueError where json cannot write it, or has only str for
    what is a key. A tuple comes back as a list, of which a warning says where
    it is.

    >>> to_json({"seed": 1}), to_json(None)
    ('{"seed": 1}', '')
    >>> to_json({"rates": {1: 0.5}})
    Traceback (most recent call last):
    TypeError: metadata['rates'] has the key 1, and keys of JSON are str: ...
    """
    if metadata is None:
        return ""
    import json  # Here, for a process that reads one leaf goes without.

    try:
        text = json.dumps(metadata, allow_nan=False)
        if json.loads(text) != metadata:
            _look(metadata, "metadata")
    except RecursionError:
        raise ValueError(
            f"metadata has more than {_MAX_DEPTH} levels"
        ) from None
    except _Refused as error:
        raise TypeError(str(error)) from None
    except (TypeError, ValueError) as error:
        raise type(error)(f"metadata is what json can write: {error}") from None
    return text


class _Refused(Exception):
    """What json would write as something else."""


def _look(value: Any, where: str) -> None:
    """Where it comes back as something else: raises, or warns."""
    if isinstance(value, dict):
        for key, part in value.items():
            if not isinstance(key, str):
                raise _Refused(
                    f"{where} has the key {key!r}, and keys of JSON are str: "
                    f"write {str(key)!r}"
                )
            _look(part, f"{where}[{key!r}]")
    elif isinstance(value, (list, tuple)):
        if isinstance(value, tuple):
            warnings.warn(
                f"{where} is a {type(value).__name__}, and comes back as a "
                "list: JSON has no other sequence",
                stacklevel=level_of_caller(),
            )
        for i, part in enumerate(value):
            _look(part, f"{where}[{i}]")


def as_json_has_it(value: Any) -> Any:
    """What json gives back of what it writes: keys that are no str become
    ones, tuples lists. ValueError: two keys of a dict would become one.

    >>> as_json_has_it({1: (2, 3)})
    {'1': [2, 3]}
    >>> as_json_has_it({1: 2, "1": 3})
    Traceback (most recent call last):
    ValueError: JSON has one key '1' for two of the same dict
    """
    import json

    return json.loads(json.dumps(value), object_pairs_hook=_dict_of)


def _dict_of(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) == len(pairs):
        return made
    keys = [key for key, _ in pairs]
    twice = next(key for key in keys if keys.count(key) > 1)
    raise ValueError(f"JSON has one key {twice!r} for two of the same dict")


def from_json(text: str) -> Any:
    """What to_json() made the text of.

    >>> from_json('{"seed": 1}'), from_json("")
    ({'seed': 1}, None)
    """
    if not text:
        return None
    import json

    return json.loads(text)


# Of times, and seconds that are too many in any case.
_MOST = 1e10


def nanoseconds(time: datetime.datetime | float) -> int:
    """Since 1970. ValueError: it says no zone, or is before 1678 or after 2261;
    TypeError: it is no time.

    >>> nanoseconds(1.5)
    1500000000
    >>> import datetime
    >>> utc = datetime.timezone.utc
    >>> nanoseconds(datetime.datetime(1970, 1, 2, tzinfo=utc))
    86400000000000
    """
    import datetime  # Here, as json above.

    if isinstance(time, datetime.datetime):
        if time.tzinfo is None:
            raise ValueError(
                f"time={time}: it has no zone: pass it with tzinfo, such as "
                "datetime.timezone.utc"
            )
        utc = datetime.timezone.utc
        since = time - datetime.datetime(1970, 1, 1, tzinfo=utc)
        return _possible(
            since // datetime.timedelta(microseconds=1) * 1000, time
        )
    if isinstance(time, bool) or not isinstance(time, (int, float)):
        raise TypeError(
            f"time={time!r}: a datetime.datetime, or seconds since 1970"
        )
    if isinstance(time, float) and not math.isfinite(time):
        raise ValueError(f"time={time}: a number of seconds since 1970")
    # Of more the nanoseconds are no float, or one that is no int.
    possible = abs(time) < _MOST
    return _possible(round(time * 1e9) if possible else 2**63, time)


def _possible(since: int, time: object) -> int:
    """`since`, where 64 bits can hold it; ValueError otherwise."""
    if abs(since) < 2**63 - 1:
        return since
    raise ValueError(
        f"time={shown(time)}: the years 1678 to 2261 are possible"
    )
