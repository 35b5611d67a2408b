# SPDX-License-Identifier: Apache-2.0
"""An item as a tree: like a template, or as it is.

Paths are compared by their keys, as Orbax does: a dict fits an object with the
same names, a list a tuple. What would be lost silently there, by converting,
cutting or leaving out, is an error here unless it is asked for.

What matches, and what a leaf may become, is Orbax's and stands here. Walking,
collecting what differs and loading are those of every template:
ckptree/restoring/engine.py.
"""

from __future__ import annotations

import sys
from functools import cached_property
from typing import TYPE_CHECKING, Any, Mapping, NamedTuple

import numpy as np

from ckptree import _engine
from ckptree.adapters.protocol import Request
from ckptree.arrays import values
from ckptree.errors import Difference, MismatchError
from ckptree.garbage import without_collection
from ckptree.restoring.engine import Restoring, load
from ckptree.restoring.inventory import Inventory
from ckptree.orbax import _plain_tree, _wanted
from ckptree.orbax._keys import Keys, item_of, keys_of
from ckptree.orbax._tree_save import ROOT, leaves_of_orbax, map_leaves
from ckptree.orbax._wanted import AsSaved, Wanted
from ckptree.orbax.metadata import tree_of
from ckptree.orbax.type_handlers import RestoreArgs, as_restore_args

if TYPE_CHECKING:
    from ckptree.orbax._items import StoredItem
    from ckptree.restoring.engine import OnLeaf, OnNode


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
    # A number or str in the template stands for whatever was saved there.
    placeholders: bool = False
    # What a message advises, by what differs.
    hints: Mapping[str, str] = {
        "shape": "or pass strict=False, to cut or fill it",
    }


STRICT = Strictness()

_PLAIN = (bool, int, float, complex, str)


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
    if restore_args is None:
        made = _alike(item, template)
        if made is not NotImplemented:
            return made
    restoring = _Templated(item, restore_args, strictness, sharding)
    return restoring.run(template)


def _alike(item: StoredItem, template: Any) -> Any:
    """The tree of `item` where its leaves and those of the template are alike,
    arrays of NumPy and values of Python: so no rule is asked. NotImplemented:
    they are not."""
    step = item.step._engine
    if type(step) is not _engine.Step:
        return NotImplemented
    with without_collection():
        return step.restore_like(
            template, leaves_of_orbax(_wanted.ABSTRACT), item.name
        )


def _has_variables(template: Any) -> bool:
    """Whether a part of it is of NNX, of whose variables Orbax makes dicts."""
    if "flax.nnx" not in sys.modules:
        return False
    import jax

    from ckptree.adapters.flax import has_variables

    parts = jax.tree_util.tree_leaves(template, is_leaf=has_variables)
    return any(map(has_variables, parts))


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

    def __init__(self, item: StoredItem, inventory: Inventory) -> None:
        self.item = item
        self.infos = item.infos(inventory.listed.values())
        self.inventory = inventory
        self.leaves: dict[str, _engine.LeafInfo] = {}
        self.empty: dict[str, _engine.LeafInfo] = {}
        for info in self.infos:
            found = self.inventory.value(info.name)
            if found is not None:
                self.leaves[info.name] = found
        empty = set(self.inventory.empty_nodes())
        self.empty = {i.name: i for i in self.infos if i.name in empty}
        about = item.about
        self.prefix = item_of(self.infos[0].name) if self.infos else ""
        self._of_jax = set(about.get("of_jax", ()))
        self._not_of_jax = set(about.get("not_of_jax", ()))
        self._all_of_jax = "not_of_jax" in about

    def placement(self, name: str) -> Any:
        """Where it was when it was saved: AsSaved, or None."""
        about = self.item.about
        if "placements" not in about:
            return None
        below = name.removeprefix(self.prefix)
        placed = about["placed"]
        number = placed["others"].get(below, placed["most"])
        return AsSaved(
            about["placements"][number], f"{self.item.path}: {below}"
        )

    def is_of_jax(self, name: str) -> bool:
        """Whether it was an array of JAX, which is imported."""
        if "jax" not in sys.modules:
            return False
        below = name.removeprefix(self.prefix)
        if self._all_of_jax:
            return below not in self._not_of_jax
        return below in self._of_jax

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
        kind = values.kind_of(self.leaves[name])
        return _wanted.of_args(args, self.as_saved(name), kind)


class _Plain:
    """Without a template."""

    def __init__(
        self, item: StoredItem, restore_args: Any, sharding: Any
    ) -> None:
        self.item = item
        self.of_item = _Leaves(item, Inventory(item.step._engine))
        self.sharding = sharding
        self.args = args_by_keys(restore_args)

    def run(self) -> Any:
        wanted = {name: self._wanted(name) for name in self.of_item.leaves}
        differences = [
            difference
            for name, want in wanted.items()
            if (difference := self.of_item.difference(name, want)) is not None
        ]
        if differences:
            raise MismatchError(self.item.path, differences)
        wanted = {
            name: _wanted.placed(want, self.sharding)
            for name, want in wanted.items()
        }
        read, _ = load(
            self.item.step._engine,
            {
                name: _wanted.request(self.of_item.leaves[name], want)
                for name, want in wanted.items()
            },
            lambda name, value: _wanted.convert(name, value, wanted[name]),
        )
        return _plain_tree.build(self.of_item.infos, read)

    def _wanted(self, name: str) -> Wanted:
        args = self.args.get(keys_of(name))
        if args is None:
            args = RestoreArgs()
        return self.of_item.asked(name, args)


class _Templated(Restoring):
    """Into the containers of a template."""

    def __init__(
        self,
        item: StoredItem,
        restore_args: Any,
        strictness: Strictness,
        sharding: Any,
    ) -> None:
        super().__init__(item.step._engine)
        self.item = item
        self.strictness = strictness
        self.sharding = sharding
        self.of_item = _Leaves(item, self.there)
        self.empty = {keys_of(n): i for n, i in self.of_item.empty.items()}
        self.args = args_by_keys(restore_args)
        # Of the template: the kinds of its containers.
        self.kinds: dict[Keys, str] = {}
        self.template: Any = None
        # Of leaves of the template: which of the item they are, and as what.
        self.found: dict[str, str] = {}
        self.claimed: set[str] = set()
        self.wanted: dict[str, Wanted] = {}

    def where(self) -> str:
        return self.item.path

    def walk(self, template: Any, on_node: OnNode, on_leaf: OnLeaf) -> Any:
        self.template = template
        return map_leaves(
            template, on_leaf, leaves=_wanted.ABSTRACT, on_node=on_node
        )

    def match(self) -> None:
        self.kinds = {keys_of(name): kind for name, kind, _ in self.nodes}

    @cached_property
    def by_keys(self) -> dict[Keys, str]:
        """The leaves of the item."""
        return {keys_of(name): name for name in self.of_item.leaves}

    def ask(self, name: str, leaf: Any) -> Request | None:
        there = self._there(name)
        if there is None:
            keys = keys_of(name)
            if leaf is not ... or keys not in self.empty:
                self._compare_missing(keys, leaf)
            return None
        self.claimed.add(there)
        want = None if leaf is ... else self._want(there, name, leaf)
        if want is None:
            return None
        self.found[name] = there
        self.wanted[name] = want
        # As what, load() says: it has a place where nothing differs.
        return Request(self.of_item.leaves[there])

    @cached_property
    def has_variables(self) -> bool:
        return _has_variables(self.template)

    def _there(self, name: str) -> str | None:
        """The leaf of the item that is meant: what Orbax saved of a variable of
        NNX is a dict with `value`."""
        same = self.of_item.prefix + name.removeprefix(ROOT)
        if same in self.of_item.leaves:
            return same
        keys = keys_of(name)
        there = self.by_keys.get(keys)
        if there is None and self.has_variables:
            there = self.by_keys.get((*keys, "value"))
        return there

    def _compare_missing(self, keys: Keys, leaf: Any) -> None:
        if self.strictness.partial:
            return
        found: Any = self.empty.get(keys)
        found = self._below(keys) if found is None else self.there.shown(found)
        expected = _wanted.shown(leaf)
        problem = "kind" if found else "missing"
        self.differ("/".join(keys), problem, expected, found)

    def _want(self, there: str, name: str, leaf: Any) -> Wanted | None:
        args = self.args.get(keys_of(name)) if self.args else None
        saved = self.of_item.as_saved(there)
        if args is not None:
            want = self.of_item.asked(there, args)
        elif self.strictness.placeholders and type(leaf) in _PLAIN:
            want = saved
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
        difference = self.of_item.difference(
            there, want, self.strictness.hints
        )
        if difference is not None:
            self.differences.append(difference)
            return None
        return want

    def compare_rest(self) -> None:
        # Where the template has None or an empty container for a leaf.
        for name, _, empty in self.nodes:
            if empty and keys_of(name) in self.by_keys:
                self.claimed.add(self.by_keys[keys_of(name)])
        if not self.strictness.partial:
            for there, info in self.of_item.leaves.items():
                if there in self.claimed or self._may_be_left_out(there):
                    continue
                found = self.there.shown(info)
                self.differ("/".join(keys_of(there)), "unexpected", "", found)
        if not self.strictness.partial and not self.strictness.extra:
            self._compare_empty()

    def _may_be_left_out(self, there: str) -> bool:
        if not self.strictness.extra:
            return False
        # It is below the last container that the template has, too: a sequence
        # of another length fits no better than a missing leaf.
        keys = keys_of(there)
        above = max(i for i in range(len(keys)) if keys[:i] in self.kinds)
        return self.kinds[keys[:above]] not in ("list", "tuple")

    def _compare_empty(self) -> None:
        here = {keys_of(name) for name, _, empty in self.nodes if empty}
        leaves = {keys_of(name) for name in self.leaves}  # Compared before.
        for keys, info in self.empty.items():
            if keys not in self.kinds and keys not in leaves:
                found = self.there.shown(info)
                self.differ("/".join(keys), "unexpected", "", found)
        lacking = sorted(here - self.empty.keys())
        for keys in lacking:
            if keys in self.by_keys:
                continue
            found = self._below(keys)
            shown = "/".join(keys) or "the item"
            if found:
                self.differ(shown, "kind", "nothing", found)
            else:
                self.differ(shown, "missing", "an empty container", "")

    def _below(self, keys: Keys) -> str:
        """Says that there is a container, where there is."""
        size = len(keys)
        if any(k[:size] == keys and len(k) > size for k in self.by_keys):
            return "a container"
        return ""

    def load(self, asked: Mapping[str, Request]) -> dict[str, Any]:
        for name, want in self.wanted.items():
            self.wanted[name] = _wanted.placed(want, self.sharding)
        return super().load(
            {
                name: _wanted.request(request.info, self.wanted[name])
                for name, request in asked.items()
            }
        )

    def convert(self, name: str, value: Any) -> Any:
        return _wanted.convert(self.found[name], value, self.wanted[name])

    def changed(self, name: str, what: str) -> None:
        raise ValueError(f"{name}: {what}")
