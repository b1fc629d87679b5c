"""Sphinx settings. The pages are Markdown, and readable as such; `make docs` builds them."""

project = "lfopt"
copyright = "the authors of lfopt"  # noqa: A001
extensions = ["myst_parser"]
myst_heading_anchors = 4
myst_enable_extensions = ["colon_fence"]
html_theme = "alabaster"
html_theme_options = {
    "description": "Layer-fusion optimizer for accelerators",
    "page_width": "1240px",
    "font_size": "16px",
    "code_font_size": "0.8em",
    "body_max_width": "none",
    "fixed_sidebar": True,
}
html_show_sourcelink = False
exclude_patterns = ["pictures"]
highlight_language = "none"
