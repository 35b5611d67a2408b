# SPDX-License-Identifier: Apache-2.0
"""PyTorch's Distributed Checkpoint (DCP) over a store: all processes of a
training save one step, each what its planner gives it, and load it again in as
many processes as there are then.

StoreWriter and StoreReader stand where FileSystemWriter and FileSystemReader
do. The number of the step is the checkpoint_id:

>>> import torch
>>> import torch.distributed.checkpoint as dcp
>>> from ckptree.torch.dcp import StoreReader, StoreWriter
>>> model = torch.nn.Linear(3, 1)
>>> state = {"model": model.state_dict(), "lr": 0.5}
>>> with StoreWriter(tmp / "run") as writer:
...     for step in (100, 200):
...         _ = dcp.save(state, checkpoint_id=step, storage_writer=writer)
>>> state["lr"] = 0.0
>>> with StoreReader(tmp / "run") as reader:
...     dcp.load(state, checkpoint_id="latest", storage_reader=reader)
>>> state["lr"]
0.5

It is a step as any other: what did not change since the last one costs nothing,
`ckptree show` lists it, and step.torch() reads it without DCP. What
Store.save() saved, StoreReader loads.

All of a step is there, or nothing: the coordinator (rank 0) commits it when it
has the parts of all ranks. Where a rank raises, or is lost, DCP tells the
storage nothing. The attempt ends at the next save of that writer, when it is
closed, or at its deadline; other saves of the store wait until then.

Each rank has a writer of its own, and uses it for all its saves: it knows what
it saved last. dcp.async_save() runs collectives in a thread; give it a process
group of its own, of gloo, and wait for one save before the next. Its process
executor opens the store in its process: no other may have it open for writing
then, and the writer is made from a path.

Values that are no tensors are stored as the data that they are: None, bool,
int, float, complex, str, bytes, arrays of NumPy, lists, tuples and dicts. Of
other types those are saved that torch.load(weights_only=True) reads; all others
are a TypeError that names the entry. No pickle of a store is ever executed.
"""

from ckptree.torch._dcp_reader import StoreReader
from ckptree.torch._dcp_writer import StoreWriter

__all__ = ["StoreReader", "StoreWriter"]
