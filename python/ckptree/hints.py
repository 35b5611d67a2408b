# SPDX-License-Identifier: Apache-2.0
"""What annotations are made of, without the module typing: a program that reads
one leaf would spend a fifth of its time to import that. Type checkers see
typing itself. Without them a hint that is Any, or a TypeVar, is object.

>>> class Point(NamedTuple):
...     x: int
...     y: int = 0
...
>>> Point(3)
Point(x=3, y=0)
"""

from __future__ import annotations

import sys

# Type checkers take a variable of this name for true.
TYPE_CHECKING = False

# From 3.14 on the body of a class has no dict of its hints.
if TYPE_CHECKING or sys.version_info >= (3, 14):
    from typing import Any as Any
    from typing import NamedTuple as NamedTuple
    from typing import Protocol as Protocol
    from typing import TypedDict as TypedDict
    from typing import TypeVar as TypeVar
    from typing import cast as cast
    from typing import overload as overload
else:
    from collections import namedtuple

    Any = object

    def TypeVar(name, **bounds):
        return object

    def cast(kind, value):
        return value

    def overload(function):
        return function

    class Protocol:
        """To be a base of classes that nobody makes an object of."""

    class TypedDict(dict):
        """To be a base of dicts with these keys."""

        def __init_subclass__(cls, total=True):
            super().__init_subclass__()

    # Of the body of a class, what a named tuple has by itself.
    _NOT_TAKEN = {"__annotations__", "__dict__", "__module__", "__weakref__"}

    class _NamedTupleType(type):
        def __new__(cls, name, bases, body):
            hints = body.get("__annotations__", {})
            defaults = [body[field] for field in hints if field in body]
            made = namedtuple(
                name, hints, defaults=defaults, module=body["__module__"]
            )
            made.__annotations__ = dict(hints)
            for key, value in body.items():
                if key not in hints and key not in _NOT_TAKEN:
                    setattr(made, key, value)
            return made

    class _Base:
        def __mro_entries__(self, bases):
            return (_fields,)

    # Made by type() itself: a class with that metaclass is a named tuple.
    _fields = type.__new__(_NamedTupleType, "NamedTuple", (), {})
    NamedTuple = _Base()
