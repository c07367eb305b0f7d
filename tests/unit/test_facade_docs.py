"""The docstrings of the facade name every parameter, what comes back and what is raised, and have an example each."""

import ast
import doctest
import inspect
import io
import re
from itertools import pairwise
from pathlib import Path

import bullmq_anyio
import bullmq_protocol
import bullmq_sync
from bullmq_protocol import (
    Backoff,
    ClusterOptions,
    ConnectionOptions,
    CronError,
    Deduplication,
    FlowJob,
    FlowNode,
    JobOptions,
    KeepJobs,
    Limiter,
    Limits,
    NewJob,
    ParentRef,
    RepeatOptions,
    SentinelOptions,
    Telemetry,
    WorkerOptions,
    errors,
)
from bullmq_protocol.commands.queues import QueueHasActiveJobs
from bullmq_protocol.testing.recording import Unanswered
from tests.support.docstrings import FUNCTIONS, KIT, documented, entries, examples, sections
from tools import twin

# What callers make, or are given, besides the objects of the facade.
OPTIONS = (
    *(Backoff, Deduplication, FlowJob, FlowNode, JobOptions, KeepJobs, Limiter, Limits, NewJob, ParentRef),
    *(ClusterOptions, ConnectionOptions, RepeatOptions, SentinelOptions, Telemetry, WorkerOptions),
)
ERRORS = (
    *(kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, errors.BullMQError)),
    *(CronError, QueueHasActiveJobs),
)

_ROOT = Path(__file__).parents[2]
_ALL = list(documented())
_CALLED = [(each, each.signature) for each in _ALL if each.signature is not None]
# Those of the test kit: they hold nothing but their text.
_RAISED = {kind.__name__ for kind in (*ERRORS, AssertionError, Unanswered)}
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
        each.label: sorted(entries(each.text, "Args").keys() ^ parameters(signature))
        for each, signature in _CALLED
        if entries(each.text, "Args").keys() != parameters(signature)
    }
    assert wrong == {}


def test_every_default_is_said() -> None:
    silent = [
        f"{each.label}: {name}"
        for each, signature in _CALLED
        for name, parameter in signature.parameters.items()
        if parameter.default is not inspect.Parameter.empty
        and not re.search(r"\bdefaults?\b", entries(each.text, "Args").get(name, ""))
    ]
    assert silent == []


def test_durations_have_a_unit() -> None:
    units = re.compile(r"\b(milliseconds|seconds)\b|`lock_duration`")
    silent = [
        f"{each.label}: {name}"
        for each, signature in _CALLED
        for name, parameter in signature.parameters.items()
        if re.search(r"\b(Duration|Millis)\b", str(parameter.annotation))
        and not units.search(entries(each.text, "Args").get(name, ""))
    ]
    assert silent == []


def test_what_comes_back_and_what_is_raised_is_named() -> None:
    silent = [
        each.label
        for each, signature in _CALLED
        if (each.name or each.kind in (*FUNCTIONS, *KIT))
        and signature.return_annotation not in ("None", None)
        and "Returns" not in sections(each.text)
        and not _SAYS_WHAT_COMES_BACK.match(each.text)
    ]
    assert silent == []
    unknown = {each.label: entries(each.text, "Raises").keys() - _RAISED for each in _ALL}
    assert {label: names for label, names in unknown.items() if names} == {}


def test_everything_has_a_sentence_and_an_example_but_for_properties() -> None:
    assert [each.label for each in _ALL if not each.text] == []
    without = [each.label for each in _ALL if not each.is_property and not examples(each.text)]
    # One takes over the signals of the process, one needs an npm package.
    assert {label.rpartition(".")[2] for label in without} == {"run_workers", "bullmq_scripts"}


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
            (entries(text, "Args").keys(), entries(text, "Raises").keys(), sections(text).get("Examples"))
            for text in (own, other)
        ]
        if shown[0] != shown[1]:
            wrong.append(each.label)
    assert wrong == []


def test_every_option_and_every_value_of_an_error_is_named() -> None:
    unnamed: dict[str, list[str]] = {}
    for kind in (*OPTIONS, *ERRORS):
        text = inspect.getdoc(kind) if "__doc__" in vars(kind) else None
        assert text, kind
        if kind in ERRORS:
            given = parameters(inspect.signature(kind)) if "__init__" in vars(kind) else set()
        else:
            given = set(inspect.signature(kind).parameters)
        found = entries(text, "Args").keys() | attributes(kind)
        if given != found:
            unnamed[kind.__name__] = sorted(given ^ found)
        if unknown := entries(text, "Raises").keys() - _RAISED:
            unnamed[kind.__name__] = sorted(unknown)
    assert unnamed == {}


def test_examples_of_options_and_errors_show_what_they_promise() -> None:
    names = {name: getattr(bullmq_protocol, name) for name in bullmq_protocol.__all__}
    shown = 0
    for kind in (*OPTIONS, *ERRORS):
        steps = examples(inspect.getdoc(kind) or "")
        test = doctest.DocTest(steps, {**names, **vars(errors)}, kind.__name__, None, None, None)
        report = io.StringIO()
        runner = doctest.DocTestRunner()
        assert runner.run(test, out=report.write).failed == 0, report.getvalue()
        shown += len(steps)
    assert shown > len(OPTIONS)


def attributes(kind: type) -> set[str]:
    """Return the fields of a class that have a docstring of their own."""
    body = ast.parse(inspect.getsource(kind)).body[0].body
    return {
        field.target.id
        for field, following in pairwise(body)
        if isinstance(field, ast.AnnAssign)
        and isinstance(field.target, ast.Name)
        and isinstance(following, ast.Expr)
        and isinstance(following.value, ast.Constant)
    }
