# SPDX-License-Identifier: Apache-2.0
"""A step restored into the shape of a template: restore(like=).

Strict: every path where the two differ is in one MismatchError, unless
`partial`, `cast` or `rename` ask for less. Names are compared as they are: a
list fits no tuple.
"""

from __future__ import annotations

import bisect
import warnings
from typing import TYPE_CHECKING, Any, Iterable, Mapping

import numpy as np

from ckptree import _engine, _rules, adapters
from ckptree.arrays import casting, dtypes, values
from ckptree.restoring import plain
from ckptree.adapters.protocol import (
    DICT,
    DICT_KEY,
    PARTS,
    Expected,
    Request,
)
from ckptree.errors import (
    MAX_SHOWN,
    InvalidArgumentError,
    NotFoundError,
    level_of_caller,
)
from ckptree.garbage import without_collection
from ckptree.progress import showing
from ckptree.records import RECOVERED
from ckptree.restoring.engine import Restoring
from ckptree.restoring.inventory import shown_node
from ckptree.restoring.places import Places
from ckptree.restoring.shared import Rules, Ties
from ckptree.restoring.suggest import Closest, Renames, closest, moved

if TYPE_CHECKING:
    from ckptree.options import RestoreOptions
    from ckptree.progress import Meter
    from ckptree.restoring.engine import OnLeaf, OnNode


def restore(
    step: _engine.Step, selector: str, like: Any, options: RestoreOptions
) -> Any:
    """The state of `step`, like `like`; plain where that is None."""
    casting.check_option(options["cast"])
    with showing(options["progress"], "restore") as meter:
        warn_of_loss(step)
        return _restored(step, selector, like, options, meter)


def _restored(
    step: _engine.Step,
    selector: str,
    like: Any,
    options: RestoreOptions,
    meter: Meter | None,
) -> Any:
    if like is None:
        partial = options["partial"]
        if partial is True or options["cast"] or options["rename"]:
            raise ValueError(
                "partial=True, cast and rename need a template: like="
            )
        places = {"sharding": options["sharding"], "device": options["device"]}
        only = None if partial is False else chosen_names(step, partial)
        return plain.restore(step, options["arrays"], places, only, meter)
    if options["arrays"] != "numpy" or options["device"] is not None:
        raise ValueError(
            "arrays= and device= go without a template: what arrays become, "
            "and where, the template says"
        )
    if meter is None and type(step) is _engine.Step and _is_strict(options):
        # Of what is not as plain as that, and of what differs: all below.
        with without_collection():
            made = step.restore_like(like, _rules)
        if made is not NotImplemented:
            return made
    restoring = Like(step, selector, options)
    restoring.meter = meter
    return restoring.run(like)


def _is_strict(options: RestoreOptions) -> bool:
    """Whether the whole step is asked for, under its own names."""
    asked = options["partial"], options["rename"], options["sharding"]
    return not any(asked[:2]) and asked[2] is None


def warn_of_loss(step: _engine.Step) -> None:
    """Says that a recovery of a damaged store found only a part of the step:
    without a template nothing else would."""
    info = step.info()
    found = RECOVERED.match(info["note"])
    if found is not None:
        warnings.warn(
            f"step {info['step']} lost {found[1]} of its {found[2]} leaves "
            "when its store was recovered; what is restored is the rest",
            stacklevel=level_of_caller(),
        )


def _named(glob: str, names: list[str]) -> list[str]:
    """Of sorted names those that a glob without wildcards matches: a leaf, or
    all of a subtree. Of others nothing is said."""
    if "*" in glob or "?" in glob or glob.startswith("re:"):
        return []
    at = bisect.bisect_left(names, glob)
    begin = bisect.bisect_left(names, f"{glob}/")
    end = bisect.bisect_left(names, f"{glob}0")  # What comes behind "/".
    leaf = [name for name in names[at : at + 1] if name == glob]
    return leaf + names[begin:end]


def chosen_names(step: _engine.Step, partial: str | list[str]) -> set[str]:
    """What the globs match in the step. KeyError: one matches nothing."""
    chosen: set[str] = set()
    globs = [partial] if isinstance(partial, str) else partial
    # Each of the others walks over all leaves.
    names = [] if len(globs) < 4 else [info.name for info in step.leaves("")]
    names.sort()
    for glob in globs:
        found = _named(glob, names)
        if not found:
            found = [info.name for info in step.leaves(glob)]
        if not found:
            number = step.info()["step"]
            raise NotFoundError(
                f"partial={glob!r}: nothing in step {number} matches"
            )
        chosen.update(found)
    return chosen


# Of what `rename` is given with.
_BEHIND_RENAME = "the globs of partial are names of the step, behind rename"


def describe(value: Any) -> Expected:
    """What `value` asks for. TypeError where it is no leaf."""
    plain = _PLAIN.get(type(value))
    if plain is not None:
        return plain
    adapter = adapters.owner(value)
    expected = None if adapter is None else adapter.describe(value)
    if expected is None:
        raise TypeError(_rules.refusal(value))
    return expected


_PLAIN = {
    kind: Expected(kind.__name__)
    for kind in (bool, int, float, complex, str, bytes)
}


def _are_numbers(
    kind: str, shape: tuple[int, ...], expected: Expected
) -> bool:
    """True where both are one number: `cast` makes one of the other."""
    there = casting.is_number(kind) or (kind == "array" and shape == ())
    here = casting.is_number(expected.kind) or (
        expected.kind == "array" and expected.shape == () and not expected.tag
    )
    return there and here


class Like(Restoring):
    """One restore(like=)."""

    only_its_own = "partial=True restores only what the template has"

    def __init__(
        self, step: _engine.Step, selector: str, options: RestoreOptions
    ) -> None:
        super().__init__(step)
        self.selector = selector
        self.options = options
        self.renames = Renames(options["rename"] or {})
        self.chosen = self._choose()
        # What the template has a place for, by its names in the step; and
        # leaves of the step that have none.
        self.claimed: set[str] = set()
        self.unexpected: list[str] = []
        # Nodes of the template that are of another kind in the step.
        self.of_other_kinds: set[str] = set()
        # What the template holds twice; None: the step ties nothing.
        self.rules = Rules()
        tied = self.there.tied()
        self.ties = Ties(tied) if tied else None
        # Whose arrays those of NumPy become, where a sharding is given.
        self.placing = "numpy"
        self.places: Places | None = None
        if options["sharding"] is not None:
            self.placing = adapters.maker_of("sharding")
            loader = adapters.loader(self.placing)
            self.places = Places(loader, options["sharding"])

    def where(self) -> str:
        info = self.step.info()
        return f"{info['branch']}/{info['step']}".lstrip("/")

    def walk(self, template: Any, on_node: OnNode, on_leaf: OnLeaf) -> Any:
        return _engine.map_state(template, self.rules, on_node, on_leaf)

    def _on_leaf(self, name: str, leaf: Any) -> Any:
        expected = _PLAIN.get(type(leaf))
        self.leaves[name] = describe(leaf) if expected is None else expected
        if self.ties is not None:
            self.ties.note(name, self.renames.apply(name), leaf)
        return leaf

    def _choose(self) -> set[str] | None:
        """Names of the step that `partial` asks for; None: all."""
        partial = self.options["partial"]
        if isinstance(partial, bool):
            return None
        try:
            return chosen_names(self.step, partial)
        except NotFoundError as error:
            if not self.renames:
                raise
            raise NotFoundError(f"{error}; {_BEHIND_RENAME}") from None

    def compare(self, template: Any) -> dict[str, Request]:
        if any("" in pair for pair in self.renames.pairs()):
            info = self.there.listed.get(plain.ROOT_ITEM)
            there = info is not None and plain.is_root(info.tag)
            self.renames = self.renames.rooted(
                plain.ROOT_ITEM if _lies_in_item(template) else "",
                plain.ROOT_ITEM if there else "",
            )
        return super().compare(template)

    # ---- What matches ----

    def match(self) -> None:
        self.renames.check(self._named())
        self._check_renames()
        if self.places is not None:
            self.places.check(self.leaves)
        self.claimed = (
            {self.renames.apply(name) for name in self.leaves}
            if self.renames
            else set(self.leaves)
        )
        self.unexpected = [
            name for name in self.there.values() if name not in self.claimed
        ]

    def _check_renames(self) -> None:
        """ValueError where a rename leads to what the step does not have."""
        for new, old in self.renames.pairs():
            if not old or self.there.kind(old) is not None:
                continue
            known = [*self.there.implied, *self.there.listed]
            meant = closest(old, known)
            hint = f"; the closest name there is {meant!r}" if meant else ""
            raise InvalidArgumentError(
                f"rename={{{new!r}: {old!r}}}: step {self.where()} has no "
                f"{old!r}{hint}"
            )

    def _named(self) -> Iterable[str]:
        """What the template has, as `rename` may call it."""
        return self.leaves

    def ask_all(self) -> dict[str, Request]:
        if self.renames or self.options["partial"]:
            return super().ask_all()
        # As ask() has it of what is nowhere in the step, and of what is asked
        # for and found as a leaf before, for very many.
        asked = {}
        listed, implied = self.there.listed, self.there.implied
        found = {} if self.places is not None else self.there.leaves
        known: dict[Any, tuple[Any, ...]] = {}  # A request without its leaf.
        note, new = self.differences.append, tuple.__new__
        for name, leaf in self.leaves.items():
            info = found.get(name)
            if info is None and name not in listed and name not in implied:
                note(name)
                continue
            if info is not None and leaf.like is None:
                # Those that are alike are one object, which adapters keep;
                # whatever else a side looks at is in `like`.
                key = id(leaf), info.kind, info.dtype, info.shape, info.tag
                rest = known.get(key)
                if rest is not None:
                    asked[name] = new(Request, (info, *rest))
                    continue
            else:
                key = None
            request = self.ask(name, leaf)
            if request is not None:
                asked[name] = request
                if key is not None:
                    known[key] = request[1:]
        return asked

    def ask(self, name: str, leaf: Expected) -> Request | None:
        info = self._find(name)
        if info is None:
            self._compare_missing(name, leaf)
            return None
        problem, hint = self._problem(leaf, info)
        if problem:
            self.differ(name, problem, leaf, info, hint)
            return None
        arrays = self._maker(leaf, info)
        place = leaf.place
        if self.places is not None and arrays == self.placing:
            place = self.places.of(name, place)
        lossy = self.options["cast"] == "lossy"
        return Request(info, arrays, place, leaf.dtype, lossy, leaf.like)

    def _find(self, name: str) -> _engine.LeafInfo | None:
        """What the step has for a name of the template, ties followed."""
        there = self.renames.apply(name)
        if self.chosen is not None and there not in self.chosen:
            return None
        return self.there.value(there)

    def _maker(self, leaf: Expected, info: _engine.LeafInfo) -> str:
        """Whose loader makes the value."""
        if leaf.arrays == "numpy":
            return self.placing if leaf.kind == "array" else "numpy"
        return leaf.arrays if values.kind_of(info) == "array" else "numpy"

    def _compare_missing(self, name: str, expected: Expected) -> None:
        if not self.options["partial"]:
            there = self.renames.apply(name)
            if self.there.kind(there) is not None:
                found = self.there.shown_at(there)
                self.differ(name, "kind", expected, found)
                return
            self.differences.append(name)
        elif expected.abstract:
            hint = "and the template has no value to keep"
            self.differ(name, "missing", expected, "", hint)

    def _problem(
        self, expected: Expected, info: _engine.LeafInfo
    ) -> tuple[str, str]:
        """What differs, and what a message advises; empty where nothing
        does."""
        cast = self.options["cast"]
        kind = values.kind_of(info)
        if kind != expected.kind:
            if not _are_numbers(kind, info.shape, expected):
                return "kind", ""
            if cast:
                return "", ""
            return "kind", _cast_hint(
                info.dtype_name if kind == "array" else kind,
                expected.dtype or expected.kind,
            )
        if kind != "array":
            return "", ""
        shape = info.shape
        prng = info.tag.startswith("prng:")
        if (expected.tag or prng) and expected.tag != info.tag:
            return "kind", ""
        if expected.tag:
            # The last axis has the numbers of one key.
            fits = shape[:-1] == expected.shape
            return "" if fits else "shape", ""
        if not expected.fits(shape):
            return "shape", ""
        if info.dtype_name != expected.dtype and not cast:
            return "dtype", _cast_hint(info.dtype_name, expected.dtype)
        return "", ""

    # ---- What is left over ----

    def compare_rest(self) -> None:
        for name, kind, empty in self.nodes:
            self._compare_node(name, kind, empty)
        if self.options["partial"]:
            if self.chosen is None:
                self._warn_of_empty(self.unexpected)
            return
        claimed = self.claimed
        claimed |= {self.renames.apply(name) for name, _, _ in self.nodes}
        # An optimizer of PyTorch has its moments from its first step on.
        fresh = self._empty_dicts()
        if fresh and not self._has_tensors():
            fresh = set()
        listed, is_tie = self.there.listed, self.there.is_tie
        for name in [*self.unexpected, *self.there.empty_nodes()]:
            if name in claimed:
                continue
            info = listed[name]
            if fresh or is_tie(name):
                # A tie leads to a leaf that only an open step knows.
                shown, hint = self.there.shown(info), _fresh_hint(info, fresh)
                self.differ(name, "unexpected", "", shown, hint)
            else:
                self.differences.append(info)

    def _compare_node(self, name: str, kind: str, empty: bool) -> None:
        there = self.renames.apply(name)
        found = self.there.kind(there)
        if found is None:
            if empty and not self.options["partial"]:
                self.differ(name, "missing", shown_node(kind), "")
        elif found != kind or self._other_parts(name):
            tag = self.tags.get(name)
            self.of_other_kinds.add(name)
            self.differ(
                name,
                "kind",
                tag.removeprefix(PARTS) if tag else shown_node(kind, empty),
                self.there.shown_at(there),
            )

    def _other_parts(self, name: str) -> bool:
        """Whether only one of the two is a leaf in parts, or another one."""
        there = self.there.tag_of_parts(self.renames.apply(name))
        return self.tags.get(name, "") != there

    def _has_tensors(self) -> bool:
        return any(e.arrays == "torch" for e in self.leaves.values())

    def _empty_dicts(self) -> set[str]:
        """Where the template has empty dicts, by their names in the step."""
        return {
            self.renames.apply(name)
            for name, kind, empty in self.nodes
            if empty and kind == "dict"
        }

    def _warn_of_empty(self, left_out: list[str]) -> None:
        """Says that an empty dict was to take nothing: the state of an
        optimizer of PyTorch is one before its first step."""
        counts = dict.fromkeys(self._empty_dicts(), 0)
        for there in left_out if counts else ():
            for name, _ in self.there.listed[there].parents():
                if name in counts:
                    counts[name] += 1
        for name, count in counts.items():
            if count:
                warnings.warn(
                    f"{name}: empty in the template, so {count} values of step "
                    f"{self.where()} are left out; restore() without a "
                    "template gives all, with arrays='torch' as tensors",
                    stacklevel=level_of_caller(),
                )

    def hint(self) -> str:
        many = len(self.differences) > MAX_SHOWN
        missing = [d for d in self.differences if isinstance(d, str)]
        # No name helps below what is another container: that differs, too.
        named = [name for name in missing if not self._is_below_others(name)]
        if many:
            found = moved(named, self.unexpected)
            if found:
                return found
        if missing:
            # Nobody reads more hints, and each compares many names.
            there = [self.there.listed[name] for name in self.unexpected]
            closest = Closest(there, self.there.shown)
            for i, name in enumerate(self.differences[:MAX_SHOWN]):
                if isinstance(name, str):
                    expected = str(self.leaves[name])
                    hint = ""
                    if not self._is_below_others(name):
                        hint = closest.hint(name, expected)
                    self.differences[i] = (name, "missing", expected, "", hint)
        return ""

    def _is_below_others(self, name: str) -> bool:
        parents = name.split("/")[:-1] if self.of_other_kinds else []
        return any(
            "/".join(parents[: i + 1]) in self.of_other_kinds
            for i in range(len(parents))
        )

    def remedy(self) -> str:
        """Where the step has all that the template asks for, and more."""
        for noted in self.differences:
            if isinstance(noted, str):
                return ""
            if isinstance(noted, tuple):
                _, problem, _, _, hint = noted
                if problem != "unexpected" or hint:
                    return ""
        return f"all that it asks for is there, and more: {self.only_its_own}"

    # ---- What becomes of values ----

    def load(self, asked: Mapping[str, Request]) -> dict[str, Any]:
        self.check_any(asked)
        if self.ties is None:
            made = super().load(asked)
        else:
            asked, later = self.ties.split(asked)
            made = super().load(asked)
            for name, first in later.items():
                if first in made:  # Else it would be another value.
                    made[name] = made[first]
        self.rules.settle()
        return made

    def check_any(self, asked: Mapping[str, Request]) -> None:
        """NotFoundError where the two have no leaf in common."""
        if self.leaves and not asked:
            raise NotFoundError(self._nothing())

    def _nothing(self) -> str:
        """What is said where the two have no leaf in common."""
        chosen = self.chosen
        there = list(self.there.values())
        if chosen is not None:
            there = [name for name in there if name in chosen]
        here, remedy = _first(self.leaves), (
            "rename={'IN_THE_TEMPLATE': 'IN_THE_STEP'} gives subtrees other "
            "names"
        )
        if self.renames:
            renamed = _first(map(self.renames.apply, self.leaves))
            here = f"{here}, which rename makes {renamed}"
        if self.renames and chosen is not None:
            remedy = _BEHIND_RENAME
        return (
            f"partial={self.options['partial']!r}: step {self.where()} has "
            f"nothing of the template: that has {here}, "
            f"{'the step' if chosen is None else 'and it chose'} "
            f"{_first(there)}; {remedy}"
        )

    def convert(self, name: str, value: Any) -> Any:
        expected: Expected = self.leaves[name]
        lossy = self.options["cast"] == "lossy"
        if casting.is_number(expected.kind):
            return casting.number(value, expected.kind, lossy=lossy)
        if expected.kind != "array":
            return value
        if expected.arrays != "numpy":
            loader = adapters.loader(expected.arrays)
            return loader.made(value, expected, lossy=lossy)
        found = getattr(value, "dtype", None)
        if found is None or dtypes.NAMES[found] != expected.dtype:
            dtype = dtypes.by_name(expected.dtype)
            value = casting.array(value, dtype, lossy=lossy)
        if expected.shape == ():
            # A scalar where the template has one, else an array.
            array = np.asarray(value)
            return array if expected.like is None else array[()]
        return value

    def changed(self, name: str, what: str) -> None:
        expected = str(self.leaves[name])
        self.differ(name, "value", expected, what, "or pass cast='lossy'")


def _lies_in_item(template: Any) -> bool:
    """Whether its root names no items, as that of a list: it is one then."""
    if type(template) is dict:
        return not all(isinstance(key, str) for key in template)
    found = _rules.container(template)
    if not found:
        return True
    names_items = found.type == DICT and not found.tag
    return not names_items or not all(
        kind == DICT_KEY and isinstance(key, str)
        for kind, key, _ in found.children
    )


def _fresh_hint(info: _engine.LeafInfo, fresh: set[str]) -> str:
    """Of what lies below a dict that is empty in the template."""
    if any(name in fresh for name, _ in info.parents()):
        return "or restore without a template: arrays='torch'"
    return ""


def _cast_hint(found: str, wanted: str) -> str:
    """Of what is no number of the other type `cast` makes none."""
    return "or pass cast=True" if casting.may_fit(found, wanted) else ""


def _first(names: Iterable[str]) -> str:
    """The first three names of many."""
    known = list(names)
    text = ", ".join(map(repr, known[:3]))
    if len(known) > 3:
        text += f" and {len(known) - 3} more"
    return text or "nothing"
