"""The docstrings of Monque's facade name every parameter, what comes back and what is raised, and have an example each;
docs/monque.md has each method, option, event and error."""

import doctest
import inspect
import io
import re
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import monque_anyio
import monque_protocol
import monque_sync
from bullmq_protocol import errors as bullmq_errors
from monque_protocol import commands, cursor, document, errors, events, options
from tests.support.docstrings import Documented, entries, examples, sections

_ROOT = Path(__file__).parents[2]
_PAGE = (_ROOT / "docs" / "monque.md").read_text(encoding="utf-8")
_SPEC = (_ROOT / "specs" / "monque.md").read_text(encoding="utf-8")
_PACKAGES: tuple[ModuleType, ...] = (monque_anyio, monque_sync)
_GIVEN = (options.JobRetention, options.SchedulerOptions, commands.Selector, commands.ListFilter, cursor.Sort)
_ERRORS = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, errors.MonqueError)]
_RAISED = {kind.__name__ for kind in _ERRORS} | {
    name for name, kind in vars(bullmq_errors).items() if isinstance(kind, type)
}


def documented() -> list[Documented]:
    found: list[Documented] = []
    for package in _PACKAGES:
        kind: Any = package.Monque
        found.append(Documented(package, "Monque", "", kind))
        members = {name: member for name, member in vars(kind).items() if not name.startswith("_")}
        found += [Documented(package, "Monque", name, member) for name, member in members.items()]
    return found


_ALL = documented()
_CALLED = [(each, each.signature) for each in _ALL if each.signature is not None]


def test_the_facade_is_found() -> None:
    assert {"monque_anyio.Monque.enqueue", "monque_sync.Monque", "monque_sync.Monque.is_healthy"} <= {
        each.label for each in _ALL
    }
    assert len(_ALL) == 2 * 25


def test_every_parameter_and_its_default_are_said_and_durations_have_a_unit() -> None:
    wrong: list[str] = []
    for each, signature in _CALLED:
        said = entries(each.text, "Args")
        wrong += [f"{each.label}: {name}" for name in said.keys() ^ (set(signature.parameters) - {"self"})]
        for name, parameter in signature.parameters.items():
            text = said.get(name, "")
            if parameter.default is not inspect.Parameter.empty and not re.search(r"\bdefaults?\b", text):
                wrong.append(f"{each.label}: the default of {name}")
            if "Millis" in str(parameter.annotation) and "milliseconds" not in text:
                wrong.append(f"{each.label}: the unit of {name}")
    for kind in _GIVEN:
        said = entries(inspect.getdoc(kind) or "", "Args")
        wrong += [f"{kind.__name__}: {name}" for name in said.keys() ^ set(kind.__struct_fields__)]
        wrong += [f"{kind.__name__}: the default of {name}" for name, text in said.items() if "default" not in text]
        for name, annotation in inspect.get_annotations(kind).items():
            if "Duration" in str(annotation) and "milliseconds" not in said[name] and "same" not in said[name]:
                wrong.append(f"{kind.__name__}: the unit of {name}")
    for error in _ERRORS:
        given = set(inspect.signature(error).parameters) if "__init__" in vars(error) else set()
        wrong += [f"{error.__name__}: {name}" for name in entries(inspect.getdoc(error) or "", "Args").keys() ^ given]
    assert wrong == []


def test_what_comes_back_and_what_is_raised_is_said() -> None:
    begins = re.compile(r"(Return|Count|Cancel|Make|Give|Delete|Add|Read)\b[^.]*?(\breturn\b|)")
    silent = [
        each.label
        for each, signature in _CALLED
        if each.name
        and signature.return_annotation not in ("None", None)
        and "Returns" not in sections(each.text)
        and not (each.text.startswith(("Return", "Count")) or re.search(r"\breturn\b|\bReturn\b", each.text))
    ]
    assert begins.match("Return it.")
    assert silent == []
    assert {name for each in _ALL for name in entries(each.text, "Raises")} <= _RAISED


def test_every_method_has_an_example_and_every_source_is_a_section() -> None:
    assert [each.label for each in _ALL if not each.text] == []
    assert [each.label for each in _ALL if not each.is_property and not examples(each.text)] == []
    anchors = set(re.findall(r'<a id="([\w-]+)"></a>', _SPEC))
    named = [found for each in _ALL for found in re.findall(r"specs/monque\.md#([\w-]+)", each.text)]
    assert len(named) > 30 and set(named) <= anchors


def test_both_packages_show_the_same_examples() -> None:
    texts = {(each.package, each.name): each.text for each in _ALL}
    for name in {each.name for each in _ALL}:
        ours, other = (sections(texts[package, name]).get("Examples", "") for package in _PACKAGES)
        assert re.sub(r"\basync (?=for|with)|\bawait ", "", ours) == other


@pytest.mark.parametrize("kind", _GIVEN)
def test_examples_of_what_is_given_show_what_they_promise(kind: type) -> None:
    steps = examples(inspect.getdoc(kind) or "")
    test = doctest.DocTest(steps, dict(vars(inspect.getmodule(kind) or kind)), kind.__name__, None, None, None)
    report = io.StringIO()
    assert steps and doctest.DocTestRunner().run(test, out=report.write).failed == 0, report.getvalue()


def test_every_event_and_everything_that_is_returned_is_described() -> None:
    returned = (monque_anyio.QueueView, monque_anyio.WorkerView, commands.QueueStats, document.Job)
    for kind in (*events.EVENTS, *returned, *_ERRORS):
        assert "__doc__" in vars(kind) and inspect.getdoc(kind), kind


def test_the_page_has_every_method_option_event_error_and_section() -> None:
    methods = {each.name for each in _ALL if each.name} - {"scheduler_instance_id"}
    named = set(re.findall(r"[`.(]([a-z_]+)\b", _PAGE))
    assert methods - named == set()
    assert {name for kind in _GIVEN for name in kind.__struct_fields__} - set(re.findall(r"`([a-z_]+)", _PAGE)) == set()
    words = set(re.findall(r"`([A-Z]\w+)`", _PAGE))
    assert {kind.__name__ for kind in (*events.EVENTS, *_ERRORS)} - words == set()
    # Each section of the specification that a user meets has a row.
    met = {f"sec-{number}" for number in (1, 2, 3, 4, 6, 7, 10, 11, 12, 14)} | {"sec-9-1", "sec-9-2"}
    met |= {f"sec-5-{number}" for number in range(1, 18)} | {f"sec-8-{number}" for number in range(1, 6)}
    assert met - set(re.findall(r"specs/monque\.md#(sec-[\d-]+)", _PAGE)) == set()


def test_every_test_that_the_page_names_is_there() -> None:
    names = set(re.findall(r"`(test_\w+)`", _PAGE))
    texts = [
        file.read_text(encoding="utf-8")
        for file in (*(_ROOT / "tests" / "monque").glob("*.py"), *(_ROOT / "tests" / "unit").glob("test_monque*.py"))
        if file.name != Path(__file__).name
    ]
    assert len(names) > 20
    assert [name for name in names if not any(f"def {name}(" in text for text in texts)] == []
    assert monque_protocol.__doc__
