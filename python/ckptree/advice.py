# SPDX-License-Identifier: Apache-2.0
"""What the engine advises, as Python calls it."""

from __future__ import annotations

_IN_PYTHON = {
    "To go on from an older step delete the later ones, or save with force.": (
        "To go on from an older step delete the later ones by delete_after(), "
        "or leave them to their branch by fork_from(). overwrite=True replaces "
        "a step that is there; force=True saves one that is not, if the policy "
        "keeps it beside the later ones."
    ),
    "the item's name is longer than 128 bytes": (
        "the item's name is longer than 128 bytes: save the state below a "
        "shorter name, {'model': state}, names in it may be longer"
    ),
    "(SetPerRank, per_rank)": "(per_rank)",
}


# Of a step that is asked for by text, and words that it may be.
_NO_STEP = "' names no step: it is no number"
_WORDS = ("latest", "healthy")


def in_python(text: str) -> str:
    """A message of the engine.

    >>> in_python("what a rank has for itself is to be said (SetPerRank, "
    ...           "per_rank)")
    'what a rank has for itself is to be said (per_rank)'
    """
    for said, here in _IN_PYTHON.items():
        text = text.replace(said, here)
    before, found, after = text.partition(_NO_STEP)
    if found:
        text = f"{before}{found}{_meant(before.rpartition(chr(39))[2])}{after}"
    return text


def _meant(word: str) -> str:
    import difflib  # Takes as long as many modules do, and is rarely used.

    name, back, count = word.partition("~")
    meant = difflib.get_close_matches(name, _WORDS, n=1)
    return f"; did you mean {meant[0] + back + count!r}?" if meant else ""
