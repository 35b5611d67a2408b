# SPDX-License-Identifier: Apache-2.0
"""The configuration of Sphinx for the documentation site.

scripts/docs runs Sphinx on the pages that stage.py wrote. The Python API is
read from the sources in python/. The extension module and the frameworks are
mocked, so the site needs no build of the engine and shows the same everywhere.
"""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "python"))


def version_of_project() -> str:
    """Returns the version that CMakeLists.txt gives to the project."""
    text = (ROOT / "CMakeLists.txt").read_text(encoding="utf-8")
    match = re.search(r"project\(ckptree VERSION ([0-9.]+)", text)
    if match is None:
        raise ValueError("CMakeLists.txt names no version")
    return match[1]


project = "ckptree"
author = "The ckptree authors"
copyright = "The ckptree authors, Apache 2.0"
version = release = version_of_project()

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "numpydoc",
]
source_suffix = {".md": "markdown"}
root_doc = "index"
nitpicky = False  # Types of NumPy, JAX and PyTorch have no pages here.
# A class that an annotation names may be in two modules, as ours and Orbax's
# CheckpointManager: one of them is linked.
suppress_warnings = ["ref.python"]

# The captures of commands are plain text; code blocks name their language.
highlight_language = "text"
myst_heading_anchors = 6
myst_links_external_new_tab = False

# `name` in a docstring is code.
default_role = "literal"
autodoc_mock_imports = [
    "ckptree._engine",
    "flax",
    "jax",
    "jaxlib",
    "ml_dtypes",
    "msgpack",
    "optax",
    "orbax",
    "torch",
]
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_use_legacy_class_based = False
# Some signatures are made of several: no source has all of their defaults.
autodoc_preserve_defaults = False
autosummary_generate = False
numpydoc_show_class_members = False
numpydoc_class_members_toctree = False
python_maximum_signature_line_length = 72
add_module_names = True
smartquotes = False  # Quotation marks are code: "latest".
toc_object_entries_show_parents = "hide"

html_theme = "furo"
html_title = f"ckptree {version}"
html_copy_source = False
html_show_sourcelink = False
html_show_sphinx = False
html_last_updated_fmt = None
