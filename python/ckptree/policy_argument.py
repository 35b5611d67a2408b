# SPDX-License-Identifier: Apache-2.0
"""A policy as an argument, without the policies: they are imported when the
first of them is named, which a program that reads does not."""

from __future__ import annotations

from ckptree import _engine
from ckptree.arguments import Kind
from ckptree.errors import InvalidArgumentError
from ckptree.hints import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ckptree.policies import Policy


def _policy(name: str, value: Any) -> Any:
    if isinstance(value, str):
        return NotImplemented
    from ckptree.policies import Policy

    return value if isinstance(value, Policy) else NotImplemented


POLICY = Kind("a policy", _policy)


def engine_policy(policy: Policy | str) -> _engine.Preservation:
    """What the engine has for a policy or its text."""
    if isinstance(policy, str):
        return _engine.parse_policy(policy)
    return policy._engine


def policy_text(name: str, policy: Policy | str | None) -> str | None:
    """The text of an option that is a policy; ValueError, by its name, where it
    is the text of none."""
    if policy is None:
        return None
    try:
        return engine_policy(policy).text()
    except InvalidArgumentError as error:
        raise InvalidArgumentError(f"{name}: {error}") from None
