# SPDX-License-Identifier: Apache-2.0
"""What a manager says of a metric that orders no steps: NaN."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from ckptree import logs
from ckptree.hints import Any
from ckptree.policy_step import MetricOfStep


class Unmeasured:
    """Says once that steps stay whose metric is NaN, where a manager keeps the
    best ones: `metric` and `function`, which say what these are, as it has
    them, and `policy`, the text of one that it was given.

    >>> Unmeasured("loss").name_of_nan({"loss": math.nan})
    "the metric 'loss'"
    """

    def __init__(
        self,
        metric: str = "",
        function: Callable[..., Any] | None = None,
        policy: str = "",
    ) -> None:
        self._names = [metric] if metric else list(_metrics_in(policy))
        # Of one that is told the step, too, its owner says it.
        mine = not isinstance(function, MetricOfStep)
        self._function = function if mine else None
        self._remedy = (
            'Best(..., unmeasured="drop")'
            if policy
            else "keep_checkpoints_without_metrics=False"
        )
        self._said = False

    def name_of_nan(self, metrics: Mapping[str, float]) -> str | None:
        """What is NaN; None: nothing."""
        for name in self._names:
            if math.isnan(metrics.get(name, 0.0)):
                return f"the metric {name!r}"
        if self._function is None or not metrics:
            return None
        try:
            value = self._function(dict(metrics))
            nan = value is not None and math.isnan(value)
        except Exception:
            return None  # The policy raises it, too.
        return "what best_fn returns" if nan else None

    def see(
        self, store: str, step: int, metrics: Mapping[str, float] | None
    ) -> None:
        """A step that is saved."""
        if self._said or not metrics:
            return
        name = self.name_of_nan(metrics)
        if name is None:
            return
        self._said = True
        logs.warn(store, "save", text_of_nan(step, name, self._remedy))


def text_of_nan(step: int, name: str, remedy: str) -> str:
    """What is said of a step."""
    return (
        f"step {step}: {name} is NaN, which is neither better nor worse than "
        "another: all such steps stay beside the best ones. delete() takes "
        f"them away, and {remedy} lets them go by themselves. This is said once"
    )


def _metrics_in(policy: str) -> set[str]:
    """The metrics of best(METRIC, MODE, N), where not all steps stay."""
    if "best(" not in policy:
        return set()
    import re

    best = r'best\((?:"((?:[^"\\]|\\.)*)"|([^",()]+)), \w+, \d+\)'
    # A step whose metric is NaN is not healthy, and goes.
    healthy = rf"(?:\bhealthy\s*&\s*{best}|{best}\s*&\s*healthy\b)"
    policy = re.sub(healthy, "", policy)
    found = re.findall(rf"\b{best}", policy)
    return {quoted.replace("\\", "") or plain for quoted, plain in found}
