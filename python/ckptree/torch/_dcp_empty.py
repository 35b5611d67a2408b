# SPDX-License-Identifier: Apache-2.0
"""Empty dicts in folders of PyTorch's Distributed Checkpoint (DCP)."""

from __future__ import annotations

from typing import Any, Iterator, Mapping

from torch.distributed.checkpoint.default_planner import DefaultSavePlanner

# Before what stands for their names.
_MARK = "ckptree.empty:"


def places_in(said: Mapping[Any, Any]) -> list[Any]:
    """Where they are, as the metadata of a folder has it; it may be damaged."""
    return [
        place
        for name, place in said.items()
        if isinstance(name, str) and name.startswith(_MARK)
    ]


class SavePlanner(DefaultSavePlanner):  # type: ignore[misc]
    """Says among the places of the entries where empty dicts are, which are no
    entries. If they were, DCP would take the folder for one of PyTorch 2.3, and
    not load it. So it is as if it had written the folder itself."""

    def set_up_planner(
        self, state_dict: dict[str, Any], *args: Any, **kwargs: Any
    ) -> None:
        super().set_up_planner(state_dict, *args, **kwargs)
        entries = set(self.mappings.values())
        for place in _empty_dicts(state_dict, (), entries):
            self.mappings[_MARK + repr(place)] = place


def _empty_dicts(
    value: Any, place: tuple[Any, ...], places: set[tuple[Any, ...]]
) -> Iterator[tuple[Any, ...]]:
    """Where they are, but for those in a list that is one entry: `places` are
    those of the entries."""
    if place in places:
        return
    if isinstance(value, dict):
        if not value and place:
            yield place
        for key, child in value.items():
            yield from _empty_dicts(child, (*place, str(key)), places)
    elif isinstance(value, list):
        for i, child in enumerate(value):
            yield from _empty_dicts(child, (*place, i), places)
