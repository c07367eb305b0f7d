"""How Sphinx builds the site: `make docs`. The root of the repository is the source folder, so that links work as they
do on GitHub.

Before each build the pages of the API reference are written, from the list of public names (`tools/public_names.py`),
and those of the golden vectors (`tools/vector_pages.py`).
"""

import builtins
import functools
import importlib
import inspect
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx import addnodes
from sphinx.addnodes import pending_xref
from sphinx.application import Sphinx
from sphinx.domains.python import ObjectEntry, PythonDomain
from sphinx.environment import BuildEnvironment
from sphinx.util import logging

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from tools import site, vector_pages  # noqa: E402
from tools.public_names import PACKAGES  # noqa: E402

log = logging.getLogger(__name__)

project = "bullmq-protocol"
author = "The bullmq-protocol authors"
copyright = author
root_doc = "docs/index"
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx_design"]
include_patterns = ["README.md", "CONTRIBUTING.md", "CHANGELOG.md", "docs/**", "specs/*.md", "lua/README.md"]
exclude_patterns = [
    ".*",
    "tests",
    "bench",
    "examples",
    "tools",
    "observability",
    "node_modules",
    "**/__pycache__",
]
nitpicky = True
default_role = "code"
language = "en"
highlight_language = "none"

html_theme = "furo"
html_title = "BullMQ for Python"
html_extra_path = ["_extra"]
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_js_files = ["filter.js"]
html_show_sphinx = False
html_copy_source = False
pygments_style, pygments_dark_style = "tango", "monokai"

myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 6
# ref.python: a name that stands in two modules of the reference; one of them is linked.
suppress_warnings = ["myst.header", "ref.python"]

autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
autodoc_class_signature = "mixed"
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 88
napoleon_numpy_docstring = False
napoleon_use_ivar = True
napoleon_use_rtype = False
napoleon_preprocess_types = False
# A member of these is Python's, msgspec's or pymongo's.
site_foreign_bases = (
    "BaseException,Exception,Struct,Enum,str,int,dict,tuple,Generic,Protocol,NamedTuple,Filter,BaseCommand"
)

_ELSEWHERE = re.compile(
    r"(?:_?pytest|anyio|bson|django|django_tasks|hypothesis|msgspec|opentelemetry|prometheus_client|pymongo|redis|trio)\b"
    r"|(?:Task|TaskResult|InvalidTask|TaskResultDoesNotExist|ImproperlyConfigured)$"
)
_PYTHON = "https://docs.python.org/3/library/"


# autodoc asks for the source of a member once for each class that inherits it.
inspect.getsource = functools.cache(inspect.getsource)


class _Python(PythonDomain):
    """Sphinx' own, which goes through all names for each type in a signature, also for `str`."""

    def find_obj(
        self, env: BuildEnvironment, modname: str, classname: str, name: str, type: str | None, searchmode: int = 0
    ) -> list[tuple[str, ObjectEntry]]:
        last = name.removesuffix("()").rpartition(".")[2]
        if last not in _last_parts(self, len(self.objects)):
            return []
        return super().find_obj(env, modname, classname, name, type, searchmode)


@functools.cache
def _last_parts(domain: PythonDomain, count: int) -> frozenset[str]:
    return frozenset(name.rpartition(".")[2] for name in domain.objects)


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_domain(_Python, override=True)
    app.connect("config-inited", lambda app, config: site.write_api(site_foreign_bases))
    app.connect("config-inited", lambda app, config: vector_pages.write())
    app.connect("source-read", lambda app, docname, source: source.__setitem__(0, site.prepared(docname, source[0])))
    # Before napoleon reads the sections.
    app.connect("autodoc-process-docstring", _write_rst, priority=400)
    app.connect("autodoc-process-docstring", _keep_colons, priority=600)
    app.connect("doctree-read", _know_anchors)
    app.connect("missing-reference", _resolve)
    app.connect("env-check-consistency", _miss_no_name)
    # Before Furo asks for the sidebar.
    app.connect("html-page-context", _shorten_sidebar, priority=400)
    app.connect("build-finished", _write_llms)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


_ATTRIBUTES = ("attribute", "data", "property")
_written: dict[str, list[str]] = {}


def _write_rst(app: Sphinx, what: str, name: str, obj: object, options: object, lines: list[str]) -> None:
    lines[:] = site.rst(lines, is_module=what == "module")
    if what in _ATTRIBUTES:
        _written[name] = list(lines)


def _keep_colons(app: Sphinx, what: str, name: str, obj: object, options: object, lines: list[str]) -> None:
    """Take back what napoleon makes of an attribute's first colon: a type."""
    if what in _ATTRIBUTES:
        lines[:] = _written.pop(name, lines)
    if what == "data" and lines and not isinstance(obj, type) and (type(obj).__doc__ or "").startswith(lines[0][:40]):
        # It has none of its own.
        lines.clear()


def _know_anchors(app: Sphinx, doctree: nodes.document) -> None:
    """Let links find the anchors that a page has as HTML."""
    docname = app.env.docname
    page = ROOT / f"{docname}.md"
    if page.exists():
        slugs = app.env.metadata[docname].setdefault("myst_slugs", {})
        for anchor in site.anchors(page.read_text("utf-8")):
            slugs.setdefault(anchor, (0, anchor, anchor))


def _resolve(app: Sphinx, env: BuildEnvironment, node: pending_xref, text: nodes.Element) -> nodes.Element | None:
    """Find what a signature names by its home, the standard library's pages, and what has no page here."""
    if node.get("refdomain") != "py":
        return None
    target = node["reftarget"]
    public = site.public_names()
    if target in public.homes and public.homes[target] != target:
        domain = env.domains.python_domain
        return domain.resolve_xref(env, node["refdoc"], app.builder, "obj", public.homes[target], node, text)
    first = target.partition(".")[0]
    if hasattr(builtins, target):
        page = (
            "exceptions"
            if isinstance(getattr(builtins, target), type) and issubclass(getattr(builtins, target), BaseException)
            else "functions"
        )
        return _external(f"{_PYTHON}{page}.html#{target}", text)
    if first in sys.stdlib_module_names and "." in target:
        module = target.rpartition(".")[0]
        return _external(f"{_PYTHON}{module}.html#{target}", text)
    # Python gives the text of some unions as one name.
    if target in ("None", "...") or "[" in target or _ELSEWHERE.match(target) or _is_private(target):
        return text
    return None


def _external(address: str, text: nodes.Element) -> nodes.Element:
    return nodes.reference("", "", text, internal=False, refuri=address)


def _is_private(target: str) -> bool:
    """Tell whether a name is one of ours that nobody is to import: its text stands without a link."""
    module, _, name = target.rpartition(".")
    if not module:
        return target in site.public_names().unqualified
    try:
        return module.split(".")[0] in PACKAGES and hasattr(importlib.import_module(module), name)
    except ModuleNotFoundError:
        return False


def _miss_no_name(app: Sphinx, env: BuildEnvironment) -> None:
    found = env.domains.python_domain.objects
    for name in site.public_names().listed:
        # A class stands with the arguments of its `__init__`.
        if site.place(name.removesuffix(".__init__")) not in found:
            log.warning("the public name %s is not in the reference", name)


def _write_llms(app: Sphinx, error: Exception | None) -> None:
    if error is None and app.builder.name == "html":
        titles: dict[str, Any] = {name: title.astext() for name, title in app.env.titles.items()}
        (Path(app.outdir) / "llms.txt").write_text(site.llms(titles), encoding="utf-8")


def _shorten_sidebar(app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: object) -> None:
    """Give the sidebar titles only: Sphinx copies every heading and name of all pages for each page, and drops them."""
    if "toctree" in context:
        context["toctree"] = functools.partial(_of_titles, app.env, context["toctree"])


def _of_titles(env: BuildEnvironment, toctree: Callable[..., str], **options: object) -> str:
    whole = env.tocs
    env.tocs = _titles(env)
    try:
        return toctree(**options)
    finally:
        env.tocs = whole


@functools.cache
def _titles(env: BuildEnvironment) -> dict[str, nodes.bullet_list]:
    """Return the tables of contents without headings, but for those that have pages below them."""
    found = {name: toc.deepcopy() for name, toc in env.tocs.items()}
    for toc in found.values():
        for item in list(toc.findall(nodes.list_item)):
            if item.parent is not toc and not any(item.findall(addnodes.toctree)):
                item.parent.remove(item)
    return found
