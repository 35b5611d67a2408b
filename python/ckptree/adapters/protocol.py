# SPDX-License-Identifier: Apache-2.0
"""What an adapter answers, and the words it answers with.

An adapter is a module for one framework: it knows that framework's values,
and nobody else has to. Its functions are those of Adapter; one whose
framework has arrays of its own has those of Loader, too.
"""

from __future__ import annotations

from typing import (
    TYPE_CHECKING,
    Any,
    Callable,
    Literal,
    NamedTuple,
    Protocol,
    Sequence,
)

if TYPE_CHECKING:
    import numpy as np

    from ckptree import _engine
    from ckptree.arrays.shardings import LeafSharding

# As the engine's EntryKind and PartKind.
NONE, DICT, LIST, TUPLE, NAMEDTUPLE, OBJECT, CUSTOM = range(32, 39)
DICT_KEY, INDEX, ATTRIBUTE, FLATTENED = range(1, 5)

# What the tag of a node begins with that is one leaf, kept as its parts; what
# follows says all of it that has to be the same in a template.
PARTS = "parts:"
# Tags of nodes which say of one child, an array, what it was: to be told from
# those that are entries of DCP by themselves.
ARRAY_MARK = "numpy.ndarray"
TENSOR_MARK = "torch.Tensor"
# In Expected.shape: of any size.
ANY_SIZE = -1


# Of several containers: how each is made again, as `rebuild` does, so that what
# two of them hold is one object in the new ones. None: they hold nothing in
# common.
Together = Callable[
    [Sequence[Any]], "Sequence[Callable[[list[Any]], Any]] | None"
]


class Container(NamedTuple):
    """A container: what it holds, and how one of its kind is made again."""

    type: int
    tag: str
    children: list[tuple[int, Any, Any]]  # Kind and key of the path, value.
    rebuild: Callable[[list[Any]], Any]
    # Of what has variables of NNX, whose values the children are: the keys that
    # lead to its other leaves. A save asks for them.
    variables: Callable[[], list[tuple[str, ...]]] | None = None
    # Of what may hold an object that another container of the state holds, too.
    together: Together | None = None


class Direct(NamedTuple):
    """Where the driver of CUDA finds the bytes of a box."""

    driver: _engine.CudaDriver
    device: int  # As driver.device_of() says.
    address: int  # Of dense, row-major bytes.
    # Called before and behind each copy, on the thread that makes it: waits for
    # what writes there, and raises where the memory may be another's by now.
    check: Callable[[], object] | None = None


class Fetched(NamedTuple):
    """A box whose bytes are not in the memory of the host."""

    shape: tuple[int, ...]
    # fetch(offset, into) fills `into`, a memoryview of bytes that can be
    # written to, with the row-major bytes of the box from `offset` on. Called
    # from threads of the engine, several at once, a chunk or less at a time,
    # until the save is staged; `into` is gone when it returns. What it raises
    # fails the save, with the path.
    fetch: Callable[[int, memoryview], None]
    # Then that is copied, without the GIL, and fetch() is not called.
    direct: Direct | None = None


class Pieces(NamedTuple):
    """An array, whole (start None) or as boxes that do not overlap."""

    dtype: Any  # A key of dtypes.NUMBERS: of NumPy or PyTorch.
    shape: tuple[int, ...]
    boxes: list[
        tuple[tuple[int, ...] | None, np.ndarray[Any, Any] | Fetched]
    ]
    tag: str
    # Nobody can change the memory; what is fetched may be taken away, though.
    frozen: bool
    memory: Any = None  # Equal where the same memory is met again.
    # Where no array of this very type can change: the extension takes others
    # as buffers, or as this views them, and does not ask again. None: all.
    view: Callable[[Any], np.ndarray[Any, Any] | None] | None = None
    sharding: LeafSharding | None = None
    # Of several processes that save one step: this one alone has it.
    own: bool = False
    # And which one does, where it is not this one.
    owner: int | None = None


class Expected(NamedTuple):
    """What a leaf of a template asks for."""

    kind: str
    dtype: str = ""  # Of arrays; "" of others.
    shape: tuple[int, ...] = ()
    tag: str = ""  # Of keys of JAX; "" of others.
    abstract: bool = False  # It has no value of its own.
    arrays: str = "numpy"  # Who makes it: as `arrays` of restore().
    place: Any = None  # A device or sharding; None: the default one.
    # The leaf itself, where its loader looks at it; a scalar of NumPy.
    like: Any = None

    def fits(self, shape: tuple[int, ...]) -> bool:
        """Whether an array of that shape is one of this."""
        return shape == self.shape or (
            ANY_SIZE in self.shape
            and len(shape) == len(self.shape)
            and all(a in (b, ANY_SIZE) for a, b in zip(self.shape, shape))
        )

    def __str__(self) -> str:
        if self.kind != "array":
            return self.kind
        dims = ", ".join("any" if n < 0 else str(n) for n in self.shape)
        if self.tag:  # Its shape is that of the keys.
            return f"key[{dims}] ({self.tag})"
        return f"{self.dtype}[{dims}]"


class Request(NamedTuple):
    """A leaf of a step that is to be read."""

    info: _engine.LeafInfo
    arrays: str = "numpy"  # Whose loader makes it an array; "numpy": none does.
    place: Any = None  # A device or sharding; None: the default one.
    dtype: str = ""  # Of the elements; "": as saved.
    lossy: bool = True  # Another type may make other values of it.
    like: Any = None  # The leaf of the template, where there is one.
    into: Any = None  # An array of that type and shape, which it is read into.


class Adapter(Protocol):
    """What values of one framework are. Each function is asked of values of
    every type."""

    def is_leaf(self, value: Any) -> bool:
        """Whether the value is of this framework and no container: an array,
        what describes one, or what can never be saved. The type alone says so:
        the answer is remembered for all values of that type."""

    def container(self, value: Any) -> Container | None:
        """The container that `value` is; None: it is no container of ours."""

    def pieces(self, value: Any) -> Pieces | Container | None:
        """The memory of an array to save, or the parts that it is kept as;
        None: it is no array of ours. TypeError or ValueError says why one
        cannot be saved."""

    # Of a framework whose arrays are spread over processes: as pieces(), where
    # several of them save one step. Else pieces() is asked.
    #   def part(self, value: Any) -> Pieces | None

    def describe(self, value: Any) -> Expected | None:
        """What a leaf of a template asks for; None: it is not ours."""

    # Of a framework that gives one memory as several objects: equal for leaves
    # that are the same elements, of one type; None: where only one object is.
    #   def memory(self, value: Any) -> Any


class InParts(Protocol):
    """What an adapter answers, too, of whose leaves some are kept as their
    parts: a node with a tag that begins with PARTS."""

    def parts(self, value: Any) -> Container | Literal[False] | None:
        """Of a leaf in a template: its parts, and how they are made one again;
        False: this one is kept as it is; None: all of its type are."""

    def whole(self, tag: str, parts: dict[str, Any]) -> Any:
        """What a node of that tag, without PARTS, was made of; None: nobody
        here makes it. ValueError where these are not its parts. Nothing that a
        tag names is imported or called."""


class Completing(Protocol):
    """What an adapter answers, too, of whose states a store may lack something
    that their other values say."""

    def completed(self, state: Any) -> Any:
        """A state that was restored without a template, as its framework takes
        it; may change it in place."""


class Loader(Protocol):
    """How arrays of one framework are made."""

    # The option of restore() that says where arrays are put, and what it takes.
    PLACE: str
    PLACE_TYPE: str

    def is_place(self, given: Any) -> bool:
        """Whether that is one place; else it is a tree of them."""

    def takes(self, info: _engine.LeafInfo) -> bool:
        """Whether this array of a step becomes one here, without a template;
        the others are read as they are."""

    def load(
        self, step: _engine.Step, requests: Sequence[Request]
    ) -> tuple[list[Any], dict[int, str]]:
        """The arrays, in few reads; and by the place of its request what
        another type would change in one, where that is not `lossy`."""

    def made(self, value: Any, expected: Expected, *, lossy: bool) -> Any:
        """An array of a value that was read. casting.Changed where it would be
        another value, unless `lossy`."""


def type_name(value: Any) -> str:
    kind = type(value)
    return f"{kind.__module__}.{kind.__qualname__}"
