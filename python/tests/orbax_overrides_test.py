# SPDX-License-Identifier: Apache-2.0
"""Subclasses of handlers with methods of their own: those are what runs, by
every checkpointer and manager."""

import numpy as np
import pytest

TREE = {"w": np.arange(3)}


@pytest.fixture(
    params=["Checkpointer", "AsyncCheckpointer", "manager", "composite"]
)
def way(request, ocp, tmp_path):
    """Saves a tree by a handler, and restores it."""

    class Way:
        name = request.param

        def save(self, handler, tree, args=None):
            args = args or ocp.args.StandardSave(tree)
            if self.name == "manager":
                with ocp.CheckpointManager(
                    tmp_path / "run", item_handlers=handler
                ) as manager:
                    manager.save(0, args=args)
            elif self.name == "composite":
                handler = ocp.CompositeCheckpointHandler(state=handler)
                with ocp.AsyncCheckpointer(handler) as checkpointer:
                    checkpointer.save(
                        tmp_path / "run", args=ocp.args.Composite(state=args)
                    )
            else:
                with getattr(ocp, self.name)(handler) as checkpointer:
                    checkpointer.save(tmp_path / "run", args=args)

        def call(self, handler, method, args=None):
            """restore() or metadata() of the item."""
            given = {} if args is None else {"args": args}
            if self.name == "manager":
                with ocp.CheckpointManager(
                    tmp_path / "run", item_handlers=handler
                ) as manager:
                    if method == "metadata":
                        return manager.item_metadata(0)
                    return manager.restore(0, **given)
            if self.name == "composite":
                handler = ocp.CompositeCheckpointHandler(state=handler)
                if args is not None:
                    given = {"args": ocp.args.Composite(state=args)}
                with ocp.AsyncCheckpointer(handler) as checkpointer:
                    if method == "metadata":
                        found = checkpointer.metadata(tmp_path / "run")
                        return found.item_metadata.state
                    return checkpointer.restore(tmp_path / "run", **given).state
            with getattr(ocp, self.name)(handler) as checkpointer:
                if method == "metadata":
                    return checkpointer.metadata(tmp_path / "run").item_metadata
                return checkpointer.restore(tmp_path / "run", **given)

    return Way()


def tenfold(ocp, args):
    return type(args)({k: v * 10 for k, v in args.item.items()})


def registered(ocp, cls):
    """Arguments of its own, for saving and restoring, as Orbax wants them."""
    save = type("TheSave", (ocp.args.StandardSave,), {})
    restore = type("TheRestore", (ocp.args.StandardRestore,), {})
    ocp.args.register_with_handler(cls, for_save=True)(save)
    ocp.args.register_with_handler(cls, for_restore=True)(restore)
    return save, restore


def plainly(ocp, way):
    """What the base class restores."""
    args = ocp.args.StandardRestore()
    return way.call(ocp.StandardCheckpointHandler(), "restore", args)


def test_async_save(ocp, way):  # HR-01
    class Tenfold(ocp.StandardCheckpointHandler):
        async def async_save(self, directory, *, args):
            return await super().async_save(directory, args=tenfold(ocp, args))

    save, _ = registered(ocp, Tenfold)
    way.save(Tenfold(), TREE, save(TREE))
    made = plainly(ocp, way)
    assert made["w"].tolist() == [0, 10, 20]


def test_save(ocp, ours, way):  # HR-01
    if not ours and way.name != "Checkpointer":
        pytest.skip("Orbax calls async_save() only")

    class Tenfold(ocp.StandardCheckpointHandler):
        def save(self, directory, *, args):
            super().save(directory, args=tenfold(ocp, args))

    save, _ = registered(ocp, Tenfold)
    way.save(Tenfold(), TREE, save(TREE))
    made = plainly(ocp, way)
    assert made["w"].tolist() == [0, 10, 20]  # A tree, whoever restores it.


def test_both_once_each(ocp, way):
    called = []

    class Both(ocp.StandardCheckpointHandler):
        def save(self, directory, *, args):
            called.append("save")
            super().save(directory, args=args)

        async def async_save(self, directory, *, args):
            called.append("async_save")
            return await super().async_save(directory, args=tenfold(ocp, args))

    save, _ = registered(ocp, Both)
    way.save(Both(), TREE, save(TREE))
    made = plainly(ocp, way)
    assert made["w"].tolist() == [0, 10, 20]
    by_save = ["save", "async_save"]
    assert called == (by_save if way.name == "Checkpointer" else by_save[1:])


def test_restore(ocp, way):  # HR-01
    class Halved(ocp.StandardCheckpointHandler):
        def restore(self, directory, *args, **kwargs):
            made = super().restore(directory, *args, **kwargs)
            return {k: v / 2 for k, v in made.items()}

    _, restore = registered(ocp, Halved)
    way.save(ocp.StandardCheckpointHandler(), TREE)
    made = way.call(Halved(), "restore", restore())
    assert made["w"].tolist() == [0, 0.5, 1]


def test_metadata(ocp, way):  # HR-01
    class Told(ocp.StandardCheckpointHandler):
        def metadata(self, directory):
            return {"told": type(super().metadata(directory)).__name__}

    registered(ocp, Told)
    way.save(ocp.StandardCheckpointHandler(), TREE)
    assert list(way.call(Told(), "metadata")) == ["told"]


def test_finalize_writes_beside_the_tree(ocp, way):  # HR-01
    """And its own restore() reads what it wrote."""

    class Noting(ocp.StandardCheckpointHandler):
        def finalize(self, directory):
            super().finalize(directory)
            (directory / "notes").mkdir()
            (directory / "notes" / "note.txt").write_text("of the user")

        def restore(self, directory, *args, **kwargs):
            made = super().restore(directory, *args, **kwargs)
            return made, (directory / "notes" / "note.txt").read_text()

    save, restore = registered(ocp, Noting)
    way.save(Noting(), TREE, save(TREE))
    tree, note = way.call(Noting(), "restore", restore())
    assert tree["w"].tolist() == [0, 1, 2] and note == "of the user"
    assert list(plainly(ocp, way)) == ["w"]


def test_a_handler_that_uses_another(ocp, way):  # HR-01
    class Wrapping(ocp.AsyncCheckpointHandler):
        def __init__(self):
            self._inner = ocp.StandardCheckpointHandler()

        def save(self, directory, args):
            self._inner.save(directory, args=ocp.args.StandardSave(args.item))

        async def async_save(self, directory, args):
            inner = ocp.args.StandardSave(args.item)
            return await self._inner.async_save(directory, args=inner)

        def finalize(self, directory):
            self._inner.finalize(directory)

        def restore(self, directory, args=None):
            return self._inner.restore(
                directory, args=ocp.args.StandardRestore()
            )

    @ocp.args.register_with_handler(Wrapping, for_save=True, for_restore=True)
    class Wrapped(ocp.args.CheckpointArgs):
        def __init__(self, item=None):
            self.item = item

    way.save(Wrapping(), TREE, Wrapped(TREE))
    assert way.call(Wrapping(), "restore", Wrapped())["w"].tolist() == [0, 1, 2]


def test_of_several_items(ocp, tmp_path):
    called = []

    class Noting(ocp.CompositeCheckpointHandler):
        async def async_save(self, directory, *, args):
            called.append(sorted(args.keys()))
            return await super().async_save(directory, args=args)

        def finalize(self, directory):
            called.append("finalize")
            super().finalize(directory)

    register = ocp.args.register_with_handler

    @register(Noting, for_save=True, for_restore=True)
    class Several(ocp.args.Composite):
        pass

    with ocp.AsyncCheckpointer(Noting()) as checkpointer:
        checkpointer.save(
            tmp_path / "one",
            args=Several(
                state=ocp.args.StandardSave(TREE),
                config=ocp.args.JsonSave({"a": 1}),
            ),
        )
    assert called == [["config", "state"], "finalize"]
    with ocp.Checkpointer(ocp.CompositeCheckpointHandler()) as checkpointer:
        made = checkpointer.restore(
            tmp_path / "one",
            args=ocp.args.Composite(
                state=ocp.args.StandardRestore(), config=ocp.args.JsonRestore()
            ),
        )
    assert made.state["w"].tolist() == [0, 1, 2] and made.config == {"a": 1}


def test_a_second_save_to_the_folder(tmp_path):
    import ckptree.orbax as ours

    class Twice(ours.StandardCheckpointHandler):
        def save(self, directory, *, args):
            super().save(directory, args=args)
            ours.JsonCheckpointHandler().save(directory, {"a": 1})

    with pytest.raises(ValueError, match="a folder of its own"):
        ours.Checkpointer(Twice()).save(
            tmp_path / "one", args=ours.args.StandardSave(TREE)
        )
    assert not (tmp_path / "one").exists()
