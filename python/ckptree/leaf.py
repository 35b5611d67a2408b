# SPDX-License-Identifier: Apache-2.0
"""Leaf: one value of a step, read when it is asked for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ckptree.errors import Error
from ckptree.hints import TYPE_CHECKING, Any, Protocol
from ckptree.records import LeafDetail, LeafStats

if TYPE_CHECKING:
    import numpy as np

    from ckptree import _engine
    from ckptree.view import LeafView

    Array = np.ndarray[Any, Any]


# By the engine's numbers, of which none is that of what is no array. Asked of
# each of very many leaves.
_DTYPES: dict[int, np.dtype[Any] | None] = {0: None}


class Source(Protocol):
    """What leaves are read from: one of them, or many whose records are read
    at once."""

    step: _engine.Step
    owner: object  # The store, as in Step.

    def of(self, number: int) -> dict[str, Any]:
        """The record of one of them."""

    def info(self, number: int) -> _engine.LeafInfo:
        """What the tree says of it."""


class _One:
    """A leaf whose record is read alone."""

    __slots__ = ("_info", "owner", "step")

    def __init__(
        self, step: _engine.Step, info: _engine.LeafInfo, owner: object
    ) -> None:
        self.step = step
        self.owner = owner
        self._info = info

    def of(self, number: int) -> dict[str, Any]:
        (fields,) = self.step.details([self._info])
        return fields

    def info(self, number: int) -> _engine.LeafInfo:
        return self._info


class Leaf:
    """One value of a step: an array, a number, a str, bytes. Nothing is read
    before its value is asked for, and of a slice only the chunks that it
    touches. What is read is checked against the digest that the save wrote.

    Thread-safe. Valid until the store is closed, which it is not while a leaf
    is all that holds it.

    Examples
    --------
    >>> import ckptree, numpy as np
    >>> store = ckptree.Store(tmp / "run")
    >>> _ = store.save(1, {"w": np.arange(6.0).reshape(2, 3)}).result()
    >>> leaf = store["latest"]["w"]
    >>> leaf.shape, leaf.dtype, leaf.nbytes
    ((2, 3), dtype('float64'), 48)
    >>> leaf[1, ::2]
    array([3., 5.])
    """

    # Made by the hundred thousand, and mostly asked for what is set here.
    __slots__ = (
        "__weakref__",
        "_detail",
        "_dtype",
        "_made",
        "_name",
        "_number",
        "_shape",
        "_source",
    )

    def __init__(
        self,
        source: Source,
        name: str,
        dtype: int,
        shape: tuple[int, ...],
        number: int,
    ) -> None:
        self._source = source
        self._name = name
        self._dtype = dtype
        self._shape = shape
        self._number = number  # Which one of `source`.

    @classmethod
    def _of(
        cls,
        step: _engine.Step,
        info: _engine.LeafInfo,
        owner: object,
        name: str | None = None,
    ) -> Leaf:
        """`name`: where it is not that of `info`."""
        return cls(
            _One(step, info, owner),
            info.name if name is None else name,
            info.dtype,
            info.shape,
            0,
        )

    def __reduce__(self) -> Any:
        """The leaf of that name in the step of that number, of a reader."""
        from ckptree.selector import on_branch

        source = self._source
        if source.owner is None:
            raise TypeError(f"{self!r} cannot be pickled: pickle its value")
        info = source.step.info()
        step = on_branch(info["branch"], info["step"])
        return _of_store, (source.owner, step, self._name)

    @property
    def _info(self) -> _engine.LeafInfo:
        if not hasattr(self, "_made"):
            self._made = self._source.info(self._number)
        return self._made

    @property
    def _step(self) -> _engine.Step:
        return self._source.step

    @property
    def name(self) -> str:
        """Its path in the tree, as the command writes it.

        >>> leaf.name
        'w'
        """
        return self._name

    @property
    def kind(self) -> str:
        """array, bool, int, float, complex, str, bytes, json, proto, file.

        >>> leaf.kind
        'array'
        """
        info = self._info
        # Asked of each of very many, of which nearly none is such an int.
        if len(self._shape) != 1 or not info.tag:
            return info.kind
        from ckptree.arrays import values

        return values.kind_of(info)

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the array; () of anything else.

        >>> leaf.shape
        (2, 3)
        """
        return self._shape

    @property
    def ndim(self) -> int:
        """How many dimensions there are.

        >>> leaf.ndim
        2
        """
        return len(self._shape)

    @property
    def size(self) -> int:
        """How many elements there are.

        >>> leaf.size
        6
        """
        count = 1
        for dim in self._shape:
            count *= dim
        return count

    @property
    def dtype(self) -> np.dtype[Any] | None:
        """NumPy's element type.

        Returns
        -------
        numpy.dtype or None
            None where it is no array.

        Raises
        ------
        ImportError
            It is one of ml_dtypes, and that is not installed.

        Examples
        --------
        >>> leaf.dtype
        dtype('float64')
        """
        try:
            return _DTYPES[self._dtype]
        except KeyError:
            pass
        from ckptree.arrays import dtypes

        made = _DTYPES[self._dtype] = dtypes.to_numpy(self._dtype)
        return made

    @property
    def dtype_name(self) -> str:
        """Of the element type; "none" where it is no array. Needs no NumPy.

        >>> leaf.dtype_name
        'float64'
        """
        return self._info.dtype_name

    @property
    def tag(self) -> str:
        """A mark, e.g. "prng:threefry2x32" of a key of JAX.

        >>> _ = store.save(2, {"one": np.float32(1)}).result()
        >>> store[2]["one"].tag
        'scalar'
        """
        return self._info.tag

    @property
    def detail(self) -> LeafDetail:
        """All that its record says, which is read once.

        Returns
        -------
        LeafDetail

        Raises
        ------
        CorruptionError
            The record is not what was saved.

        Examples
        --------
        >>> leaf.detail.nbytes, leaf.detail.since_step
        (48, 1)
        """
        if not hasattr(self, "_detail"):
            self._detail = LeafDetail.of(self._source.of(self._number))
        return self._detail

    @property
    def nbytes(self) -> int:
        """Of the value.

        >>> leaf.nbytes
        48
        """
        return self.detail.nbytes

    @property
    def stats(self) -> LeafStats | None:
        """As the save recorded them; the array is not read.

        Returns
        -------
        LeafStats or None
            None of what is no array, and where the store was opened with
            statistics=False.

        Examples
        --------
        >>> leaf.stats.mean, leaf.stats.max, leaf.stats.nan
        (2.5, 5.0, 0)
        """
        return self.detail.stats

    @property
    def since_step(self) -> int:
        """The step that last changed the value.

        >>> leaf.since_step
        1
        """
        return self.detail.since_step

    @property
    def digest(self) -> str:
        """Of the value; equal for equal values that are cut alike.

        >>> len(leaf.digest)
        32
        """
        return self.detail.digest

    def value(self) -> Any:
        """What was saved.

        Returns
        -------
        numpy.ndarray, bool, int, float, complex, str or bytes
            By the kind of the leaf; of JSON what it says.

        Raises
        ------
        CorruptionError
            The bytes are not those that were saved.

        Examples
        --------
        >>> _ = store.save(2, {"lr": 0.5}).result()
        >>> store[2]["lr"].value()
        0.5
        """
        from ckptree.arrays import values

        (value,) = values.read(self._step, [self._info])
        return value

    def numpy(self) -> Array:
        """The whole array.

        Returns
        -------
        numpy.ndarray
            Of the leaf's shape and dtype, row-major, in new memory.

        Raises
        ------
        TypeError
            The leaf is not an array.
        CorruptionError
            The bytes are not those that were saved.

        Examples
        --------
        >>> leaf.numpy()
        array([[0., 1., 2.],
               [3., 4., 5.]])
        """
        array = self._empty(self.shape)
        self._step.read([(self._info, array, None, None)])
        return array

    def view(self) -> LeafView:
        """The array where it stands in the store's file, without a copy, once
        every byte of it was checked.

        Returns
        -------
        LeafView
            Its pieces, in memory that cannot be written to. It outlives the
            step and the store.

        Raises
        ------
        TypeError
            The leaf is not an array.
        NotImplementedError
            Its elements are packed.
        CorruptionError
            The bytes are not those that were saved.
        StateError
            The store is closed, or the boxes that were saved do not make up
            the whole array.

        Examples
        --------
        >>> leaf.view().array
        array([[0., 1., 2.],
               [3., 4., 5.]])
        """
        from ckptree import view

        self._check_unpacked()
        return view.view(self._step, self._info, self.name)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        """For NumPy: numpy(), of that dtype.

        Raises
        ------
        ValueError
            `copy` is False: reading it is one. view() makes none.
        """
        if copy is False:
            raise ValueError(
                f"{self.name}: reading it makes a copy; view() makes none"
            )
        array = self.numpy()
        return array if dtype is None else array.astype(dtype)

    def __getitem__(self, index: Any) -> Any:
        """Elements by basic slicing; reads the chunks that the box around them
        touches.

        Parameters
        ----------
        index : int, slice, `...`, None, or a tuple of these
            As NumPy has it.

        Returns
        -------
        numpy.ndarray or a scalar of NumPy

        Raises
        ------
        IndexError
            It is out of bounds, or has too many parts.
        TypeError
            The leaf is not an array, or the index is none of these.
        """
        from ckptree.arrays.slicing import BoxIndex

        array = self._check_array()
        box = BoxIndex(index, array, self.name)
        part = self._empty(box.shape)
        self._step.read([(self._info, part, box.start, box.shape)])
        return part[box.local]

    def __len__(self) -> int:
        """Of the first dimension, as NumPy has it.

        >>> len(leaf)
        2

        Raises
        ------
        TypeError
            The leaf is not an array, or has no dimensions.
        """
        shape = self._check_array()
        if not shape:
            raise TypeError(f"{self.name} has no dimensions, and so no len()")
        return shape[0]

    def __iter__(self) -> Iterator[Any]:
        """Along the first dimension, as NumPy has it: each is read when it is
        come to. TypeError as of len()."""
        return map(self.__getitem__, range(len(self)))

    def __bool__(self) -> bool:
        return True  # Without elements, too.

    def jax(self, sharding: Any = None) -> Any:
        """The array as a jax.Array.

        Parameters
        ----------
        sharding : jax.sharding.Sharding, optional
            Each device then reads its own part; None: the default device.

        Returns
        -------
        jax.Array
            Of the leaf's shape and dtype.

        Raises
        ------
        TypeError
            The leaf is not an array.
        ValueError
            The sharding does not fit the shape, or JAX has no such dtype
            without jax_enable_x64.
        ImportError
            JAX is not installed.

        Examples
        --------
        >>> _ = store.save(2, {"w": np.ones(3, "f4")}).result()
        >>> store[2]["w"].jax()
        Array([1., 1., 1.], dtype=float32)
        """
        return self._as("jax", sharding)

    def torch(self, device: Any = None) -> Any:
        """The array as a tensor of PyTorch.

        Parameters
        ----------
        device : torch.device or str, optional
            Where to; None: the host.

        Returns
        -------
        torch.Tensor
            Of the leaf's shape and dtype.

        Raises
        ------
        TypeError
            The leaf is not an array, or PyTorch has no such dtype.
        ImportError
            PyTorch is not installed.

        Examples
        --------
        >>> leaf.torch()
        tensor([[0., 1., 2.],
                [3., 4., 5.]], dtype=torch.float64)
        """
        return self._as("torch", device)

    def _as(self, arrays: str, place: Any) -> Any:
        from ckptree import adapters
        from ckptree.adapters.protocol import Request

        loader = adapters.loader(arrays)
        self._check_array()
        request = Request(self._info, arrays, place)
        (made,), _ = loader.load(self._step, [request])
        return made

    def _check_array(self) -> tuple[int, ...]:
        if self.kind != "array":
            raise TypeError(
                f"{self.name} is of kind {self.kind}, not an array: use value()"
            )
        return self._info.shape

    def _check_unpacked(self) -> None:
        self._check_array()
        if self._info.packed:
            raise NotImplementedError(
                f"{self.name}: packed elements of {self._info.dtype_name} "
                "cannot be read here yet"
            )

    def _empty(self, shape: tuple[int, ...]) -> Array:
        self._check_unpacked()
        from ckptree.arrays import dtypes, memory

        return memory.empty(shape, dtypes.to_numpy(self._info.dtype))

    def __repr__(self) -> str:
        if self.kind != "array":
            return f"<Leaf {self.name}: {self.kind}>"
        dims = ", ".join(map(str, self.shape))
        return f"<Leaf {self.name}: {self.dtype_name}[{dims}]>"

    def _repr_html_(self) -> str:
        from ckptree import html

        return html.leaf(self, small_values(self._step, [self]))


def small_values(
    step: _engine.Step, leaves: Iterable[Leaf]
) -> dict[str, Any]:
    """Of numbers, str and what else is small, by their names. None where they
    cannot be read: what is damaged is shown, too."""
    from ckptree import html
    from ckptree.arrays import values

    small = [
        leaf
        for leaf in leaves
        if leaf.shape == ()
        and leaf.nbytes <= html.MAX_VALUE_BYTES
        and not leaf._info.packed
    ]
    try:
        read = values.read(step, [leaf._info for leaf in small])
    except (Error, ImportError, ValueError):
        return {}
    return {leaf.name: value for leaf, value in zip(small, read)}


def _of_store(store: Any, step: str, name: str) -> Any:
    return store[step][name]
