# SPDX-License-Identifier: Apache-2.0
"""A step, read into an app: compared first, whole, then read in place.

Of modules, generators and tensors the step must have just the leaves that the
app has. What has other leaves from one moment to the next (optimizers,
schedulers, data loaders, plain values) becomes what the step says; of these,
too, tensors that are there and fit are read in place.
"""

from __future__ import annotations

import bisect
import copy
import functools
from collections import OrderedDict
from typing import TYPE_CHECKING, Any, Callable, Iterable, Mapping, Sequence

import numpy as np
import torch

from ckptree import _engine
from ckptree.adapters import torch_keys, torch_saved
from ckptree.adapters.protocol import ANY_SIZE, Expected, Request, type_name
from ckptree.adapters.torch import takes, whole
from ckptree.adapters.torch_dtypes import NAMES, memory_of
from ckptree.adapters.torch_memory import is_freed, overlaps
from ckptree.adapters.torch_parts import classes_of
from ckptree.arrays import values
from ckptree.restoring import engine, plain
from ckptree.restoring.template import Like
from ckptree.torch import _app, _one_memory
from ckptree.torch._slot import Slot

if TYPE_CHECKING:
    from ckptree.options import RestoreOptions

# What get_extra_state() of a module returned, in its state_dict().
_EXTRA_STATE = "_extra_state"


def template_of(
    app: dict[str, Any], per_rank: Iterable[str] = ()
) -> dict[str, Any]:
    """Of an app: what it has at each place, or a Slot."""
    # Where the step has the values of all ranks, the app's are read one by one.
    opened = {id(app)}
    for subtree in per_rank:
        here: Any = app
        for key in subtree.split("/"):
            here = here.get(key) if type(here) is dict else None
            if here is not None:
                opened.add(id(here))

    def of_object(found: _app.Object) -> Any:
        state = found.state()
        if not found.has_fixed_state:
            return Slot(state, found.value)
        if isinstance(found.value, torch.nn.Module):
            return _with_slots(state)
        return state

    made: dict[str, Any] = _app.mapped(
        app,
        of_object,
        lambda value: Slot(value) if _app.is_plain(value) else value,
        lambda value: id(value) not in opened and _app.is_plain(value),
    )
    return made


def _with_slots(state: Any) -> Any:
    """The state of a module; what modules have of their own is free."""
    own = [
        key
        for key in state
        if isinstance(key, str) and key.rpartition(".")[2] == _EXTRA_STATE
    ]
    if not own:
        return state
    made = copy.copy(state)  # With the versions that an OrderedDict has.
    for key in own:
        made[key] = Slot(state[key], stays=True)
    return made


class InPlace(Like):
    """One load into an app. `device`: where tensors are made that have no place
    yet; `classes`: of tensors that may be made of their parts, beside those
    that are there; `per_rank`: where a step has the values of all ranks, and
    the app those of one."""

    only_its_own = (
        "ckptree.torch.load(..., partial=True) loads only what the app has"
    )

    def __init__(
        self,
        step: _engine.Step,
        options: RestoreOptions,
        device: Any,
        classes: Sequence[type] = (),
        per_rank: Iterable[str] = (),
    ) -> None:
        super().__init__(step, "", options)
        self.per_rank = per_rank
        self.device = device
        self.classes = classes
        self.slots: dict[str, Slot] = {}
        # Its own way with these: it reads into what is there.
        self.ties = None
        # Tensors whose memory another one has, too: by their names, its name.
        self.twins: dict[str, str] = {}
        # Whether something of the app may be of the step by now.
        self.began = False
        # What is read beside the app, and then copied.
        self.converted: dict[str, torch.Tensor] = {}
        # Of these the names of tensors that have elements in common.
        self.with_common: list[list[str]] = []

    def _on_leaf(self, name: str, leaf: Any) -> Any:
        if isinstance(leaf, Slot):
            self.slots[name] = leaf
            return leaf
        return super()._on_leaf(name, leaf)

    def _named(self) -> Iterable[str]:
        return [*self.leaves, *self.slots]

    # ---- What matches ----

    def match(self) -> None:
        super().match()
        names = sorted(self.there.listed)
        covered: set[str] = set()
        for name, slot in self.slots.items():
            there = self.renames.apply(name)
            here = [there] if there in self.there.listed else []
            # Below it are the names that go on with "/", which "0" follows.
            first = bisect.bisect_left(names, there + "/")
            here += names[first : bisect.bisect_left(names, there + "0")]
            slot.infos = [self.there.listed[below] for below in here]
            slot.find(there)
            covered.update(here)
            covered.add(there)
        self.claimed |= covered
        others = [self._of_others(subtree) for subtree in self.per_rank]
        self.unexpected = [
            name
            for name in self.unexpected
            if name not in covered and not any(of(name) for of in others)
        ]

    def _of_others(self, subtree: str) -> Callable[[str], bool]:
        """Whether a name of the step is of another rank than those that the
        app has in that place."""
        root = self.renames.apply(subtree) + "/"
        own = {
            there[len(root) :].partition("/")[0]
            for there in map(self.renames.apply, self._named())
            if there.startswith(root)
        }
        return lambda name: (
            name.startswith(root)
            and name[len(root) :].partition("/")[0] not in own
        )

    def ask_all(self) -> dict[str, Request]:
        asked = super().ask_all()
        self._find_twins(asked)
        for name in self.twins:
            asked.pop(name, None)
        for name, slot in self.slots.items():
            self._compare_slot(name, slot)
        return asked

    def ask(self, name: str, leaf: Expected) -> Request | None:
        request = super().ask(name, leaf)
        if request is None or leaf.arrays != "torch":
            return request
        here = leaf.like
        if here.device.type == "meta":
            return request._replace(place=self.device)
        if ANY_SIZE in leaf.shape:
            return request
        if is_freed(here):
            self.differ(
                name,
                "memory",
                "its memory was freed: nothing can be read into it",
                request.info,
            )
            return None
        if overlaps(here):
            self.differ(
                name,
                "memory",
                "several elements are one in memory, as expand() and unfold() "
                "make them: nothing can be read into it",
                request.info,
            )
            return None
        if request.info.dtype_name != leaf.dtype or request.arrays != "torch":
            self.converted[name] = here.detach()
            return request
        return request._replace(into=here)

    def _find_twins(self, asked: dict[str, Request]) -> None:
        """Tied tensors are read once: their leaves must have the same value.
        Those that have some elements in common are compared when both were
        read."""
        into = {}
        for name, request in asked.items():
            tensor = request.into
            if tensor is None:
                tensor = self.converted.get(name)
            if tensor is not None:
                into[name] = tensor
        names = list(into)
        for group in _one_memory.groups(list(into.values())):
            first: dict[Any, str] = {}
            for name in (names[i] for i in group):
                owner = first.setdefault(memory_of(into[name]), name)
                if owner != name:
                    self._note_twin(asked, name, owner)
            others = list(first.values())
            if len(others) > 1 and _one_memory.have_common(
                [into[name] for name in others]
            ):
                self.with_common.append(others)
                for name in others:
                    asked[name] = asked[name]._replace(into=None)
                    self.converted[name] = into[name].detach()

    def _note_twin(
        self, asked: Mapping[str, Request], name: str, owner: str
    ) -> None:
        self.twins[name] = owner
        infos = [asked[owner].info, asked[name].info]
        if infos[0].name != infos[1].name:
            one, other = self.step.details(infos)
            if one["digest"] != other["digest"]:
                self.differ(
                    name,
                    "memory",
                    f"it is the same memory as {owner}, and the step has two "
                    "values",
                    infos[1],
                )

    def _compare_common(
        self, asked: Mapping[str, Request], made: Mapping[str, Any]
    ) -> None:
        """Notes where the step has two values for elements of two tensors."""
        for names in self.with_common:
            if not all(name in made for name in names):
                continue  # Another one differs.
            found = _one_memory.conflict(
                [self.converted[name] for name in names],
                [made[name] for name in names],
            )
            if found is not None:
                owner, name = (names[i] for i in found)
                self.differ(
                    name,
                    "memory",
                    f"some of it is the memory of {owner}, and the step has "
                    "two values for that",
                    asked[name].info,
                )

    def _compare_slot(self, name: str, slot: Slot) -> None:
        if not slot.infos:
            if not self.options["partial"]:
                self.differ(name, "missing", str(slot), "")
            return
        there = self.renames.apply(name)
        found = self.there.kind(there)
        if found is None:
            found = slot.infos[0].kind
        if self.there.is_tie(there):
            found = values.kind_of(self.there.value(there) or slot.infos[0])
        wanted = _kinds(slot.before)
        first = slot.infos[0]
        if first.name == there and first.tag in torch_saved.MARKS:
            wanted = ()  # DCP took it as bytes, which nobody has read yet.
        if wanted and found not in wanted:
            self.differ(name, "kind", str(slot), self.there.shown_at(there))
        elif isinstance(slot.owner, torch.optim.Optimizer):
            self._compare_groups(name, slot)
            self._compare_tensors(name, slot)

    def _compare_groups(self, name: str, slot: Slot) -> None:
        """load_state_dict() of an optimizer goes by places alone."""
        groups = slot.before.get("param_groups", ())
        here = [len(group["params"]) for group in groups]
        there: dict[int, int] = {}
        for info in slot.infos:
            keys = [key for _, key in info.path[slot.depth :]]
            if keys[:1] == ["param_groups"] and len(keys) > 1:
                there.setdefault(keys[1], 0)
                there[keys[1]] += keys[2:3] == ["params"] and len(keys) == 4
        found = [there[i] for i in sorted(there)]
        if found != here:
            self.differ(
                f"{name}/param_groups", "shape", _groups(here), _groups(found)
            )

    def _compare_tensors(self, name: str, slot: Slot) -> None:
        there = self.renames.apply(name)
        for info in slot.infos:
            tensor = slot.tensor(info.name[len(there) + 1 :])
            if tensor is None or not info.is_leaf or not takes(info):
                continue
            expected = Expected(
                "array", NAMES.get(tensor.dtype, ""), tuple(tensor.shape)
            )
            below = name + info.name[len(there) :]
            if not expected.fits(info.shape):
                self.differ(below, "shape", expected, info)
            elif info.dtype_name != expected.dtype and (
                not self.options["cast"]
            ):
                hint = "or pass cast=True"
                self.differ(below, "dtype", expected, info, hint)

    # ---- Reading ----

    def load(self, asked: Mapping[str, Request]) -> dict[str, Any]:
        if not any(slot.infos for slot in self.slots.values()):
            self.check_any(asked)
        of_slots = {
            name: self._requests(name, slot)
            for name, slot in self.slots.items()
            if slot.infos
        }
        self._leave_taken(asked, of_slots.values())
        every = [request.info for request in asked.values()]
        for requests in of_slots.values():
            every += [request.info for request in requests.values()]
        step = values.reading(self.step, every, self.meter)
        # First what may turn out not to fit: nothing has changed yet.
        apart = {n: r for n, r in asked.items() if r.into is None}
        made, changed = engine.load(step, apart, self.convert)
        for name, what in changed.items():
            self.changed(name, what)
        self._compare_common(apart, made)
        self.check()
        self.began = True
        in_place = {n: r for n, r in asked.items() if r.into is not None}
        made.update(engine.load(step, in_place, self.convert)[0])
        for name, tensor in self.converted.items():
            if name in made:
                with torch.inference_mode(tensor.is_inference()):
                    tensor.copy_(made[name].detach())
                made[name] = self.leaves[name].like
        for name in self.twins:
            made[name] = self.leaves[name].like
        for name, slot in self.slots.items():
            if name in of_slots:
                made[name] = self._filled(step, slot, of_slots[name])
            elif slot.stays:
                made[name] = slot.before
        return made

    def _requests(self, name: str, slot: Slot) -> dict[str, Request]:
        """What to read for a slot, by the names of leaves in the step."""
        there = self.renames.apply(name)
        places = _places(slot.owner)
        requests: dict[str, Request] = {}
        for info in slot.infos:
            value = self.there.value(info.name)
            if value is None:
                continue
            below = info.name[len(there) + 1 :]
            known = requests.get(value.name)
            into = slot.tensor(below)
            if not takes(value) or slot.has_array(below):
                requests.setdefault(value.name, Request(value))
            elif known is None or known.into is None:
                fits = into is not None and _fits(into, value)
                requests[value.name] = Request(
                    value,
                    "torch",
                    self._place(info, value, slot, places, into),
                    into=into if fits else None,
                )
        return requests

    def _leave_taken(
        self,
        asked: Mapping[str, Request],
        of_slots: Iterable[dict[str, Request]],
    ) -> None:
        """What is there in a slot may be that of a module: a best model so far
        begins with the tensors of its state_dict(), or with views of them. It
        gets memory of its own, where the step has another value for it, or
        none."""
        wanted = list(of_slots)
        keys = [(r, k) for r in wanted for k in r if r[k].into is not None]
        if not keys:
            return
        places = []
        for name, leaf in self.leaves.items():
            here = leaf.like if leaf.arrays == "torch" else None
            if here is None or here.device.type == "meta":
                continue
            request = asked.get(name)
            if request is None and is_freed(here):
                continue
            value = "" if request is None else request.info.name
            places.append(_one_memory.Place(here, value, True))
        fixed = len(places)
        places += [
            _one_memory.Place(r[key].into, r[key].info.name, False)
            for r, key in keys
        ]
        for i in _one_memory.lost(places):
            requests, key = keys[i - fixed]
            requests[key] = requests[key]._replace(into=None)

    def _place(
        self,
        info: _engine.LeafInfo,
        value: _engine.LeafInfo,
        slot: Slot,
        places: Mapping[str, Any],
        there: torch.Tensor | None,
    ) -> Any:
        """Where a tensor is made. The moments of an optimizer lie where their
        parameter is; its counts of steps, and what other objects have, are on
        the host."""
        if there is not None:
            return self.device if there.device.type == "meta" else there.device
        if slot.owner is None:
            return self.device
        keys = [key for _, key in info.path[slot.depth :]]
        if keys[:1] == ["state"] and len(keys) > 2 and value.shape:
            return places.get(str(keys[1]))
        return None

    def _filled(
        self, step: _engine.Step, slot: Slot, requests: Mapping[str, Request]
    ) -> Any:
        """What the step has for a slot, with the types of containers that are
        there now."""
        read, _ = engine.load(step, requests, lambda name, value: value)
        allowed = [*self.classes, *_classes_in(slot.before)]
        made = plain.subtree(
            slot.infos,
            read,
            slot.depth,
            functools.partial(whole, classes=allowed),
        )
        if slot.owner is not None:
            made = torch_keys.of_parameters(made)
        return _as_before(made, slot.before)


def _kinds(before: Any) -> tuple[str, ...]:
    """What a step may have for a value; empty: anything. An object gets
    whatever is there: it says itself what it takes."""
    if before is None:
        return ()
    if isinstance(before, dict):
        return ("dict",)
    if isinstance(before, (list, tuple)):
        return ("list", "tuple", "namedtuple", "none")
    if isinstance(before, (bool, int, float, complex, np.generic)):
        return ("bool", "int", "float", "complex", "array", "none")
    if isinstance(before, np.ndarray):
        return ("array", "none")
    if isinstance(before, (str, bytes)):
        return (type(before).__name__, "none")
    return ()


def _groups(counts: Sequence[int]) -> str:
    """
    >>> _groups([2, 3]), _groups([1])
    ('2 groups of 2 and 3 parameters', '1 group of 1 parameters')
    """
    groups = "group" if len(counts) == 1 else "groups"
    return (
        f"{len(counts)} {groups} of {' and '.join(map(str, counts))} parameters"
    )


def _places(owner: Any) -> dict[str, Any]:
    """The devices of an optimizer's parameters, by the texts of their numbers
    in its state."""
    if not isinstance(owner, torch.optim.Optimizer):
        return {}
    parameters = [p for group in owner.param_groups for p in group["params"]]
    return {str(i): p.device for i, p in enumerate(parameters)}


def _classes_in(before: Any) -> set[type]:
    """Of the tensors in it."""
    if isinstance(before, torch.Tensor):
        return classes_of(before)
    if isinstance(before, dict):
        before = list(before.values())
    found: set[type] = set()
    for below in before if isinstance(before, (list, tuple)) else ():
        found |= _classes_in(below)
    return found


def _fits(tensor: torch.Tensor, info: _engine.LeafInfo) -> bool:
    return (
        tensor.device.type != "meta"
        and NAMES.get(tensor.dtype) == info.dtype_name
        and tuple(tensor.shape) == info.shape
        and not overlaps(tensor)
        and not is_freed(tensor)
    )


def _as_before(made: Any, before: Any, has_keys: bool = False) -> Any:
    """With the classes of containers of what was there: a Counter or a named
    tuple comes out of a store as a dict or a tuple. Keys that were there keep
    their order. `has_keys`: keys are of the types that they are to have."""
    if isinstance(made, dict) and isinstance(before, dict):
        if not has_keys:
            made = torch_keys.like(made, before)
        # The store has its own order of keys.
        keys = [key for key in before if key in made]
        keys += [key for key in made if key not in before]
        # The numbers or names of an optimizer's parameters: its groups said.
        known = {"state"} if "param_groups" in made else set()
        below = {
            key: _as_before(made[key], before.get(key), key in known)
            for key in keys
        }
        if isinstance(before, OrderedDict):
            ordered = OrderedDict(below)
            vars(ordered).update(vars(before))
            return ordered
        if type(before) is dict:
            return below
        changed = copy.copy(before)  # Of a defaultdict or a Counter.
        changed.clear()
        dict.update(changed, below)
        return changed
    same = isinstance(before, (list, tuple)) and isinstance(made, (list, tuple))
    if same and len(made) == len(before):
        children = [_as_before(a, b) for a, b in zip(made, before)]
        if hasattr(before, "_make"):
            return before._make(children)
        if hasattr(made, "_make"):
            return made._make(children)
        return type(made)(children)
    return made
