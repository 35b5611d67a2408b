# SPDX-License-Identifier: Apache-2.0
"""Retention: the policies of a store's branches."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ckptree import _engine
from ckptree.metadata import from_json, to_json
from ckptree.records import PolicyInfo, PolicyReport

if TYPE_CHECKING:
    from ckptree._engine import Store as EngineStore
    from ckptree.policies import Policy


class Retention:
    """Part of Store: what is said of its branches as a whole."""

    _engine: EngineStore

    def policy(self, branch: str = "") -> PolicyInfo:
        """Which steps of the branch live. Where none was set all do.

        >>> store.policy().text
        ''
        """
        return PolicyInfo(**self._engine.policy(branch))

    def set_policy(self, policy: Policy | str, branch: str = "") -> None:
        """From now on every save to the branch, by whatever program, removes
        the steps that `policy` (of ckptree.policies, or its text) does not
        keep. Pinned and tagged ones stay. Nothing is removed by this call.

        >>> store.set_policy(ckptree.Latest(2) | ckptree.EveryN(100))
        >>> for step in (201, 202, 203):
        ...     _ = store.save(step, state).result()
        >>> [info.step for info in store.steps()]
        [100, 200, 202, 203]
        """
        self._engine.set_policy(engine_policy(policy), branch)

    def preview_policy(
        self, policy: Policy | str | None = None, branch: str = ""
    ) -> PolicyReport:
        """What the policy of the branch, or `policy`, keeps of the steps there
        are, why, and what removing the others would free. Changes nothing.

        >>> report = store.preview_policy("latest(1)")
        >>> [(verdict.step, verdict.kept) for verdict in report.steps]
        [(100, False), (200, True)]
        """
        given = None if policy is None else engine_policy(policy)
        return PolicyReport.of(self._engine.preview_policy(branch, given))

    def apply_policy(self, branch: str = "") -> list[int]:
        """Removes now what the policy of the branch does not keep; returns it.

        >>> store.set_policy("latest(1)")
        >>> store.apply_policy()
        [100]
        """
        return self._engine.apply_policy(branch)

    def metadata(self, branch: str = "") -> Any:
        """What set_metadata() said of the run; None: nothing.

        >>> print(store.metadata())
        None
        """
        return from_json(self._engine.metadata(branch))

    def set_metadata(self, metadata: Any, branch: str = "") -> None:
        """Of the run as a whole: what json can write. None: nothing.

        >>> store.set_metadata({"learning rate": 0.5})
        >>> store.metadata()
        {'learning rate': 0.5}
        """
        self._engine.set_metadata(to_json(metadata), branch)


def engine_policy(policy: Policy | str) -> _engine.Preservation:
    """What the engine has for a policy or its text."""
    if isinstance(policy, str):
        return _engine.parse_policy(policy)
    try:
        return policy._engine
    except AttributeError:
        raise TypeError(f"pass a policy or its text, not {policy!r}") from None
