"""Options, flows, rules and records in BullMQ's public words, and as this library has them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from msgspec import UNSET

from bullmq_protocol.commands.schedulers import JobScheduler
from bullmq_protocol.model.flow import FlowNode
from bullmq_protocol.model.options import JobOptions, given, stored_of, stored_options_from
from bullmq_protocol.model.schedule import RepeatOptions

_STORED: Mapping[str, str] = {
    "keepLogs": "kl",
    "deduplication": "de",
    "failParentOnFailure": "fpof",
    "continueParentOnFailure": "cpof",
    "ignoreDependencyOnFailure": "idof",
    "removeDependencyOnFailure": "rdof",
}


def options_of(opts: Mapping[str, Any]) -> JobOptions:
    """Return options in BullMQ's public words as ours."""
    return stored_options_from({_STORED.get(name, name): value for name, value in opts.items()})


def node_of(flow: Mapping[str, Any]) -> FlowNode:
    """Return a flow in BullMQ's words as ours."""
    children = [node_of(child) for child in flow.get("children", ())]
    data = flow.get("data", UNSET)
    return FlowNode(
        flow["name"], flow["queueName"], data, options_of(flow.get("opts", {})), flow.get("prefix"), children
    )


def repeat_of(rule: Mapping[str, Any]) -> RepeatOptions:
    """Return the rule of a scheduler in BullMQ's words as ours."""
    return RepeatOptions(**{snake(name): value for name, value in rule.items()})


def scheduler_in_words(found: JobScheduler) -> dict[str, Any]:
    """Return a scheduler in BullMQ's words."""
    reported: dict[str, Any] = {"key": found.key, "name": found.name, "next": found.next_at}
    reported["iterationCount"] = found.iteration_count
    for name in ("limit", "startDate", "endDate", "tz", "pattern", "every", "offset"):
        reported[name] = getattr(found, snake(name))
    template: dict[str, Any] = {"data": found.data}
    if found.template_opts is not None:
        options = stored_of(given(found.template_opts))
        words = {short: name for name, short in _STORED.items()}
        template["opts"] = {words.get(name, name): value for name, value in options.items()}
        if found.template_opts.attempts is UNSET:
            del template["opts"]["attempts"]
    template = {name: value for name, value in template.items() if value is not None}
    return {name: value for name, value in {**reported, "template": template or None}.items() if value is not None}


def snake(name: str) -> str:
    """Return a name in camel case in snake case."""
    return re.sub("([A-Z])", lambda found: "_" + found[1].lower(), name)
