# SPDX-License-Identifier: Apache-2.0
"""A policy as an argument, without the policies: they are imported when the
first of them is named, which a program that reads does not."""

from __future__ import annotations

from ckptree import _engine
from ckptree.arguments import Kind
from ckptree.errors import Error, InvalidArgumentError, UnsupportedError
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


def rule_text(name: str, policy: Policy | str | None) -> str | None:
    """The same of a policy that asks no function: InvalidArgumentError, by the
    name of the option. An open says it, too, which may come much later."""
    text = policy_text(name, policy)
    if text is None:
        return None
    try:
        _engine.parse_policy(text).decide([], None)
    except UnsupportedError:
        pass  # What a budget keeps is asked of a store.
    except Error as error:
        raise InvalidArgumentError(f"{name}: {error}") from None
    return text
