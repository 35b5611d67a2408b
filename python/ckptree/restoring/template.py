# SPDX-License-Identifier: Apache-2.0
"""A step restored into the shape of a template.

Strict: every path where the two differ is in one MismatchError, unless
`partial`, `cast` or `rename` ask for less.
"""

from __future__ import annotations

import warnings
from typing import Any, Iterable, NamedTuple

from ckptree import _engine, _rules, adapters
from ckptree.arrays import casting, dtypes, values
from ckptree.restoring import plain
from ckptree.adapters.protocol import Expected, Request
from ckptree.errors import Difference, MismatchError, NotFoundError
from ckptree.restoring.inventory import Inventory, shown_node
from ckptree.restoring.places import Places
from ckptree.restoring.suggest import Renames, closest


class Options(NamedTuple):
    """How strict a restore is."""

    # True: what the step lacks keeps the template's value, what the template
    # lacks is left out. Globs: of what matches; the rest keeps its value.
    partial: bool | str | list[str]
    cast: casting.Cast  # Convert elements to the template's type.
    rename: dict[str, str]  # Names of the template to names of the step.
    sharding: Any  # Of JAX: one for all arrays, or a tree of them.
    arrays: values.Arrays  # What they are without a template.
    device: Any  # Of PyTorch, without a template.


def restore(
    step: _engine.Step, selector: str, like: Any, options: Options
) -> Any:
    """The state of `step`, like `like`; plain where that is None."""
    casting.check_option(options.cast)
    if like is None:
        if options.partial or options.cast or options.rename:
            raise ValueError("partial, cast and rename need a template: like=")
        places = {"sharding": options.sharding, "device": options.device}
        return plain.restore(step, options.arrays, places)
    if options.arrays != "numpy" or options.device is not None:
        raise ValueError(
            "arrays= and device= go without a template: what arrays become, "
            "and where, the template says"
        )
    return _Restore(step, selector, like, options).run()


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


class _Restore:
    def __init__(
        self, step: _engine.Step, selector: str, like: Any, options: Options
    ) -> None:
        self.step = step
        self.selector = selector
        self.like = like
        self.options = options
        self.renames = Renames(options.rename)
        self.nodes: list[tuple[str, str, bool]] = []
        self.leaves: dict[str, Expected] = {}
        # What the step has for them, ties followed.
        self.infos: dict[str, _engine.LeafInfo] = {}
        self.differences: list[Difference] = []
        # Who makes arrays of NumPy's where they are to be put somewhere.
        self.placing = "numpy"
        if options.sharding is not None:
            self.placing = adapters.maker_of("sharding")
        self.there = Inventory(step)
        self.chosen = self._choose()

    def run(self) -> Any:
        _engine.map_state(
            self.like,
            _rules,
            lambda name, kind, empty: self.nodes.append((name, kind, empty)),
            self._expect,
        )
        self.renames.check(self.leaves)
        for name in self.leaves:
            found = self._find(name)
            if found is not None:
                self.infos[name] = found
        self._compare()
        self._check()
        if self.leaves and not self.infos:
            raise NotFoundError(self._nothing())
        restored = self._read()
        self._check()
        return _engine.map_state(
            self.like,
            _rules,
            lambda name, kind, empty: None,
            lambda name, leaf: restored.get(name, leaf),
        )

    def _check(self) -> None:
        """MismatchError where anything differs."""
        if self.differences:
            raise MismatchError(self._step_name(), self.differences)

    def _step_name(self) -> str:
        info = self.step.info()
        return f"{info['branch']}/{info['step']}".lstrip("/")

    def _nothing(self) -> str:
        """What is said where the two have no leaf in common."""
        chosen = self.chosen
        there = [i.name for i in self.there.values()]
        if chosen is not None:
            there = [name for name in there if name in chosen]
        return (
            f"partial={self.options.partial!r}: step {self._step_name()} has "
            f"nothing of the template: that has {_first(self.leaves)}, the "
            f"step {_first(there)}; "
            f"rename={{'IN_THE_TEMPLATE': 'IN_THE_STEP'}} gives subtrees other "
            "names"
        )

    def _expect(self, name: str, leaf: Any) -> Any:
        self.leaves[name] = describe(leaf)
        return leaf

    def _choose(self) -> set[str] | None:
        """Names of the step that `partial` asks for; None: all."""
        partial = self.options.partial
        if isinstance(partial, bool):
            return None
        globs = [partial] if isinstance(partial, str) else partial
        chosen: set[str] = set()
        for glob in globs:
            found = [info.name for info in self.step.leaves(glob)]
            if not found:
                raise KeyError(
                    f"partial={glob!r}: nothing in step {self.selector} matches"
                )
            chosen.update(found)
        return chosen

    def _find(self, name: str) -> _engine.LeafInfo | None:
        """What the step has for a name of the template, ties followed."""
        there = self.renames.apply(name)
        if self.chosen is not None and there not in self.chosen:
            return None
        return self.there.value(there)

    def _compare(self) -> None:
        claimed = {self.renames.apply(name) for name in self.leaves}
        unexpected = [i for i in self.there.values() if i.name not in claimed]
        for name, expected in self.leaves.items():
            self._compare_leaf(name, expected, unexpected)
        for name, kind, empty in self.nodes:
            self._compare_node(name, kind, empty)
        if self.options.partial:
            if self.chosen is None:
                self._warn_of_empty(unexpected)
            return
        claimed.update(self.renames.apply(name) for name, _, _ in self.nodes)
        # An optimizer of PyTorch has its moments from its first step on.
        tensors = any(e.arrays == "torch" for e in self.leaves.values())
        fresh = self._empty_dicts() if tensors else set()
        for info in [*unexpected, *self.there.empty_nodes()]:
            if info.name not in claimed:
                shown = self.there.shown(info)
                hint = ""
                if fresh and any(name in fresh for name, _ in info.parents()):
                    hint = "or restore without a template: arrays='torch'"
                self._differ(info.name, "unexpected", "", shown, hint)

    def _empty_dicts(self) -> set[str]:
        """Where the template has empty dicts, by their names in the step."""
        return {
            self.renames.apply(name)
            for name, kind, empty in self.nodes
            if empty and kind == "dict"
        }

    def _warn_of_empty(self, left_out: list[_engine.LeafInfo]) -> None:
        """Says that an empty dict was to take nothing: the state of an
        optimizer of PyTorch is one before its first step."""
        counts = dict.fromkeys(self._empty_dicts(), 0)
        for info in left_out if counts else ():
            for name, _ in info.parents():
                if name in counts:
                    counts[name] += 1
        for name, count in counts.items():
            if count:
                warnings.warn(
                    f"{name}: empty in the template, so {count} values of step "
                    f"{self._step_name()} are left out; restore() without a "
                    "template gives all, with arrays='torch' as tensors",
                    stacklevel=6,
                )

    def _compare_leaf(
        self,
        name: str,
        expected: Expected,
        unexpected: list[_engine.LeafInfo],
    ) -> None:
        info = self.infos.get(name)
        if info is None:
            if not self.options.partial:
                there = self.renames.apply(name)
                if self.there.kind(there) is not None:
                    found = self.there.shown_at(there)
                    self._differ(name, "kind", str(expected), found)
                    return
                hint = closest(
                    name, str(expected), unexpected, self.there.shown
                )
                self._differ(name, "missing", str(expected), "", hint)
            elif expected.abstract:
                self._differ(
                    name,
                    "missing",
                    str(expected),
                    "",
                    "and the template has no value to keep",
                )
            return
        kind = values.kind_of(info)
        if kind != expected.kind:
            found = self.there.shown(info)
            if not _are_numbers(kind, info.shape, expected):
                self._differ(name, "kind", str(expected), found)
            elif not self.options.cast:
                hint = _cast_hint(
                    info.dtype_name if kind == "array" else kind,
                    expected.dtype or expected.kind,
                )
                self._differ(name, "kind", str(expected), found, hint)
            return
        if kind != "array":
            return
        shape = info.shape
        prng = info.tag.startswith("prng:")
        problem, hint = "", ""
        if (expected.tag or prng) and expected.tag != info.tag:
            problem = "kind"
        elif expected.tag:
            if shape[: len(expected.shape)] != expected.shape:
                problem = "shape"
        elif shape != expected.shape:
            problem = "shape"
        elif info.dtype_name != expected.dtype and not self.options.cast:
            problem = "dtype"
            hint = _cast_hint(info.dtype_name, expected.dtype)
        if problem:
            found = self.there.shown(info)
            self._differ(name, problem, str(expected), found, hint)

    def _compare_node(self, name: str, kind: str, empty: bool) -> None:
        there = self.renames.apply(name)
        found = self.there.kind(there)
        if found is None:
            if empty and not self.options.partial:
                self._differ(name, "missing", shown_node(kind), "")
        elif found != kind:
            self._differ(
                name,
                "kind",
                shown_node(kind, empty),
                self.there.shown_at(there),
            )

    def _differ(
        self, path: str, problem: str, expected: str, found: str, hint: str = ""
    ) -> None:
        self.differences.append(
            Difference(path, problem, expected, found, hint)
        )

    def _read(self) -> dict[str, Any]:
        infos = self.infos
        makers = {name: self._maker(name) for name in infos}
        plain_names = [name for name in infos if makers[name] == "numpy"]
        read = values.read(self.step, [infos[name] for name in plain_names])
        restored = {
            name: self._cast(name, self.leaves[name], value)
            for name, value in zip(plain_names, read)
        }
        for maker in sorted({*makers.values()} - {"numpy"}, reverse=True):
            names = [name for name in infos if makers[name] == maker]
            restored |= self._load(maker, names)
        return restored

    def _load(self, maker: str, names: list[str]) -> dict[str, Any]:
        """Arrays of one framework by their names."""
        loader = adapters.loader(maker)
        given = self.options.sharding if maker == self.placing else None
        places = Places(loader, given)
        requests = []
        for name in names:
            expected = self.leaves[name]
            place = places.of(name, expected.place)
            requests.append(
                Request(
                    self.infos[name],
                    place,
                    expected.dtype,
                    self._lossy,
                    expected.like,
                )
            )
        loaded, changed = loader.load(self.step, requests)
        for i, what in changed.items():
            self._differ_in_value(names[i], what)
        return dict(zip(names, loaded))

    def _maker(self, name: str) -> str:
        """Who makes the value: a framework's loader, or "numpy"."""
        expected = self.leaves[name]
        if expected.arrays == "numpy":
            return self.placing if expected.kind == "array" else "numpy"
        is_array = values.kind_of(self.infos[name]) == "array"
        return expected.arrays if is_array else "numpy"

    @property
    def _lossy(self) -> bool:
        return self.options.cast == "lossy"

    def _made(self, name: str, make: Any, *arguments: Any) -> Any:
        """What `make` makes of a value; None where it would be another one,
        which is one more difference."""
        try:
            return make(*arguments, lossy=self._lossy)
        except casting.Changed as changed:
            self._differ_in_value(name, str(changed))
            return None

    def _differ_in_value(self, name: str, what: str) -> None:
        expected = str(self.leaves[name])
        self._differ(name, "value", expected, what, "or pass cast='lossy'")

    def _cast(self, name: str, expected: Expected, value: Any) -> Any:
        if casting.is_number(expected.kind):
            return self._made(name, casting.number, value, expected.kind)
        if expected.kind != "array":
            return value
        if expected.arrays != "numpy":
            loader = adapters.loader(expected.arrays)
            return self._made(name, loader.made, value, expected)
        dtype = dtypes.by_name(expected.dtype)
        array = self._made(name, casting.array, value, dtype)
        if array is None:
            return None
        return value if array.dtype == getattr(value, "dtype", None) else array


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
