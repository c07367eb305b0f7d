"""Sources of scripts: ours, and texts that were found; reading built files without showing them."""

import hashlib
from typing import Any

import pytest

from bullmq_protocol.command import Batch, Command
from bullmq_protocol.commands.jobs import get_job, update_data
from bullmq_protocol.commands.queues import is_maxed
from bullmq_protocol.common.keys import QueueKeys
from bullmq_protocol.errors import UsageError
from bullmq_protocol.scripts._lua import OUR_SCRIPTS, SCRIPTS
from bullmq_protocol.scripts.source import (
    OWN,
    ScriptSource,
    ScriptText,
    read_package_version,
    read_script_module,
    script_source,
)

K = QueueKeys.of("q")
SECRET = "return redis.call('PING')"


def found(**changes: ScriptText | None) -> dict[str, ScriptText]:
    texts = {name: ScriptText(script.keys, f"{SECRET} -- {name}") for name, script in SCRIPTS.items()}
    texts.update({name: text for name, text in changes.items() if text is not None})
    return {name: text for name, text in texts.items() if changes.get(name, text) is not None}


def test_source_of_texts() -> None:
    source = script_source("theirs", found(another=ScriptText(1, "x")))
    text = f"{SECRET} -- isMaxed"
    assert source.scripts.keys() == SCRIPTS.keys()
    assert OWN.scripts.keys() == {*SCRIPTS, *OUR_SCRIPTS}
    assert (source.batches, OWN.batches) == (False, True)
    assert source.scripts["isMaxed"].source == text
    assert source.scripts["isMaxed"].sha1 == hashlib.sha1(text.encode()).hexdigest()
    assert source.label == "theirs"
    assert len(source.digest) == 64
    assert source.digest != OWN.digest
    assert source.digest == script_source("other label", found()).digest
    assert source.digest != script_source("theirs", found(isMaxed=ScriptText(2, "x"))).digest


def test_no_text_is_shown() -> None:
    source = script_source("theirs", found())
    command = source.applied(is_maxed(K))
    for value in (source, source.scripts["isMaxed"], command, Batch((command,))):
        assert "redis" not in repr(value)
    assert repr(source) == f"ScriptSource('theirs', digest='{source.digest}', scripts={len(SCRIPTS)})"


@pytest.mark.parametrize(
    ("texts", "rule"),
    [
        (found(isMaxed=None), "must hold isMaxed"),
        (found(isMaxed=ScriptText(3, SECRET)), "must have 2 keys for isMaxed, not 3"),
        ({}, "must hold addDelayedJob"),
    ],
)
def test_scripts_that_do_not_fit_are_refused(texts: dict[str, ScriptText], rule: str) -> None:
    with pytest.raises(UsageError, match=rule) as caught:
        script_source("theirs", texts)
    assert SECRET not in str(caught.value)


def test_steps_get_the_scripts_of_their_source() -> None:
    source = script_source("theirs", found())
    theirs = source.applied(is_maxed(K))
    assert theirs.script is source.scripts["isMaxed"]
    assert theirs.wire()[:2] == ("EVALSHA", source.scripts["isMaxed"].sha1)
    assert (theirs.keys, theirs.args) == (is_maxed(K).keys, is_maxed(K).args)
    plain = get_job(K, "7")
    assert source.applied(plain) is plain
    assert OWN.applied(is_maxed(K)) == is_maxed(K)
    batch = source.applied(Batch((plain, update_data(K, "7", "{}")), atomic=True))
    assert batch.atomic
    assert [each.script for each in batch.commands] == [None, source.scripts["updateData"]]


def test_scripts_of_others_stay() -> None:
    own: Command[Any] = is_maxed(K)
    assert ScriptSource("empty", "", {}).applied(own) is own


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("", "npm package"),
        ("[]", "npm package"),
        ("{}", "npm package"),
        ('{"name": "bull", "version": "5.62.0"}', "must be bullmq"),
        ('{"name": "bullmq", "version": "5.63.0"}', "must be bullmq 5.62.0"),
    ],
)
def test_other_packages_are_refused(text: str, rule: str) -> None:
    with pytest.raises(UsageError, match=rule):
        read_package_version(text)


def test_version_of_the_package() -> None:
    assert read_package_version('{"name": "bullmq", "version": "5.62.0"}') == "5.62.0"


FILE = """"use strict";
const content = `%s`;
exports.isMaxed = {
    name: 'isMaxed',
    content,
    keys: 2,
};
"""


@pytest.mark.parametrize(
    ("literal", "text"),
    [
        ("return 1", "return 1"),
        ("a\nb\r\nc", "a\nb\nc"),
        (r"a\nb\tc\\d\`e\${f", "a\nb\tc\\d`e${f"),
        (r"'\'' .. \"\"", "''' .. \"\""),
        ("cost: $5", "cost: $5"),
        ("name: 'x' keys: 9", "name: 'x' keys: 9"),
        ("a\\\nb", "ab"),
    ],
)
def test_template_literals_are_read_as_javascript_does(literal: str, text: str) -> None:
    assert read_script_module("isMaxed-2.js", FILE % literal) == ("isMaxed", ScriptText(2, text))


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("", "has no content"),
        (FILE % "secret ${x}", "no plain template literal"),
        (FILE % r"secret \x41", "no plain template literal"),
        ("const content = `secret", "no plain template literal"),
        ("const content = `secret`;", "once each"),
        (FILE % "secret" + "name: 'again'", "once each"),
        (FILE % "secret" + "keys: 2", "once each"),
        (FILE % "secret" + "content = `second`", "once each"),
    ],
)
def test_other_files_are_refused_without_showing_them(text: str, rule: str) -> None:
    with pytest.raises(UsageError, match=rule) as caught:
        read_script_module("isMaxed-2.js", text)
    assert caught.value.value == "isMaxed-2.js"
    assert "secret" not in str(caught.value)
