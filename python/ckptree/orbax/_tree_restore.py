# SPDX-License-Identifier: Apache-2.0
"""An item as a tree: like a template, or as it is.

Paths are compared by their keys, as Orbax does: a dict fits an object with the
same names, a list a tuple. What would be lost silently there, by converting,
cutting or leaving out, is an error here unless it is asked for.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Mapping, NamedTuple

import numpy as np

from ckptree.arrays import values
from ckptree.errors import Difference, MismatchError
from ckptree.restoring.inventory import Inventory
from ckptree.orbax import _plain_tree, _wanted
from ckptree.orbax._keys import Keys, item_of, keys_of
from ckptree.orbax._tree_save import map_leaves
from ckptree.orbax._wanted import AsSaved, Wanted
from ckptree.orbax.metadata import tree_of
from ckptree.orbax.type_handlers import RestoreArgs, as_restore_args

if TYPE_CHECKING:
    from ckptree import _engine
    from ckptree.orbax._items import StoredItem


class Strictness(NamedTuple):
    """What a restore lets pass."""

    # What the template lacks is left out; what the item lacks is kept.
    partial: bool = False
    # What the template lacks is left out, but in sequences.
    extra: bool = False
    # Converts elements, and cuts and fills arrays, to those of the template.
    convert: bool = False
    # An array that the template only describes is of JAX where it was.
    kinds: bool = False
    # What a message advises, by what differs.
    hints: Mapping[str, str] = {
        "dtype": "or pass restore_args with this dtype, or strict=False",
        "shape": "or pass strict=False, to cut or fill it",
    }


STRICT = Strictness()


def restore(
    item: StoredItem,
    template: Any = None,
    restore_args: Any = None,
    strictness: Strictness = STRICT,
    sharding: Any = None,
) -> Any:
    """The tree of `item`. `template`: a tree of arrays, of what describes them,
    or of metadata. `restore_args`: a tree of RestoreArgs like it.
    `sharding`: of arrays of JAX for which nothing is said, and that lay on
    devices that are not here.

    MismatchError, a ValueError, lists every path where they differ.
    """
    template = tree_of(template)
    if template is None:
        return _Plain(item, restore_args, sharding).run()
    return _Templated(item, template, restore_args, strictness, sharding).run()


def args_by_keys(restore_args: Any) -> dict[Keys, RestoreArgs]:
    """Of a tree of RestoreArgs, or None. ValueError: it has something else."""
    found: dict[Keys, RestoreArgs] = {}

    def on_leaf(name: str, leaf: Any) -> Any:
        args = as_restore_args(leaf)
        if args is None:
            raise ValueError(
                f"restore_args: {name} is no RestoreArgs: {leaf!r}"
            )
        found[keys_of(name)] = args
        return leaf

    if restore_args is not None:
        map_leaves(restore_args, on_leaf, leaves=(RestoreArgs,))
    return found


class _Leaves:
    """The leaves of an item, ties followed."""

    def __init__(self, item: StoredItem) -> None:
        self.item = item
        self.infos = item.infos()
        self.inventory = Inventory(item.step._engine)
        self.leaves: dict[str, _engine.LeafInfo] = {}
        self.empty: dict[str, _engine.LeafInfo] = {}
        for info in self.infos:
            found = self.inventory.value(info.name)
            if found is not None:
                self.leaves[info.name] = found
        empty = {info.name for info in self.inventory.empty_nodes()}
        self.empty = {i.name: i for i in self.infos if i.name in empty}
        about = item.about
        self._prefix = item_of(self.infos[0].name) if self.infos else ""
        self._of_jax = set(about.get("of_jax", ()))
        self._not_of_jax = set(about.get("not_of_jax", ()))
        self._all_of_jax = "not_of_jax" in about

    def placement(self, name: str) -> Any:
        """Where it was when it was saved: AsSaved, or None."""
        about = self.item.about
        if "placements" not in about:
            return None
        below = name.removeprefix(self._prefix)
        placed = about["placed"]
        number = placed["others"].get(below, placed["most"])
        return AsSaved(
            about["placements"][number], f"{self.item.path}: {below}"
        )

    def is_of_jax(self, name: str) -> bool:
        """Whether it was an array of JAX, which is imported."""
        if "jax" not in sys.modules:
            return False
        below = name.removeprefix(self._prefix)
        if self._all_of_jax:
            return below not in self._not_of_jax
        return below in self._of_jax

    def read(self, wanted: dict[str, Wanted], fallback: Any) -> dict[str, Any]:
        """Values by name, each as `wanted` asks for it. `fallback`: the
        sharding of those that lay on devices that are not here."""
        return _wanted.read(
            self.item.step._engine,
            {
                name: (self.leaves[name], _wanted.placed(want, fallback))
                for name, want in wanted.items()
            },
        )

    def difference(
        self, name: str, want: Wanted, hints: Mapping[str, str] = STRICT.hints
    ) -> Difference | None:
        """Why a leaf cannot be what `want` asks for."""
        problem = want.problem(self.leaves[name])
        if problem is None:
            return None
        what, expected = problem
        hint = hints.get(what, "")
        found = self.inventory.shown(self.leaves[name])
        return Difference("/".join(keys_of(name)), what, expected, found, hint)

    def as_saved(self, name: str) -> Wanted:
        info = self.leaves[name]
        if values.kind_of(info) != "array":
            return Wanted("saved")
        if info.tag.startswith("prng:"):
            return Wanted("jax", sharding=self.placement(name))
        if info.tag == values.SCALAR_TAG or not self.is_of_jax(name):
            return Wanted("saved")
        return Wanted("jax", sharding=self.placement(name))

    def asked(self, name: str, args: RestoreArgs) -> Wanted:
        """What RestoreArgs ask for."""
        return _wanted.of_args(args, self.as_saved(name))


class _Plain:
    """Without a template."""

    def __init__(
        self, item: StoredItem, restore_args: Any, sharding: Any
    ) -> None:
        self.there = _Leaves(item)
        self.sharding = sharding
        self.args = args_by_keys(restore_args)

    def run(self) -> Any:
        wanted = {name: self._wanted(name) for name in self.there.leaves}
        differences = [
            difference
            for name, want in wanted.items()
            if (difference := self.there.difference(name, want)) is not None
        ]
        if differences:
            raise MismatchError(self.there.item.path, differences)
        read = self.there.read(wanted, self.sharding)
        return _plain_tree.build(self.there.infos, read)

    def _wanted(self, name: str) -> Wanted:
        args = self.args.get(keys_of(name))
        if args is None:
            args = RestoreArgs()
        return self.there.asked(name, args)


class _Templated:
    """Into the containers of a template."""

    def __init__(
        self,
        item: StoredItem,
        template: Any,
        restore_args: Any,
        strictness: Strictness,
        sharding: Any,
    ) -> None:
        self.item = item
        self.template = template
        self.strictness = strictness
        self.sharding = sharding
        self.there = _Leaves(item)
        self.by_keys = {keys_of(name): name for name in self.there.leaves}
        self.differences: list[Difference] = []
        self.args = args_by_keys(restore_args)

    def run(self) -> Any:
        leaves: dict[str, Any] = {}
        nodes: list[tuple[str, str, bool]] = []
        map_leaves(
            self.template,
            lambda name, leaf: leaves.setdefault(name, leaf),
            leaves=_wanted.ABSTRACT,
            on_node=lambda name, kind, empty: nodes.append((name, kind, empty)),
        )
        self.kinds = {keys_of(name): kind for name, kind, _ in nodes}
        wanted = self._compare(leaves)
        self._compare_empty(nodes)
        if self.differences:
            raise MismatchError(self.item.path, self.differences)
        read = self.there.read(wanted, self.sharding)
        return map_leaves(
            self.template,
            lambda name, leaf: self._value(name, leaf, read),
            leaves=_wanted.ABSTRACT,
        )

    def _value(self, name: str, leaf: Any, read: dict[str, Any]) -> Any:
        there = self.by_keys.get(keys_of(name))
        return read.get(there, leaf) if there is not None else leaf

    def _compare(self, leaves: dict[str, Any]) -> dict[str, Wanted]:
        """What to read of what the template asks for."""
        wanted: dict[str, Wanted] = {}
        claimed: set[str] = set()
        empty = {keys_of(name) for name in self.there.empty}
        for name, leaf in leaves.items():
            keys = keys_of(name)
            shown = "/".join(keys)
            there = self.by_keys.get(keys)
            if there is None:
                if leaf is ... and keys in empty:
                    continue
                if not self.strictness.partial:
                    found = self._below(keys)
                    expected = _wanted.shown(leaf)
                    if found:
                        self._differ(shown, "kind", expected, found)
                    else:
                        self._differ(shown, "missing", expected, "")
                continue
            claimed.add(there)
            if leaf is ...:
                continue
            want = self._want(there, keys, leaf)
            if want is not None:
                wanted[there] = want
        if not self.strictness.partial:
            for there, info in self.there.leaves.items():
                if there not in claimed and not self._may_be_left_out(there):
                    self._differ(
                        "/".join(keys_of(there)),
                        "unexpected",
                        "",
                        self.there.inventory.shown(info),
                    )
        return wanted

    def _may_be_left_out(self, there: str) -> bool:
        if not self.strictness.extra:
            return False
        # It is below the last container that the template has, too: a sequence
        # of another length fits no better than a missing leaf.
        keys = keys_of(there)
        above = max(i for i in range(len(keys)) if keys[:i] in self.kinds)
        return self.kinds[keys[:above]] not in ("list", "tuple")

    def _want(self, there: str, keys: Keys, leaf: Any) -> Wanted | None:
        args = self.args.get(keys)
        saved = self.there.as_saved(there)
        if args is not None:
            want = self.there.asked(there, args)
        else:
            want = _wanted.of_leaf(leaf, saved)
            if (
                self.strictness.kinds
                and (want.kind, saved.kind) == ("numpy", "jax")
                and not isinstance(leaf, np.ndarray)
            ):
                want = want._replace(kind="jax", sharding=saved.sharding)
            if self.strictness.convert:
                want = want._replace(convert=True, fit=True)
        difference = self.there.difference(there, want, self.strictness.hints)
        if difference is not None:
            self.differences.append(difference)
            return None
        return want

    def _compare_empty(self, nodes: list[tuple[str, str, bool]]) -> None:
        if self.strictness.partial or self.strictness.extra:
            return
        here = {keys_of(name) for name, _, empty in nodes if empty}
        for name, info in self.there.empty.items():
            if keys_of(name) not in self.kinds:
                found = self.there.inventory.shown(info)
                self._differ("/".join(keys_of(name)), "unexpected", "", found)
        there = {keys_of(name) for name in self.there.empty}
        for keys in sorted(here - there):
            found = self._below(keys) or self._leaf_at(keys)
            shown = "/".join(keys) or "the item"
            if found:
                self._differ(shown, "kind", "nothing", found)
            else:
                self._differ(shown, "missing", "an empty container", "")

    def _leaf_at(self, keys: Keys) -> str:
        name = self.by_keys.get(keys)
        if name is None:
            return ""
        return self.there.inventory.shown(self.there.leaves[name])

    def _below(self, keys: Keys) -> str:
        """Says that there is a container, where there is."""
        size = len(keys)
        if any(k[:size] == keys and len(k) > size for k in self.by_keys):
            return "a container"
        return ""

    def _differ(
        self, path: str, problem: str, expected: str, found: str, hint: str = ""
    ) -> None:
        self.differences.append(
            Difference(path, problem, expected, found, hint)
        )
