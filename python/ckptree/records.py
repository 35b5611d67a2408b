# SPDX-License-Identifier: Apache-2.0
"""What the engine says of steps, leaves and stores: named tuples, which pandas
takes as they are. Times are nanoseconds since 1970 UTC, sizes bytes.

>>> import ckptree
>>> with ckptree.Store(tmp / "run") as store:
...     _ = store.save(1, {"lr": 0.5}, note="first").result()
...     info = store.step_info(1)
>>> info.note, info.logical_bytes
('first', 8)
"""

# Annotations are types here, not text: a named tuple compiles each text, which
# takes as long as the rest of these classes.

import re
from math import isfinite

from ckptree.hints import TYPE_CHECKING, Any, NamedTuple
from ckptree.table import Table

# As a recovery begins the note of a step that it found a part of. Whoever saves
# may begin a note alike.
RECOVERED = re.compile(r"\[recovered: ([1-9]\d*) of (\d+) leaves lost\]")

if TYPE_CHECKING:
    from ckptree import _engine


class StepInfo(NamedTuple):
    """What a step is, from its records alone."""

    step: int
    branch: str  # Empty: the main branch.
    metrics: dict[str, float]
    tags: list[str]
    pinned: bool
    leaf_count: int
    changed_leaves: int
    logical_bytes: int  # Of all values.
    new_bytes: int  # Of values that its save wrote.
    nan_count: int
    inf_count: int
    nonfinite_leaves: int
    begun_ns: int
    staged_ns: int
    committed_ns: int
    version: int
    base: int  # The version it was compared with; 0: a full save.
    digest: str  # Over all names and values.
    saved_by: str
    note: str
    # Float and complex arrays that were saved with statistics=False.
    unknown_leaves: int

    @property
    def healthy(self) -> bool:
        """Without NaN and Inf in its arrays and metrics, as "healthy" and
        policies have it. False where that is not known, of arrays that were
        saved with statistics=False, and of a step that lost leaves when its
        store was recovered.

        >>> with ckptree.Store(tmp / "healthy") as store:
        ...     _ = store.save(1, {"w": [0.5]}, metrics={"loss": 2}).result()
        ...     store.step_info(1).healthy
        True
        """
        unfit = self.nonfinite_leaves + self.unknown_leaves
        if unfit or RECOVERED.match(self.note):
            return False
        return all(map(isfinite, self.metrics.values()))


class LeafStats(NamedTuple):
    """Of all elements of an array; min to l2 of the finite ones.

    mean, std and l2 come from two sums in double. l2 is inf where a double does
    not hold the squares of elements (1e154 and more), and 0 where all are below
    1e-162. std is nan there, and where the elements differ from their mean by
    less than a ten-millionth of it; below a millionth few digits are right.
    Where no element is finite (an array without elements, all NaN or Inf) min
    is inf, max is -inf, mean and std are nan, and l2 is 0.
    """

    count: int  # type: ignore[assignment]  # Hides tuple.count().
    nan: int
    inf: int
    zero: int
    min: float
    max: float
    mean: float
    std: float
    l2: float


class LeafDetail(NamedTuple):
    """What the record of a leaf adds to its name, kind and shape."""

    nbytes: int
    since_step: int  # The save that last changed the value.
    since_version: int
    digest: str
    stats: LeafStats | None
    chunk_count: int
    chunk_shape: tuple[int, ...]
    boxes: list[tuple[tuple[int, ...], tuple[int, ...]]]  # start, shape
    stored_bytes: int

    @staticmethod
    def of(fields: dict[str, Any]) -> "LeafDetail":
        """Of what the engine says."""
        stats = fields.pop("stats")
        return LeafDetail(stats=LeafStats(**stats) if stats else None, **fields)


class StatsRow(NamedTuple):
    """The statistics of one leaf, as a row of a table: LeafStats says what
    they are."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    nbytes: int
    since_step: int
    count: int  # type: ignore[assignment]  # Hides tuple.count().
    nan: int
    inf: int
    zero: int
    min: float
    max: float
    mean: float
    std: float
    l2: float


class PartInfo(NamedTuple):
    """What one rank saved of a step of several processes."""

    rank: int
    host: str
    pid: int
    nbytes: int  # Of its values.
    new_bytes: int  # Of those that the save wrote.
    seconds: float  # From when it came to the save until its part was built.


class TagInfo(NamedTuple):
    """A tag, and the step it names."""

    name: str
    step: int
    branch: str
    version: int


class BranchInfo(NamedTuple):
    """A branch: a series of saves, each compared with the one before."""

    name: str  # Empty: the main branch.
    origin_branch: str
    origin_step: int
    created_ns: int
    steps: int
    origin_version: int  # The save of that step; it may be gone.


class Finding(NamedTuple):
    """One problem that verify() found."""

    severity: str  # "damage", "inconsistent" or "warning"
    what: str
    steps: list[str]  # Selectors of the steps that it hurts.
    leaf: str


class VerifyReport(NamedTuple):
    """What verify() read, and what is wrong with it.

    >>> with ckptree.Store(tmp / "run") as store:
    ...     report = store.verify()
    >>> report.findings
    []
    """

    findings: list[Finding]
    steps: int
    leaves: int
    chunks: int
    nbytes: int

    @property
    def ok(self) -> bool:
        """True where nothing is damaged; warnings do not count.

        >>> report.ok
        True
        """
        return all(f.severity == "warning" for f in self.findings)

    @staticmethod
    def of(fields: dict[str, Any]) -> "VerifyReport":
        """Of what the engine says."""
        findings = [Finding(**finding) for finding in fields.pop("findings")]
        return VerifyReport(findings=findings, **fields)

    def _repr_html_(self) -> str:
        from ckptree import html

        return html.verification(self)


class KeptVersion(NamedTuple):
    """A step that was deleted, and whose bytes cannot go yet."""

    step: int
    version: int
    why: str


def _kept(fields: dict[str, Any]) -> list[KeptVersion]:
    return [KeptVersion(**kept) for kept in fields.pop("kept")]


class CollectReport(NamedTuple):
    """What collect() freed."""

    versions: int
    blocks_freed: int
    bytes_freed: int  # On this disk.
    far_bytes_freed: int  # That had left it: the remote gets them back.
    bytes_left: int  # Of bytes_freed, in files with other bytes; about right.
    files_dropped: int
    files_rewritten: int
    files_packed: int  # Of these: by pack=True.
    bytes_written: int
    file_bytes_before: int
    file_bytes_after: int
    kept: list[KeptVersion]
    damaged: list[str]  # Files left alone, and why.
    no_room: list[str]  # What found no room to free more; done another time.

    @staticmethod
    def of(fields: dict[str, Any]) -> "CollectReport":
        """Of what the engine says."""
        return CollectReport(kept=_kept(fields), **fields)


class StepUsage(NamedTuple):
    """What one step costs."""

    step: int
    branch: str
    version: int
    logical_bytes: int
    new_bytes: int
    unique_bytes: int  # That go when this step alone is deleted, with records.
    unique_stored_bytes: int  # What these take on the disk, about.


class UsageReport(NamedTuple):
    """What a store costs."""

    steps: Table[StepUsage]
    logical_bytes: int
    pending_bytes: int  # Deleted, and collect() frees just this.
    pending_stored_bytes: int  # What these take on the disk, about.
    dead_bytes: int  # Freed, and still in files with living neighbours.
    files: int
    file_bytes: int
    far_bytes: int  # Of arrays that left this disk (local_keep).
    living_bytes: int  # Of arrays and leaf records in the files.
    living_stored_bytes: int  # What these take there.
    kept: list[KeptVersion]

    @staticmethod
    def of(fields: dict[str, Any]) -> "UsageReport":
        """Of what the engine says."""
        steps = Table(StepUsage(**step) for step in fields.pop("steps"))
        return UsageReport(steps=steps, kept=_kept(fields), **fields)

    def _repr_html_(self) -> str:
        from ckptree import html

        return html.usage(self)


class FreedBytes(NamedTuple):
    """What deleting some steps would free."""

    nbytes: int  # On this disk.
    stored_bytes: int  # What these take there, about.
    remote_bytes: int  # Of objects in the remote that go then, about.
    blocks: int
    kept: list[KeptVersion]

    @staticmethod
    def of(fields: dict[str, Any]) -> "FreedBytes":
        """Of what the engine says."""
        return FreedBytes(kept=_kept(fields), **fields)


class SubtreeUsage(NamedTuple):
    """What a subtree of one step costs."""

    name: str
    leaves: int
    logical_bytes: int
    unique_bytes: int  # That go when the step alone is deleted, with records.
    unique_value_bytes: int  # Of these its values: the rest is shared.


class StoreInfo(NamedTuple):
    """What a store as a whole is."""

    directory: str
    uuid: str
    format: int
    created_ns: int
    created_by: str
    read_only: bool
    following: bool  # Reading beside a live writer.
    commits: int
    incarnation: int
    remote: str  # The address of its object store; empty: none.
    unshipped: int  # Commits that are not there yet.
    shipped_to: str  # Where it was last shipped to, with a remote; or empty.
    far_nbytes: int  # Of arrays that left this disk: they are there alone.
    warnings: list[str]


class Counters(NamedTuple):
    """Counts since the store was opened."""

    saves_committed: int
    saves_failed: int
    saves_in_flight: int
    bytes_staged: int
    bytes_hashed: int
    bytes_written: int
    bytes_unchanged: int
    bytes_coded: int  # Of bytes_written: in coded pieces.
    bytes_coded_to: int  # What these take on the disk.
    bytes_read: int
    chunks_written: int
    leaf_records_written: int
    segments_written: int
    seconds_staging: float
    seconds_comparing_and_writing: float
    seconds_committing: float
    staging_bytes_in_use: int


class Progress(NamedTuple):
    """How far a save is."""

    step: int
    phase: str  # queued, writing, committing, done or failed
    bytes_total: int
    bytes_staged: int
    bytes_compared: int
    bytes_written: int
    bytes_unchanged: int
    leaves_total: int


class PolicyInfo(NamedTuple):
    """The policy of a branch."""

    text: str  # Empty: none was set, and all steps live.
    problem: str  # Why it cannot be applied here; nothing is removed then.
    from_program: bool  # It came with the options of a CheckpointManager.
    set_by: str
    set_ns: int


class PolicyVerdict(NamedTuple):
    """What a policy says of one step."""

    step: int
    kept: bool
    why: list[str]  # "latest(3)", "pinned", "tag best": all that keeps it.
    begun_ns: int  # The time that the policy goes by.


class PolicyReport(NamedTuple):
    """What a policy keeps, and what removing the rest would free."""

    policy: str
    steps: Table[PolicyVerdict]
    freed: FreedBytes

    @staticmethod
    def of(fields: dict[str, Any]) -> "PolicyReport":
        """Of what the engine says."""
        steps = Table(PolicyVerdict(**step) for step in fields.pop("steps"))
        freed = FreedBytes.of(fields.pop("freed"))
        return PolicyReport(steps=steps, freed=freed, **fields)

    def _repr_html_(self) -> str:
        from ckptree import html

        return html.policy(self)


class LeafType(NamedTuple):
    """What a leaf is, without its value."""

    name: str
    kind: str
    dtype: str  # Of arrays; "" of others.
    shape: tuple[int, ...]

    @staticmethod
    def of(info: "_engine.LeafInfo") -> "LeafType":
        """Of what the engine says."""
        from ckptree.arrays import values

        kind = values.kind_of(info)
        if kind != "array":
            return LeafType(info.name, kind, "", ())
        return LeafType(info.name, kind, info.dtype_name, info.shape)

    def __str__(self) -> str:
        if self.kind != "array":
            return self.kind
        return f"{self.dtype}[{', '.join(map(str, self.shape))}]"


class ItemInfo(NamedTuple):
    """A top-level subtree of a step."""

    name: str
    kind: str  # "tree", "json", "proto", "files"
    leaves: list[LeafType]

    @staticmethod
    def of(fields: dict[str, Any]) -> "ItemInfo":
        """Of what the engine says."""
        leaves = [LeafType.of(leaf) for leaf in fields.pop("leaves")]
        return ItemInfo(leaves=leaves, **fields)
