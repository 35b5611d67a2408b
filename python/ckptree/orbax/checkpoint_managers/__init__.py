# SPDX-License-Identifier: Apache-2.0
"""Policies: which steps are saved, and which are kept.

Those here are rules of the engine under Orbax's names. Objects of your own with
should_save() or should_preserve() work beside them.
"""

from ckptree.orbax.checkpoint_managers import (
    policy_checkpoint_info,
    preservation_policy,
    save_decision_policy,
)
from ckptree.orbax.checkpoint_managers.policy_checkpoint_info import (
    PolicyCheckpointInfo,
)
from ckptree.orbax.checkpoint_managers.preservation_policy import (
    AnyPreservationPolicy,
    BestN,
    CustomSteps,
    EveryNSeconds,
    EveryNSteps,
    EveryNStepsClosest,
    LatestDuration,
    LatestN,
    PreservationContext,
    PreservationPolicy,
    PreserveAll,
)
from ckptree.orbax.checkpoint_managers.save_decision_policy import (
    AnySavePolicy,
    ContinuousCheckpointingPolicy,
    DecisionContext,
    FixedIntervalPolicy,
    InitialSavePolicy,
    PreemptionCheckpointingPolicy,
    SaveDecisionPolicy,
    SpecificStepsPolicy,
)

__all__ = [
    "AnyPreservationPolicy",
    "AnySavePolicy",
    "BestN",
    "ContinuousCheckpointingPolicy",
    "CustomSteps",
    "DecisionContext",
    "EveryNSeconds",
    "EveryNSteps",
    "EveryNStepsClosest",
    "FixedIntervalPolicy",
    "InitialSavePolicy",
    "LatestDuration",
    "LatestN",
    "PolicyCheckpointInfo",
    "PreemptionCheckpointingPolicy",
    "PreservationContext",
    "PreservationPolicy",
    "PreserveAll",
    "SaveDecisionPolicy",
    "SpecificStepsPolicy",
    "policy_checkpoint_info",
    "preservation_policy",
    "save_decision_policy",
]
