"""A collection of jobs in memory that executes the commands of `monque_protocol`, as a server does, one at a time."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Any

from monque_protocol.errors import DUPLICATE_KEY, CommandRefused

Document = dict[str, Any]


class Collection:
    """Executes commands. `make_id` makes ids of upserts, `roll` is what `$rand` gives."""

    def __init__(self, make_id: Callable[[], Any], roll: Callable[[], float] = lambda: 0.5) -> None:
        self.documents: list[Document] = []
        self.indexes: list[Document] = []
        self._make_id = make_id
        self._roll = roll

    def run(self, command: Mapping[str, Any]) -> Document:
        """Execute a command; return the reply. Raises `CommandRefused`."""
        command = copy.deepcopy(dict(command))
        kind = next(iter(command))
        return {
            "insert": self._insert,
            "findAndModify": self._find_and_modify,
            "update": self._update,
            "delete": self._delete,
            "find": self._find,
            "aggregate": self._aggregate,
            "createIndexes": self._create_indexes,
        }[kind](command)

    def _insert(self, command: Document) -> Document:
        for document in command["documents"]:
            self._add(document)
        return {"n": len(command["documents"]), "ok": 1}

    def _add(self, document: Document) -> None:
        if any(each["_id"] == document["_id"] for each in self.documents):
            raise CommandRefused("E11000 duplicate key error: _id", DUPLICATE_KEY)
        self._check_unique(document, None)
        self.documents.append({"_id": document["_id"], **document})

    def _check_unique(self, changed: Document, instead_of: Document | None) -> None:
        for index in self.indexes:
            if not index.get("unique") or not matches(changed, index["partialFilterExpression"]):
                continue
            for each in self.documents:
                if each is instead_of or not matches(each, index["partialFilterExpression"]):
                    continue
                if all(each.get(field) == changed.get(field) for field in index["key"]):
                    raise CommandRefused(f"E11000 duplicate key error index: {index['name']}", DUPLICATE_KEY)

    def _find_and_modify(self, command: Document) -> Document:
        found = self._sorted(command["query"], command.get("sort", {}))
        if not found:
            if not command.get("upsert"):
                return {"value": None, "ok": 1}
            made = {"_id": self._make_id(), **command["update"]["$setOnInsert"]}
            self._add(made)
            return {"value": copy.deepcopy(made) if command["new"] else None, "ok": 1}
        before = copy.deepcopy(found[0])
        self._apply(found[0], command["update"])
        return {"value": copy.deepcopy(found[0]) if command["new"] else before, "ok": 1}

    def _update(self, command: Document) -> Document:
        modified = 0
        for update in command["updates"]:
            found = [each for each in self.documents if matches(each, update["q"])]
            for document in found if update.get("multi") else found[:1]:
                modified += self._apply(document, update["u"])
        return {"n": modified, "nModified": modified, "ok": 1}

    def _apply(self, document: Document, update: Any) -> bool:
        changed = copy.deepcopy(document)
        for stage in update if isinstance(update, list) else [update]:
            for field, value in stage.get("$set", {}).items():
                changed[field] = self._value(value) if isinstance(update, list) else value
            for field in stage.get("$unset", ()):
                changed.pop(field, None)
        if changed == document:
            return False
        self._check_unique(changed, document)
        document.clear()
        document.update(changed)
        return True

    def _value(self, expression: Any) -> Any:
        match expression:
            case {"$add": [datetime() as at, more]}:
                return at + timedelta(milliseconds=int(self._value(more)))
            case {"$multiply": [first, second]}:
                return self._value(first) * self._value(second)
            case {"$rand": _}:
                return self._roll()
            case _:
                return expression

    def _delete(self, command: Document) -> Document:
        count = 0
        for delete in command["deletes"]:
            found = [each for each in self.documents if matches(each, delete["q"])]
            for document in found[: delete["limit"] or None]:
                self.documents.remove(document)
                count += 1
        return {"n": count, "ok": 1}

    def _sorted(self, query: Document, order: Mapping[str, int]) -> list[Document]:
        found = [each for each in self.documents if matches(each, query)]
        for field, direction in reversed(order.items()):
            found.sort(key=lambda each: (each.get(field) is not None, each.get(field)), reverse=direction < 0)
        return found

    def _find(self, command: Document) -> Document:
        found = self._sorted(command["filter"], command.get("sort", {}))[command.get("skip", 0) :]
        if command.get("limit"):
            found = found[: command["limit"]]
        fields = command.get("projection")
        batch = [{k: v for k, v in each.items() if fields is None or k == "_id" or k in fields} for each in found]
        return _cursor(copy.deepcopy(batch))

    def _aggregate(self, command: Document) -> Document:
        found, stages = self.documents, list(command["pipeline"])
        if "$match" in stages[0]:
            condition = stages.pop(0)["$match"]
            found = [each for each in found if matches(each, condition)]
        done = [
            (each["updatedAt"] - each["createdAt"]) / timedelta(milliseconds=1)
            for each in found
            if each["status"] == "completed"
        ]
        if "$facet" in stages[0]:
            counts: dict[str, int] = {}
            for each in found:
                counts[each["status"]] = counts.get(each["status"], 0) + 1
            return _cursor(
                [
                    {
                        "statusCounts": [{"_id": status, "count": count} for status, count in counts.items()],
                        "avgDuration": [{"_id": None, "avgMs": sum(done) / len(done)}] if done else [],
                        "total": [{"count": len(found)}] if found else [],
                    }
                ]
            )
        groups: dict[str, Document] = {}
        for each in found:
            empty = {"pending": 0, "processing": 0, "completed": 0, "failed": 0, "cancelled": 0, "total": 0}
            group = groups.setdefault(
                each["name"], {"_id": each["name"], **empty, "durationSum": 0, "durationCount": 0}
            )
            group[each["status"]] += 1
            group["total"] += 1
            if each["status"] == "completed":
                group["durationSum"] += (each["updatedAt"] - each["createdAt"]) / timedelta(milliseconds=1)
                group["durationCount"] += 1
        return _cursor(list(groups.values()))

    def _create_indexes(self, command: Document) -> Document:
        names = {index["name"] for index in self.indexes}
        self.indexes += [index for index in command["indexes"] if index["name"] not in names]
        return {"ok": 1}


def _cursor(batch: list[Document]) -> Document:
    return {"cursor": {"firstBatch": batch, "id": 0}, "ok": 1}


def matches(document: Mapping[str, Any], query: Mapping[str, Any]) -> bool:
    """Tell whether a document meets a condition."""
    return all(_meets(document, field, condition) for field, condition in query.items())


def _meets(document: Mapping[str, Any], field: str, condition: Any) -> bool:
    if field == "$or":
        return any(matches(document, each) for each in condition)
    if field == "$and":
        return all(matches(document, each) for each in condition)
    value = document.get(field)
    if not (isinstance(condition, Mapping) and any(key.startswith("$") for key in condition)):
        return bool(value == condition)
    return all(_holds(field in document, value, operator, operand) for operator, operand in condition.items())


def _holds(exists: bool, value: Any, operator: str, operand: Any) -> bool:
    match operator:
        case "$exists":
            return exists is operand
        case "$in":
            return value in operand
        case _ if value is None:
            return False
        case "$lt":
            return bool(value < operand)
        case "$lte":
            return bool(value <= operand)
        case "$gt":
            return bool(value > operand)
        case "$gte":
            return bool(value >= operand)
    raise NotImplementedError(operator)
