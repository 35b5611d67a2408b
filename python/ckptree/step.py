# SPDX-License-Identifier: Apache-2.0
"""Step: one saved state, open for reading."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import islice

from ckptree import _engine, history
from ckptree.arguments import ANY, TEXT, Kind, checked
from ckptree.errors import InvalidArgumentError, NotFoundError, StateError
from ckptree.garbage import without_collection
from ckptree.hints import TYPE_CHECKING, Any, NamedTuple, TypeVar, overload
from ckptree.leaf import Leaf, small_values
from ckptree.leaves import Leaves, Source
from ckptree.metadata import from_json
from ckptree.options import RESTORE, RestoreOptions, takes
from ckptree.records import PartInfo, StatsRow, StepInfo
from ckptree.selector import on_branch
from ckptree.table import Table

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from ckptree.changes import BlameRow, DiffReport
    from ckptree.arrays.shardings import LeafSharding


State = TypeVar("State")


class StepMetadata(NamedTuple):
    """The larger things said of a step."""

    items: dict[str, str]  # The kind of each named top-level subtree.
    custom: Any  # What save() was given as `metadata`, or None.
    lineage: dict[str, str]  # Where it came from: host, command, ...
    parts: Table[PartInfo] = Table()  # By rank; none of one process alone.


_STEP = Kind(
    "a Step",
    lambda name, value: value if isinstance(value, Step) else NotImplemented,
)


# As the engine says it of what has leaves below it.
_SUBTREE = ": it is a subtree of "
_CLOSEST = "; did you mean "
_MOST_COMPARED = 100_000  # As the engine: nobody waits for a misspelt name.


@checked(
    {"engine": ANY, "selector": ANY, "owner": ANY, "after": _STEP,
     "default": ANY}
)
class Step(Mapping[str, Leaf]):
    """One saved state: its leaves by name. Names are paths, joined by '/':
    "params/dense/kernel", "layers/[0]/w" of a list, "opt/.mu/w" of a field.

    All of a step stays readable, even if the step is deleted. Thread-safe.
    Valid until the store is closed; a store that nobody else holds stays open
    for its steps and leaves.

    >>> import ckptree, numpy as np
    >>> store = ckptree.Store(tmp / "run")
    >>> state = {"params": {"w": np.ones(4)}, "lr": 0.1}
    >>> _ = store.save(7, state, metrics={"loss": 2.5}).result()
    >>> step = store[7]
    >>> list(step)
    ['lr', 'params/w']
    >>> step["lr"].value()
    0.1
    """

    def __init__(
        self, engine: _engine.Step, selector: str, owner: object = None
    ) -> None:
        self._engine = engine
        self._selector = selector
        # The store: it closes when nobody holds it any more.
        self._owner = owner
        self._info: StepInfo | None = None
        self._names: dict[str, _engine.LeafInfo] | None = None

    @property
    def info(self) -> StepInfo:
        """All that its records say.

        Returns
        -------
        StepInfo
            As it was when the step was opened.

        Examples
        --------
        >>> step.info.leaf_count, step.info.logical_bytes
        (2, 40)
        """
        if self._info is None:
            self._info = StepInfo(**self._engine.info())
        return self._info

    @property
    def step(self) -> int:
        """Its number.

        >>> step.step
        7
        """
        return self.info.step

    @property
    def metrics(self) -> dict[str, float]:
        """As save() was given them.

        >>> step.metrics
        {'loss': 2.5}
        """
        return self.info.metrics

    @property
    def metadata(self) -> StepMetadata:
        """What was said of it at the save; reads one record.

        Returns
        -------
        StepMetadata
            Its items, what save() was given as `metadata`, where it came
            from, and what each rank saved: the slow one is seen.

        Examples
        --------
        >>> step.metadata.items
        {'lr': 'tree', 'params': 'tree'}
        """
        fields = self._engine.metadata()
        custom = from_json(fields.pop("custom"))
        parts = Table(PartInfo(**part) for part in fields.pop("parts"))
        return StepMetadata(custom=custom, parts=parts, **fields)

    @property
    def shardings(self) -> dict[str, LeafSharding]:
        """How its arrays of JAX were spread over devices when they were saved,
        where a NamedSharding said so. Restoring needs none of it.

        Returns
        -------
        dict of str to LeafSharding
            By the names of the leaves.

        Examples
        --------
        >>> step.shardings
        {}
        """
        from ckptree.arrays import shardings

        return shardings.from_text(
            self.metadata.lineage.get(shardings.LINE, "")
        )

    def __getitem__(self, name: str) -> Leaf:
        """The leaf of that name.

        Parameters
        ----------
        name : str
            As iterating over the step gives them.

        Returns
        -------
        Leaf
            Of a tied leaf the value that it shares.

        Raises
        ------
        KeyError
            There is none; the closest name is in the message.
        TypeError
            `name` is no str.
        """
        if not isinstance(name, str):
            raise TypeError(
                f"leaves have names like 'params/w'; {name!r} is not a name"
            )
        try:
            TEXT("name", name)
        except ValueError as error:
            raise NotFoundError(f"step {self.step}: {error}") from None
        try:
            found = self._engine.find(name)
        except NotFoundError as error:
            raise NotFoundError(self._advised(name, str(error))) from None
        except InvalidArgumentError as error:
            raise NotFoundError(self._unquoted(name, str(error))) from None
        if found.tie_to is not None:
            tied = self._engine.find(found.tie_to)
            return Leaf._of(self._engine, tied, self._owner, name)
        if not found.is_leaf:
            raise KeyError(
                f"step {self.step}: {found.name} is of kind {found.kind}, not "
                "a leaf"
            )
        return Leaf._of(self._engine, found, self._owner)

    def get(self, name: str, default: Any = None) -> Any:
        """The leaf of that name; `default` where there is none.

        >>> step.get("nothing") is None
        True
        """
        return self[name] if name in self else default

    def _advised(self, name: str, said: str) -> str:
        """What the engine said of a name that is no leaf, as Python has it."""
        if not name:
            asked = self._name if self.info.branch else self.step
            return (
                f"step {self._name} has no leaf '': that is the whole state; "
                f"restore({asked!r}) of its store, or restore() of "
                "the step, gives it, and list(step) the names of leaves"
            )
        said = said.replace(f"has no leaf {name}", f"has no leaf {name!r}", 1)
        if _SUBTREE in said:
            below = repr(f"{name}/**")
            return (
                f"{said}; restore(partial={below}) gives all of it, "
                f"leaves({below}) its leaves"
            )
        from ckptree.restoring.suggest import in_brackets

        said, _, closest = said.partition(_CLOSEST)
        meant = closest.removesuffix("?")
        if self.info.leaf_count <= _MOST_COMPARED:
            names = _engine.leaf_names(self._engine)
            meant = in_brackets(name, names) or meant
        return f"{said}{_CLOSEST}{meant!r}?" if meant else said

    def _unquoted(self, name: str, said: str) -> str:
        """Of a text that no leaf can have: its key may need quotes."""
        text = f"step {self.step} has no leaf {name!r}"
        if self.info.leaf_count <= _MOST_COMPARED:
            for there in _engine.leaf_names(self._engine):
                if there.replace('"', "") == name:
                    return f"{text}{_CLOSEST}{there!r}?"
        return f"{text}: {said.removeprefix(repr(name) + ': ')}"

    def __iter__(self) -> Iterator[str]:
        return iter(self._leaf_names())

    def __len__(self) -> int:
        return len(self._leaf_names())

    def __contains__(self, name: object) -> bool:
        return name in self._leaf_names()

    def leaves(self, glob: str = "") -> Leaves:
        """The leaves whose names match. When the record of one of them is asked
        for (`detail`, `nbytes`, `stats`, ...) those of all are read at once.

        Parameters
        ----------
        glob : str
            '*' within one part, '**' any run of parts, 're:...' a regular
            expression; "" all of them. The name of a subtree: all below it.

        Returns
        -------
        sequence of Leaf
            In the order of the tree. Each is made anew when it is looked at:
            list() of it keeps them.

        Raises
        ------
        ValueError
            It is a regular expression that cannot be parsed.

        Examples
        --------
        >>> step.leaves("params/**")
        [<Leaf params/w: float64[4]>]
        """
        return Leaves(self._engine, glob, self._owner)

    def _described(self, chosen: list[_engine.LeafInfo]) -> list[Leaf]:
        engine = self._engine
        source = Source(
            engine,
            self._owner,
            lambda: engine.details(chosen),
            chosen.__getitem__,
        )
        return [
            Leaf(source, info.name, info.dtype, info.shape, i)
            for i, info in enumerate(chosen)
        ]

    def stats(self, glob: str = "") -> Table[StatsRow]:
        """Statistics of the arrays whose names match; no array is read. Of one
        without a finite element min is inf and max is -inf.

        Parameters
        ----------
        glob : str
            As in leaves().

        Returns
        -------
        Table of StatsRow
            pandas.DataFrame() takes it. Without arrays that have no
            statistics: those saved with statistics=False.
            StepInfo.unknown_leaves says how many of floats there are.

        Examples
        --------
        >>> [(row.name, row.mean, row.l2) for row in step.stats()]
        [('params/w', 1.0, 2.0)]
        """
        rows: Table[StatsRow] = Table()
        with without_collection():
            for leaf in self.leaves(glob):
                detail = leaf.detail
                if detail.stats is None or leaf.kind == "int":
                    continue  # Those of an int are of its bytes.
                rows.append(
                    StatsRow(
                        leaf.name,
                        leaf.dtype_name,
                        leaf.shape,
                        detail.nbytes,
                        detail.since_step,
                        *detail.stats,
                    )
                )
        return rows

    def diff(self, after: Step, glob: str = "") -> DiffReport:
        """The leaves in which this step and another differ. Compares digests.

        Parameters
        ----------
        after : Step
            Of this store or another.
        glob : str
            Of these leaves, as in leaves().

        Returns
        -------
        DiffReport
            What was added, removed, changed, and is of another type.

        Raises
        ------
        KeyError
            No leaf of either step matches `glob`.

        Examples
        --------
        >>> _ = store.save(8, state | {"lr": 0.2}).result()
        >>> step.diff(store[8]).changed
        ['lr']
        """
        return history.diff(self._engine, after._engine, glob)

    def blame(self, glob: str = "") -> Table[BlameRow]:
        """Which save gave each leaf its value.

        Parameters
        ----------
        glob : str
            Of these leaves, as in leaves().

        Returns
        -------
        Table of BlameRow

        Raises
        ------
        KeyError
            No leaf matches `glob`.

        Examples
        --------
        >>> _ = store.save(8, state | {"lr": 0.2}).result()
        >>> [(row.name, row.since_step) for row in store[8].blame()]
        [('lr', 8), ('params/w', 7)]
        """
        return history.blame(self._engine, glob)

    @overload
    def restore(
        self, like: None = None, **options: Unpack[RestoreOptions]
    ) -> Any: ...

    @overload
    def restore(
        self, like: State, **options: Unpack[RestoreOptions]
    ) -> State: ...

    @takes(RestoreOptions, RESTORE)
    def restore(
        self, like: Any = None, **options: Unpack[RestoreOptions]
    ) -> Any:
        """The state, as Store.restore() gives it.

        Parameters
        ----------
        like : tree, optional
            A template; None: dicts, lists and arrays of NumPy.
        **options
            Those of Store.restore().

        Returns
        -------
        tree
            Like `like`, where that is given.

        Raises
        ------
        MismatchError
            The step does not fit the template; a ValueError.
        CorruptionError
            The bytes are not those that were saved.

        Examples
        --------
        >>> step.restore()["params"]["w"]
        array([1., 1., 1., 1.])
        """
        from ckptree.restoring import template

        return template.restore(self._engine, self._selector, like, options)

    def torch(self, device: Any = None) -> Any:
        """The state with tensors of PyTorch for its arrays.

        As load_state_dict() of modules and optimizers takes it, of an optimizer
        that has made no step, too. It moves tensors of the host to where it
        wants them.

        Parameters
        ----------
        device : torch.device or str, optional
            Where to; None: the host.

        Returns
        -------
        tree
            Dicts, lists, numbers and tensors.

        Raises
        ------
        ImportError
            PyTorch is not installed.
        CorruptionError
            The bytes are not those that were saved.

        Examples
        --------
        >>> step.torch()["params"]["w"]
        tensor([1., 1., 1., 1.], dtype=torch.float64)
        """
        return self.restore(arrays="torch", device=device)

    def __reduce__(self) -> Any:
        """The step of that number, of a reader."""
        if self._owner is None:
            raise TypeError(f"{self!r} cannot be pickled: pickle its state")
        return _of_store, (self._owner, self._name)

    @property
    def _name(self) -> str:
        # A selector means another step after the next save; this stays.
        return on_branch(self.info.branch, self.info.step)

    def _leaf_names(self) -> dict[str, _engine.LeafInfo]:
        if self._names is None:
            self._names = {
                info.name: info
                for info in self._engine.leaves("")
                if info.is_leaf or info.tie_to is not None
            }
        return self._names

    def __repr__(self) -> str:
        try:
            count = self.info.leaf_count
        except StateError:
            return f"<Step {self._selector} of a store that was closed>"
        leaves = "leaf" if count == 1 else "leaves"
        return f"<Step {self._name}: {count} {leaves}>"

    def _repr_html_(self) -> str:
        from ckptree import html

        names = _engine.leaf_names(self._engine)
        parts = html.parts(self.metadata.parts)
        if len(names) <= html.MAX_ROWS:
            leaves = list(self.leaves())
            read = small_values(self._engine, leaves)
            return html.step(self.info, leaves, read) + parts
        subtrees = html.by_subtree(names, str)
        most = max(1, html.MAX_ROWS // len(subtrees))
        first = [name for _, below in subtrees for name in below[:most]]
        leaves = self._described([self._engine.find(n) for n in first])
        shown = iter(leaves)
        drawn = html.folded(
            self.info,
            [
                (name, len(below), list(islice(shown, min(most, len(below)))))
                for name, below in subtrees
            ],
            small_values(self._engine, leaves),
        )
        return drawn + parts

    def _ipython_key_completions_(self) -> list[str]:
        return list(self)


def _of_store(store: Any, step: str) -> Any:
    return store[step]
