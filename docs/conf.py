"""Sphinx: `make docs` writes docs/_build. The README and DESIGN.md are pages as they are; the reference comes from the docstrings."""

from kafkacore import __version__

project = "kafkacore"
author = "the kafkacore developers"
copyright = author
release = version = __version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
source_suffix = {".md": "markdown"}
exclude_patterns = ["_build"]
html_theme = "furo"

myst_heading_anchors = 3
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_use_ivar = True
# Many classes have a `topic`; links of the pages included here lead to files beside them.
suppress_warnings = ["ref.python", "myst.xref_missing"]
