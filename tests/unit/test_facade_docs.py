"""The docstrings of the facade name every parameter, what comes back and what is raised, and have an example each."""

import inspect
import re
from pathlib import Path

import bullmq_anyio
import bullmq_sync
from bullmq_protocol import CronError, errors
from bullmq_protocol.commands.queues import QueueHasActiveJobs
from tests.support.docstrings import documented, entries, examples, sections
from tools import twin

_ROOT = Path(__file__).parents[2]
_ALL = list(documented())
_CALLED = [(each, each.signature) for each in _ALL if each.signature is not None]
_RAISED = {*vars(errors), CronError.__name__, QueueHasActiveJobs.__name__}
_SAYS_WHAT_COMES_BACK = re.compile(r"(Return|Count|Tell|List|Read) |[^.]* return ")


def parameters(signature: inspect.Signature) -> set[str]:
    return set(signature.parameters) - {"self"}


def test_the_facade_is_found() -> None:
    names = {each.label for each in _ALL}
    assert {"bullmq_anyio.Queue.add", "bullmq_anyio.Queue.call", "bullmq_sync.Job.cancelled"} <= names
    assert {each.package for each in _ALL} == {bullmq_anyio, bullmq_sync}
    assert any(parameters(signature) for _, signature in _CALLED)


def test_every_parameter_is_named_and_nothing_else() -> None:
    wrong = {
        each.label: sorted(entries(each.text, "Args") ^ parameters(signature))
        for each, signature in _CALLED
        if entries(each.text, "Args") != parameters(signature)
    }
    assert wrong == {}


def test_what_comes_back_and_what_is_raised_is_named() -> None:
    silent = [
        each.label
        for each, signature in _CALLED
        if each.name
        and signature.return_annotation not in ("None", None)
        and "Returns" not in sections(each.text)
        and not _SAYS_WHAT_COMES_BACK.match(each.text)
    ]
    assert silent == []
    unknown = {each.label: entries(each.text, "Raises") - _RAISED for each in _ALL}
    assert {label: names for label, names in unknown.items() if names} == {}


def test_everything_has_a_sentence_and_an_example_but_for_properties() -> None:
    assert [each.label for each in _ALL if not each.text] == []
    assert [each.label for each in _ALL if not each.is_property and not examples(each.text)] == []


def test_sources_are_places_in_the_specification() -> None:
    anchors = {
        f"specs/{file.name}#{anchor}"
        for file in (_ROOT / "specs").glob("*.md")
        for anchor in re.findall(r'<a id="([\w-]+)"></a>', file.read_text(encoding="utf-8"))
    }
    named = {
        each.label: re.findall(r"^Source: (.*)$", each.text, re.MULTILINE) for each in _ALL if "Source" in each.text
    }
    assert {label: found for label, found in named.items() if len(found) != 1 or found[0] not in anchors} == {}


def test_both_packages_document_the_same() -> None:
    texts = {(each.package, each.kind, each.name): each.text for each in _ALL}
    wrong: list[str] = []
    for each in _ALL:
        if each.package is not bullmq_anyio:
            continue
        own, other = each.text, texts[bullmq_sync, each.kind, "close" if each.name == "aclose" else each.name]
        for pattern, replacement in twin.WORDS:
            own = re.sub(pattern, replacement, own)
        shown = [
            (entries(text, "Args"), entries(text, "Raises"), sections(text).get("Example")) for text in (own, other)
        ]
        if shown[0] != shown[1]:
            wrong.append(each.label)
    assert wrong == []
