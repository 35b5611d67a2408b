# SPDX-License-Identifier: Apache-2.0
"""Plots: what is drawn, on axes that note it. matplotlib itself is not among
what the tests need."""

import sys
import types

import numpy as np
import pytest


class Axes:
    """In place of matplotlib's."""

    def __init__(self):
        self.lines, self.labels, self.legends = [], {}, 0

    def plot(self, steps, values, **options):
        assert len(steps) == len(values)
        self.lines.append((list(steps), list(values), options))

    def set_xlabel(self, text):
        self.labels["x"] = text

    def set_ylabel(self, text):
        self.labels["y"] = text

    def legend(self):
        self.legends += 1


@pytest.fixture
def run(store):
    for step in (10, 20, 30, 40):
        state = {
            "a": np.full(4, step, "f4"),
            "b": np.full(4, 1, "f4"),
            "lr": 0.5 if step < 30 else 0.25,
            "name": "x",
        }
        metrics = {"loss": 1 / step}
        if step > 20:
            metrics["accuracy"] = step / 100
        store.save(step, state, metrics=metrics).result(timeout=60)
    return store


def test_metrics_over_the_steps(run):
    ax = Axes()
    assert run.steps().plot(ax=ax, color="k") is ax
    assert ax.lines == [
        ([10, 20, 30, 40], [1 / 10, 1 / 20, 1 / 30, 1 / 40],
         {"label": "loss", "color": "k"}),
        ([30, 40], [0.3, 0.4], {"label": "accuracy", "color": "k"}),
    ]
    assert ax.labels == {"x": "step", "y": ""} and ax.legends == 1
    ax = run.steps().plot("accuracy", ax=Axes(), label="mine")
    assert ax.lines == [([30, 40], [0.3, 0.4], {"label": "mine"})]
    assert ax.labels["y"] == "accuracy" and ax.legends == 0
    ax = run.steps().plot("leaf_count", ax=Axes())
    assert ax.lines[0][:2] == ([10, 20, 30, 40], [4, 4, 4, 4])


def test_a_history_of_values_and_of_means(run):
    # A value stays until the last step that has it.
    ax = run.history("lr").plot(ax=Axes())
    assert ax.lines == [
        ([10, 20, 30, 40], [0.5, 0.5, 0.25, 0.25], {"label": "value"})
    ]
    ax = run.history("a").plot(ax=Axes())
    assert ax.lines == [([10, 20, 30, 40], [10, 20, 30, 40], {"label": "mean"})]
    ax = run.history("b").plot("l2", ax=Axes())
    assert ax.lines == [([10, 40], [2, 2], {"label": "l2"})]
    assert run.history("name").plot(ax=Axes()).lines == [
        ([], [], {"label": "mean"})
    ]


def test_a_statistic_of_many_leaves(run):
    curves = run.history("**", "max")
    ax = curves.plot(ax=Axes(), marker="o")
    assert ax.lines == [
        ([10, 20, 30, 40], [10, 20, 30, 40], {"label": "a", "marker": "o"}),
        ([10, 20, 30, 40], [1, 1, 1, 1], {"label": "b", "marker": "o"}),
    ]
    assert ax.labels == {"x": "step", "y": "max"} and ax.legends == 1
    assert curves["a"].plot(ax=Axes()).lines[0][1] == [10, 20, 30, 40]
    assert list(curves) == ["a", "b"] and isinstance(curves, dict)


def test_a_legend_of_very_many_is_left_out(store):
    store.save(1, {f"{i:02}": 1.0 * i for i in range(40)}).result()
    ax = store.history("*", "value").plot(ax=Axes())
    assert len(ax.lines) == 40 and ax.legends == 0


def test_of_very_many_curves_the_first_are_drawn(store):
    store.save(1, {f"{i:03}": 1.0 * i for i in range(150)}).result()
    curves = store.history("*", "value")
    with pytest.warns(UserWarning, match="first 100 of 150 curves") as said:
        ax = curves.plot(ax=Axes())
    assert said[0].filename == __file__
    names = [options["label"] for _, _, options in ax.lines]
    assert names == list(curves)[:100]


def test_what_cannot_be_plotted_says_so(run):
    with pytest.raises(ValueError, match="'los'.*loss, accuracy, leaf_count"):
        run.steps().plot("los", ax=Axes())
    with pytest.raises(ValueError, match="note.*no number.*loss"):
        run.steps().plot("note", ax=Axes())
    with pytest.raises(ValueError, match="column=None: one of .*new_bytes"):
        run.usage().steps.plot(ax=Axes())
    with pytest.raises(TypeError, match="StatsRow are not over steps"):
        run[40].stats().plot(ax=Axes())
    assert run.usage().steps.plot("new_bytes", ax=Axes()).lines[0][0][0] == 10


def test_nothing_is_drawn_of_nothing(store):
    assert store.steps().plot(ax=Axes()).lines == []
    assert store.steps().plot("loss", ax=Axes()).lines == []


def test_axes_are_made_by_matplotlib(run, monkeypatch):
    made = Axes()
    pyplot = types.ModuleType("matplotlib.pyplot")
    pyplot.subplots = lambda: ("the figure", made)
    matplotlib = types.ModuleType("matplotlib")
    matplotlib.pyplot = pyplot
    monkeypatch.setitem(sys.modules, "matplotlib", matplotlib)
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", pyplot)
    assert run.steps().plot("loss") is made and len(made.lines) == 1
    assert run.history("a", "l2").plot() is made and len(made.lines) == 2


def test_without_matplotlib_there_is_a_word(run, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    for plot in (
        run.steps().plot,
        run.history("lr").plot,
        run.history("a", "l2").plot,
        run.history("a", "l2")["a"].plot,
    ):
        with pytest.raises(ImportError, match="pip install matplotlib.*ax="):
            plot()
        assert plot(ax=Axes()).lines


def test_curves_as_a_frame(run):
    frame = run.history("**", "max").to_pandas()
    assert list(frame.columns) == ["a", "b"] and frame.index.name == "step"
    assert frame["a"].to_dict() == {10: 10, 20: 20, 30: 30, 40: 40}
