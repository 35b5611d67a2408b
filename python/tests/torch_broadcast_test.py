# SPDX-License-Identifier: Apache-2.0
"""load() and resume() of several processes, of which one reads and sends what
it read to the others."""

import os

import ckptree
import pytest

torch = pytest.importorskip(
    "torch", reason="PyTorch could not be installed: see requirements_torch.txt"
)

import ckptree.torch as trainings
import torch.distributed as dist
from torch_ranks import run

WIDE = 700  # Its weights are sent alone, the others together.


def app(seed, width=WIDE):
    torch.manual_seed(seed)
    model = torch.nn.Sequential(
        torch.nn.Linear(width, width), torch.nn.Linear(width, 3).bfloat16()
    )
    return {
        "model": model,
        "optimizer": torch.optim.AdamW(model.parameters(), lr=seed / 10),
        "epoch": seed,
        "names": ["a", seed],
        "tensor": torch.full((), float(seed)),
    }


def trained(seed):
    made = app(seed)
    for parameter in made["model"].parameters():
        parameter.grad = torch.full_like(parameter, seed)
    made["optimizer"].step()
    return made


def flat(value, name=""):
    """Everything in it by its name: bytes of tensors, else the text."""
    if hasattr(value, "state_dict"):
        value = value.state_dict()
    if isinstance(value, dict):
        value = list(value.items())
    elif isinstance(value, (list, tuple)):
        value = list(enumerate(value))
    else:
        if isinstance(value, torch.Tensor):
            bits = value.detach().reshape(-1).view(torch.uint8)
            return {name: bits.numpy().tobytes()}
        return {name: repr(value)}
    found = {}
    for key, child in value:
        found.update(flat(child, f"{name}/{key}"))
    return found


def loaded(rank, path):
    with ckptree.open(path) as store:
        into = app(9 + rank)
        group = dist.new_group(backend="gloo")
        trainings.load(store, into, step=5, broadcast=group)
        first = store.counters().bytes_read
        new = trainings.load(store, broadcast=True)
        again = app(20 + rank)
        step = trainings.resume(store, again, broadcast=True)
        read = store.counters().bytes_read
        return flat(into), flat(new), step, flat(again), first, read


def test_one_reads_and_all_have_the_same_bytes(tmp_path):
    with ckptree.Store(tmp_path / "run") as store:
        for step in (5, 6):
            trainings.save(store, step, trained(step)).result()
    first, *others = run(tmp_path, 3, loaded, tmp_path / "run")
    assert first[0] == flat(trained(5))
    assert first[3] == flat(trained(6))
    assert first[2] == 7
    assert first[4] > 4 * WIDE * WIDE  # Its bytes.
    for other in others:
        assert other[:4] == first[:4]
        assert other[5] == 0
    model = {k: v for k, v in first[1].items() if k.startswith("/model")}
    found = {f"/model/{k}" for k in app(1)["model"].state_dict()}
    assert model.keys() == found


def of_a_fork(rank, path):
    with ckptree.CheckpointManager(
        path, branch="colder", read_only=True
    ) as manager:
        again = app(20 + rank)
        step = trainings.resume(manager, again, broadcast=True)
        return step, flat(again)


def test_a_fork_without_a_step_goes_on_from_its_origin(tmp_path):
    with ckptree.Store(tmp_path / "run") as store:
        for step in (5, 6):
            trainings.save(store, step, trained(step)).result()
        store.fork(5, "colder")
    for found in run(tmp_path, 2, of_a_fork, tmp_path / "run"):
        assert found == (6, flat(trained(5)))


def failing(rank, path):
    """Rank 1 has another app; then a file is damaged; then all is well."""
    said = []
    width = WIDE + rank
    with ckptree.open(path) as store:
        for into in (app(1, width), app(1)):
            try:
                trainings.load(store, into, broadcast=True)
                said.append("loaded")
            except ckptree.Error as error:
                said.append(f"{type(error).__name__}: {error}")
            dist.barrier()
        try:
            trainings.load(store, step=6 + rank, broadcast=True)
        except ckptree.Error as error:
            said.append(str(error))
    return said


def test_they_fail_together(tmp_path):
    with ckptree.Store(tmp_path / "run") as store:
        for step in (6, 7):
            trainings.save(store, step, trained(3)).result()
    first, second = run(tmp_path, 2, failing, tmp_path / "run")
    assert "StateError: rank 1 of the group: MismatchError" in first[0]
    assert "MismatchError" in second[0] and "model/0.weight" in second[0]
    assert first[1] == second[1] == "loaded"
    assert "loads something else" in first[2]
    assert first[2] == second[2]


def strided(rank, path):
    """Rank 1 has one weight column by column."""
    into = app(1)
    if rank == 1:
        weight = into["model"][0].weight
        weight.data = torch.zeros_like(weight).T
    with ckptree.open(path) as store:
        try:
            trainings.load(store, into, broadcast=True)
        except ckptree.Error as error:
            return f"{type(error).__name__}: {error}"


def test_what_is_read_otherwise_is_named(tmp_path):
    with ckptree.Store(tmp_path / "run") as store:
        trainings.save(store, 6, trained(3)).result()
    first, second = run(tmp_path, 2, strided, tmp_path / "run")
    assert first == second
    assert first.startswith("StateError: rank 1 of the group loads something")
    assert "model/0.weight differs in its shape, type, strides" in first


def test_damage_is_said_on_all(tmp_path):
    state = trained(3)
    with ckptree.Store(tmp_path / "run") as store:
        trainings.save(store, 1, state).result()
    weight = flat(state)["/model/0.weight"][:64]
    changed = 0
    for folder, _, names in os.walk(tmp_path / "run"):
        for name in names:
            path = os.path.join(folder, name)
            with open(path, "rb") as file:
                data = file.read()
            if weight in data:
                with open(path, "wb") as file:
                    file.write(data.replace(weight, bytes(64)))
                changed += 1
    assert changed == 1
    first, second = run(tmp_path, 2, damaged, tmp_path / "run")
    assert first.startswith("CorruptionError")
    assert second.startswith("StateError: rank 0 of the group: Corruption")


def damaged(rank, path):
    with ckptree.open(path) as store:
        try:
            trainings.load(store, app(1), broadcast=True)
        except ckptree.Error as error:
            return f"{type(error).__name__}: {error}"


def opened_before(rank, path):
    if rank == 0:
        store = ckptree.Store(path)
    dist.barrier()
    if rank == 1:
        store = ckptree.open(path)
    dist.barrier()
    with store:
        found = []
        for step in (1, 2):
            if rank == 0:
                trainings.save(store, step, {"epoch": step}).result()
            dist.barrier()
            for wanted in (step, "latest"):
                into = {"epoch": 0}
                trainings.load(store, into, step=wanted, broadcast=True)
                found.append(into["epoch"])
            found.append(trainings.load(store, broadcast=True)["epoch"])
    return found


def test_a_reader_sees_the_steps_since_it_was_opened(tmp_path):
    for found in run(tmp_path, 2, opened_before, tmp_path / "run"):
        assert found == [1, 1, 1, 2, 2, 2]


def test_there_has_to_be_a_group(store):
    trainings.save(store, 1, {"n": 1}).result()
    with pytest.raises(ValueError, match="not initialized"):
        trainings.load(store, broadcast=True)
