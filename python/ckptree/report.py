# SPDX-License-Identifier: Apache-2.0
"""Report: the page of a run, as `ckptree report` writes it."""

from __future__ import annotations

import os
import pathlib
from collections.abc import Iterable, Sequence

from ckptree._command import PROGRAM
from ckptree.arguments import TEXT, checked, listed
from ckptree.errors import (
    CorruptionError,
    Error,
    InvalidArgumentError,
    NotFoundError,
)
from ckptree.hints import Any, cast

# The exit codes of the command that say what went wrong.
_ERRORS = {3: NotFoundError, 5: CorruptionError}


class Report:
    """One page of HTML with charts of the steps, the metrics and the leaves, a
    table of leaves, the diff of any two steps, and what each subtree costs. A
    notebook shows it. It holds everything that it needs, and fetches nothing.

    >>> with ckptree.Store(tmp / "run") as store:
    ...     _ = store.save(100, {"lr": 0.5}, metrics={"loss": 2.5}).result()
    ...     report = store.report()
    >>> report
    <Report of 'run'>
    """

    def __init__(self, name: str, page: str) -> None:
        self._name = name
        self._page = page

    @property
    def page(self) -> str:
        """The HTML, from its first line to its last.

        >>> report.page[:15]
        '<!DOCTYPE html>'
        """
        return self._page

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the page to a file, for any browser. A file that is there is
        replaced by the whole page, or stays as it is; a device or a pipe gets
        the page.

        >>> report.save(tmp / "run.html")
        """
        from ckptree import beside  # As html below.

        target = pathlib.Path(os.fsdecode(path))
        page = self._page.encode()
        if target.exists() and not target.is_file():
            target.write_bytes(page)  # A folder is an error of its own.
            return
        with beside.whole_file(target, overwrite=True) as written:
            written.write_bytes(page)

    def __repr__(self) -> str:
        return f"<Report of {self._name!r}>"

    def _repr_html_(self) -> str:
        import html  # Takes as long as many modules do, and is seldom used.

        # In a frame of its own: neither of the two sees the other.
        return (
            f'<iframe sandbox="allow-scripts" title="{html.escape(self._name)}"'
            ' style="width:100%;height:800px;border:0" '
            f'srcdoc="{html.escape(self._page)}"></iframe>'
        )


def make_report(
    directory: str,
    branch: str,
    keys: Iterable[str],
    histograms: Iterable[str],
) -> Report:
    """The page of the store in `directory`, by the command that the package
    brings along: a process of its own, so that no other thread waits.

    >>> with ckptree.Store(tmp / "run") as store:
    ...     _ = store.save(100, {"lr": 0.5}).result()
    ...     make_report(store.path, "", ["lr"], [])
    <Report of 'run'>
    """
    import subprocess  # As html above.

    # "--flag=value": a value may begin with a dash.
    flags = [f"--branch={branch}"] if branch else []
    flags += [f"--keys={key}" for key in keys]
    flags += [f"--hist={key}" for key in histograms]
    done = subprocess.run(
        [PROGRAM, "--quiet", f"--store={directory}", "report", *flags],
        capture_output=True,
        stdin=subprocess.DEVNULL,
        check=False,
    )
    if done.returncode == 0:
        name = os.path.basename(os.path.realpath(directory))
        return Report(name, done.stdout.decode())
    lines = done.stderr.decode(errors="replace").strip().split("\n")
    said = "; ".join(line.strip() for line in lines).removeprefix("ckptree: ")
    if done.returncode == 2 and said.startswith("pattern "):
        raise InvalidArgumentError(said)
    raise _ERRORS.get(done.returncode, Error)(said)


@checked(
    report={
        "keys": listed(TEXT, "a list of globs"),
        "histograms": listed(TEXT, "a list of globs"),
        "branch": TEXT,
    }
)
class Reporting:
    """What a store can show as a page; its `path` is that of the store.

    >>> store = ckptree.Store(tmp / "run")
    >>> store.save(100, {"lr": 0.5}, metrics={"loss": 2.5}).result()
    100
    """

    __slots__ = ()

    def report(
        self,
        *,
        keys: Sequence[str] = (),
        histograms: Sequence[str] = (),
        branch: str = "",
    ) -> Report:
        """A page of charts of the run, as a notebook and any browser show it:
        the steps that are committed by now, their metrics, the statistics of
        their leaves, differences, costs. From records alone.

        Parameters
        ----------
        keys : sequence of str, optional
            Globs: only these leaves.
        histograms : sequence of str, optional
            Globs: the arrays of these names are read, for their histograms.
        branch : str, optional
            The steps of this branch.

        Returns
        -------
        Report

        Raises
        ------
        NotFoundError
            There are no steps, no such branch, or nothing of that name.
        Error
            The package was built without Chart.js; the message says what to
            install.

        Examples
        --------
        >>> store.report().save(tmp / "run.html")
        """
        return make_report(
            cast(Any, self).path, branch, keys, histograms
        )
