# SPDX-License-Identifier: Apache-2.0
"""What a notebook shows is whole, and escaped."""

from html.parser import HTMLParser

import numpy as np
import pytest


class Cells(HTMLParser):
    """The texts of a table; fails where tags do not match."""

    def __init__(self, text):
        super().__init__()
        self.open, self.texts = [], []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.texts.append(data)


@pytest.fixture
def saved(store):
    state = {"<w>": np.array([1.0, np.nan]), "n": 3, "s": "<b>"}
    store.save(7, state, metrics={"<loss>": 0.25}).result(timeout=60)
    store.tag("a-tag", 7)
    return store


def test_a_store_a_step_and_a_leaf(saved):
    cells = Cells(saved._repr_html_()).texts
    assert "<loss>" in cells and "0.25" in cells and "a-tag" in cells
    assert "1 leaves" in cells and any("1 steps" in text for text in cells)
    cells = Cells(saved[7]._repr_html_()).texts
    assert '"<w>"' in cells and "float64[2]" in cells and "16 B" in cells
    cells = Cells(saved[7]['"<w>"']._repr_html_()).texts
    assert "nan" in cells and "float64[2]" in cells
    assert "int" in Cells(saved[7]["n"]._repr_html_()).texts


def test_values_of_scalars_are_shown(store):
    state = {
        "lr": 0.0003,
        "n": -5,
        "on": True,
        "s": "<b>" + "x" * 100,
        "raw": b"\x00",
        "one": np.float32(0.1),
        "long": "y" * 1000,
        "w": np.ones(3),
    }
    store.save(1, state).result(timeout=60)
    cells = Cells(store[1]._repr_html_()).texts
    shown = repr(state["s"])[:77] + "..."
    for text in ("0.0003", "-5", "True", shown, repr(b"\x00"), "0.1"):
        assert text in cells
    assert not any("yyy" in text for text in cells)
    for name in ("lr", "s"):
        cells = Cells(store[1][name]._repr_html_()).texts
        assert cells[cells.index("value") + 1] in ("0.0003", shown)
    assert "value" not in Cells(store[1]["w"]._repr_html_()).texts
    many = {f"a{i}": {f"{k:03}": k + 0.5 for k in range(150)} for i in (1, 2)}
    store.save(2, many).result(timeout=60)
    cells = Cells(store[2]._repr_html_()).texts
    assert cells.count("42.5") == 2 and "149.5" not in cells


def test_a_damaged_value_is_left_out(store, monkeypatch):
    from ckptree.arrays import values
    from ckptree.errors import CorruptionError

    store.save(1, {"lr": 0.0003}).result(timeout=60)

    def damaged(*arguments):
        raise CorruptionError("damaged")

    monkeypatch.setattr(values, "read", damaged)
    cells = Cells(store[1]._repr_html_()).texts
    assert "lr" in cells and "0.0003" not in cells


def test_a_manager(tmp_path):
    import ckptree

    with ckptree.CheckpointManager(
        tmp_path / "<s>", best_metric="loss", best_mode="min", max_to_keep=2
    ) as manager:
        for step in range(4):
            manager.save(step, {"n": step}, metrics={"loss": abs(step - 1.25)})
        manager.wait_until_finished(timeout=60)
        cells = Cells(manager._repr_html_()).texts
    assert cells[0] == "keeps best(loss, min, 2); the best is step 1"
    assert "loss" in cells and "0.25" in cells and "1.25" not in cells
    assert f"{manager.path}: {len([1, 2, 3])} steps" in cells
    assert "closed" in Cells(manager._repr_html_()).texts[0]


def test_what_a_policy_says(store):
    for step in range(250):
        store.save(step, {"w": np.full(1000, step, "f4")})
    store.tag("<first>", 0)
    store.flush()
    shown = store.preview_policy("latest(3)")._repr_html_()
    cells = Cells(shown).texts
    assert cells[0].startswith("latest(3): keeps 4 of 250 steps; without the")
    assert cells[0].endswith("KiB are free")
    assert cells.index("249") < cells.index("248") and "10" not in cells
    assert "... and 50 more" in cells and shown.count("<tr>") == 202
    assert cells.count("kept") == 3 and cells.count("latest(3)") == 3
    assert len(shown) < 40_000
    few = store.preview_policy("latest(3)")
    few = few._replace(steps=type(few.steps)(few.steps[:1]))
    assert "tag <first>" in Cells(few._repr_html_()).texts


def test_what_a_verification_found(saved):
    report = saved.verify()
    cells = Cells(report._repr_html_()).texts
    assert len(cells) == 1
    assert cells[0].startswith("as it was saved: 1 steps, 3 leaves, ")
    from ckptree.records import Finding

    found = [
        Finding("damage", f"<{i}>", [str(n) for n in range(500)], "w")
        for i in range(300)
    ]
    shown = report._replace(findings=found)._repr_html_()
    cells = Cells(shown).texts
    assert cells[0].startswith("damaged: ") and "<7>" in cells
    assert "... and 100 more" in cells and len(shown) < 60_000


def test_long_tables_end(store):
    store.save(1, {"a": list(range(300))}).result(timeout=60)
    text = store[1]._repr_html_()
    assert "... and 100 more" in Cells(text).texts
    assert text.count("<tr>") == 202


def test_histories_differences_and_blame(saved):
    state = {"<w>": np.array([1.0, 2.0]), "n": 4, "s": "<b>"}
    saved.save(8, state).result(timeout=60)
    cells = Cells(saved.history('"<w>"')._repr_html_()).texts
    assert "16 B" in cells and "float64" in cells and "2.2361" in cells
    assert any(text.startswith("20") and ":" in text for text in cells)
    cells = Cells(saved.diff()._repr_html_()).texts
    assert "7 -> 8: 2 changes, 1 the same" in cells and '"<w>"' in cells
    assert "retyped" not in cells and "changed" in cells
    cells = Cells(saved.diff(8, 8)._repr_html_()).texts
    assert cells == ["8 -> 8: 0 changes, 3 the same"]
    assert '"<w>"' in Cells(saved.blame()._repr_html_()).texts
    assert '"<w>"' in Cells(saved[7].stats()._repr_html_()).texts


def test_a_closed_store_still_shows(tmp_path):
    import ckptree

    with ckptree.Store(tmp_path / "s") as store:
        pass
    assert "closed" in store._repr_html_()


def test_a_step_of_many_leaves_is_folded(store, monkeypatch):
    from ckptree.step import Step

    state = {
        name: {f"{i:04}": float(i) for i in range(1000)} for name in "abc"
    } | {"only": np.ones(3)}
    store.save(1, {"params": state}).result()
    described = []
    real = Step._described
    monkeypatch.setattr(
        Step,
        "_described",
        lambda self, infos: described.extend(infos) or real(self, infos),
    )
    shown = store[1]._repr_html_()
    assert len(described) <= 200  # The records of no more are read.
    assert shown.count("<details>") == 4
    assert "<summary>params/a: 1000 leaves</summary>" in shown
    assert "<summary>params/only: 1 leaf</summary>" in shown
    assert "params/b/0001" in shown and "params/b/0999" not in shown
    assert "... and 950 more" in shown
    assert len(shown) < 40_000


def test_many_subtrees_are_counted_together(store):
    state = {f"{i:03}": {"x": 1.0, "y": 2.0} for i in range(300)}
    store.save(1, state).result()
    shown = store[1]._repr_html_()
    assert shown.count("<details>") == 50
    assert "<summary>others: 502 leaves</summary>" in shown


def test_metrics_are_drawn(store):
    for step in range(100):
        metrics = {"loss": 1 / (step + 1), "once": 1.0} if step else {"once": 2}
        store.save(step, {"lr": 1.0 / (1 + step)}, metrics=metrics)
    store.flush()
    shown = store._repr_html_()
    assert shown.count("<svg") == 2 and shown.count("<polyline") == 2
    points = shown.split('points="')[1].split('"')[0].split()
    assert len(points) <= 60
    assert store.history("lr")._repr_html_().count("<svg") == 1
    for nothing in ([], [1.0], [float("nan"), 1.0]):
        from ckptree import html

        assert html.sparkline(nothing) == ""


def hostile(i):
    return f"<script>{i}</script>"


def test_curves_are_drawn_in_rows(store):
    for step in range(1, 100):
        state = {hostile(0): np.full(3, step), hostile(1): np.full(2, -1.0)}
        store.save(step, state)
    store.flush()
    curves = store.history("**", "mean")
    shown = curves._repr_html_()
    cells = Cells(shown).texts
    assert shown.count("<polyline") == 2 and "<script" not in shown
    for text in ("mean", '"<script>0</script>"', "1 to 99", "1", "99", "-1"):
        assert text in cells
    one = Cells(curves['"<script>0</script>"']._repr_html_())
    assert "1 to 99" in one.texts
    assert store.history("re:1", "mean")._repr_html_().count("<polyline") == 1


def test_curves_without_numbers_are_shown_too():
    from ckptree.changes import Curves, Series

    nan = float("nan")
    shown = Curves(
        {"none": Series([], []), "nan": Series([1, 2], [nan, nan])}
    )._repr_html_()
    assert Cells(shown).texts.count("nan") == 3 and "<svg" not in shown
    many = Curves({f"{i}": Series([1], [0.5]) for i in range(5000)})
    shown = many._repr_html_()
    assert shown.count("<tr>") == 202 and "... and 4800 more" in shown
    assert len(shown) < 40_000
    long = Curves({"w": Series(list(range(50_000)), [0.5] * 50_000)})
    assert len(long._repr_html_()) < 2_000


def test_usage_is_a_table_newest_first(store):
    for step in range(250):
        store.save(step, {"w": np.full(1000, step, "f4")})
    store.flush()
    shown = store.usage()._repr_html_()
    cells = Cells(shown).texts
    assert any(text.startswith("250 steps: 976.6 KiB of val") for text in cells)
    assert cells.index("249") < cells.index("248") and "40" not in cells
    assert "... and 50 more" in cells and shown.count("<polyline") == 1
    held = store[0]  # What is open is not collected.
    store.delete(*range(200))
    assert "not freed yet" in store.usage()._repr_html_()
    assert held.step == 0
    assert "3.906 KiB" in Cells(store.subtrees()._repr_html_()).texts


def test_a_large_difference_is_folded(store):
    def state(value):
        return {
            f"<b>{k}": {f"{i:03}": value for i in range(300)} for k in range(3)
        }

    store.save(1, state(1.0)).result()
    store.save(2, state(2.0) | {"new": {"x": 1}}).result()
    shown = store.diff()._repr_html_()
    cells = Cells(shown).texts
    assert cells[0] == "1 -> 2: 901 changes, 0 the same"
    assert shown.count("<details>") == 4 and "<b>" not in shown
    assert '"<b>0": 300 changed' in cells
    assert "new: 1 added" in cells and "... and 250 more" in cells
    assert shown.count("<tr>") < 4 * 53 and len(shown) < 80_000


def test_the_leaves_of_a_large_step_are_not_made(store, monkeypatch):
    from ckptree.step import Step

    state = {f"{k}": {f"{i:03}": 1.0 * i for i in range(99)} for k in range(9)}
    store.save(1, state).result()
    monkeypatch.setattr(Step, "_leaf_names", None)
    shown = store[1]._repr_html_()
    assert shown.count("<details>") == 9
    assert shown.count("... and 77 more") == 9


def test_histories_of_what_no_line_goes_through(store):
    for step in (1, 2):
        large = 10**400 + step
        state = {"text": "a" * step, "complex": 1j * step, "int": large}
        store.save(step, state).result()
    for name in ("text", "complex", "int"):
        assert "<table" in store.history(name)._repr_html_()
    assert "aa" in store.history("text")._repr_html_()
