"""Step: one saved state, open for reading."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Iterator, Mapping, NamedTuple

from ckptree.leaf import Leaf
from ckptree.records import LeafDetail, StatsRow, StepInfo

if TYPE_CHECKING:
    from ckptree import _engine


class StepMetadata(NamedTuple):
    """The larger things said of a step."""

    items: dict[str, str]  # The kind of each named top-level subtree.
    custom: Any  # What save() was given as `metadata`, or None.
    lineage: dict[str, str]  # Where it came from: host, command, ...


class Step(Mapping[str, Leaf]):
    """One saved state: its leaves by name. Names are paths, joined by '/':
    "params/dense/kernel", "layers/[0]/w" of a list, "opt/.mu/w" of a field.

    Of a step that is deleted meanwhile all stays readable. Thread-safe. Valid
    until the store is closed.

    >>> import ckptree, numpy as np
    >>> store = ckptree.Store(tmp / "run")
    >>> _ = store.save(7, {"params": {"w": np.ones(4)}, "lr": 0.1}).result()
    >>> step = store[7]
    >>> list(step)
    ['lr', 'params/w']
    >>> step["lr"].value()
    0.1
    >>> step.restore()["params"]["w"]
    array([1., 1., 1., 1.])
    >>> store.close()
    """

    def __init__(self, engine: _engine.Step, selector: str) -> None:
        self._engine = engine
        self._selector = selector
        self._info: StepInfo | None = None
        self._names: dict[str, _engine.LeafInfo] | None = None

    @property
    def info(self) -> StepInfo:
        """All that its records say."""
        if self._info is None:
            self._info = StepInfo(**self._engine.info())
        return self._info

    @property
    def step(self) -> int:
        """Its number."""
        return self.info.step

    @property
    def metrics(self) -> dict[str, float]:
        return self.info.metrics

    @property
    def metadata(self) -> StepMetadata:
        """What was said of it at the save."""
        import json

        fields = self._engine.metadata()
        custom = fields.pop("custom")
        return StepMetadata(
            custom=json.loads(custom) if custom else None, **fields
        )

    def __getitem__(self, name: str) -> Leaf:
        """The leaf of that name. KeyError, with the closest name, where there
        is none."""
        if not isinstance(name, str):
            raise TypeError(
                f"leaves have names like 'params/w'; {name!r} is none"
            )
        found = self._engine.find(name)
        if found.tie_to is not None:
            return Leaf(self._engine, self._engine.find(found.tie_to), name)
        if not found.is_leaf:
            raise KeyError(
                f"step {self.step}: {found.name} is a {found.kind}, not a leaf"
            )
        return Leaf(self._engine, found)

    def __iter__(self) -> Iterator[str]:
        return iter(self._leaf_names())

    def __len__(self) -> int:
        return len(self._leaf_names())

    def __contains__(self, name: object) -> bool:
        return name in self._leaf_names()

    def leaves(self, glob: str = "") -> list[Leaf]:
        """The leaves whose names match: '*' within one part, '**' any run of
        parts, 're:...' a regular expression; "" all of them. Their records are
        read at once."""
        chosen = [i for i in self._engine.leaves(glob) if i.is_leaf]
        details = self._engine.details(chosen)
        return [
            Leaf(self._engine, info, detail=LeafDetail.of(fields))
            for info, fields in zip(chosen, details)
        ]

    def stats(self, glob: str = "") -> list[StatsRow]:
        """Statistics of the arrays whose names match, as rows of a table; no
        array is read. pandas.DataFrame() takes them."""
        return [
            StatsRow(
                leaf.name,
                leaf.dtype_name,
                leaf.shape,
                leaf.nbytes,
                leaf.since_step,
                *leaf.stats,
            )
            for leaf in self.leaves(glob)
            if leaf.stats is not None
        ]

    def restore(
        self,
        like: Any = None,
        *,
        partial: bool | str | list[str] = False,
        cast: bool = False,
        rename: dict[str, str] | None = None,
        sharding: Any = None,
    ) -> Any:
        """The state: see Store.restore()."""
        from ckptree import template

        options = template.Options(partial, cast, rename or {}, sharding)
        return template.restore(self._engine, self._selector, like, options)

    def _leaf_names(self) -> dict[str, _engine.LeafInfo]:
        if self._names is None:
            self._names = {
                info.name: info
                for info in self._engine.leaves("")
                if info.is_leaf or info.tie_to is not None
            }
        return self._names

    def __repr__(self) -> str:
        return f"<Step {self._selector}: {self.info.leaf_count} leaves>"

    def _repr_html_(self) -> str:
        from ckptree import html

        return html.step(self)
