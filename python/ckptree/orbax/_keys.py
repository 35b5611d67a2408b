# SPDX-License-Identifier: Apache-2.0
"""Names of leaves as Orbax compares them: keys as text, whatever the kind of
their container."""

from __future__ import annotations

import functools
import json

Keys = tuple[str, ...]


def keys_of(name: str) -> Keys:
    """The keys of a name below its item.

    >>> keys_of("state/opt/[0]/.mu/kernel")
    ('opt', '0', 'mu', 'kernel')
    >>> keys_of('state/"a/b"/{7}'), keys_of("state")
    (('a/b', '7'), ())
    """
    parts = name.split("/") if '"' not in name else _split(name)
    return tuple(map(_key, parts[1:]))


def item_of(name: str) -> str:
    """The part of a name that names its item, as text."""
    return name.partition("/")[0] if '"' not in name else _split(name)[0]


def _split(name: str) -> list[str]:
    """At each '/' that is not within quotes."""
    parts, start, quoted, i = [], 0, False, 0
    while i < len(name):
        if name[i] == '"':
            quoted = not quoted
        elif name[i] == "\\" and quoted:
            i += 1
        elif name[i] == "/" and not quoted:
            parts.append(name[start:i])
            start = i + 1
        i += 1
    return [*parts, name[start:]]


@functools.lru_cache(maxsize=1 << 16)
def _key(part: str) -> str:
    """What is inside of the mark of a part's kind."""
    if part[:1] == "." or (part[:1] in "[{<" and part[-1:] in "]}>"):
        part = part[1:] if part[:1] == "." else part[1:-1]
    if part[:1] == '"' and part[-1:] == '"':
        try:
            return str(json.loads(part))
        except ValueError:
            return part[1:-1]  # Escapes of C that JSON lacks.
    return part
