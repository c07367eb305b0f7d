"""Profiles: of our scripts, and of texts that were found; reading built files without showing them."""

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from bullmq_protocol.command import Batch, Command, Script
from bullmq_protocol.commands.adding import add_job, add_standard_job
from bullmq_protocol.commands.jobs import get_job, update_data
from bullmq_protocol.commands.locks import move_stalled_jobs_to_wait
from bullmq_protocol.commands.queues import is_maxed
from bullmq_protocol.common.keys import QueueKeys
from bullmq_protocol.common.switches import (
    FLEET_SWITCHES,
    STRICT_SWITCHES,
    V5_81_SWITCHES,
    V6_7_SWITCHES,
    Switches,
)
from bullmq_protocol.errors import UsageError
from bullmq_protocol.model.job import NewJob, prepare
from bullmq_protocol.model.options import JobOptions
from bullmq_protocol.net.merge import merged
from bullmq_protocol.scripts._lua import OUR_SCRIPTS, SCRIPTS
from bullmq_protocol.scripts._lua_later import LATER_SCRIPTS
from bullmq_protocol.scripts._lua_switched import COMMANDS, INCLUDES
from bullmq_protocol.scripts.packing import Packer
from bullmq_protocol.scripts.profile import (
    FLEET,
    STRICT,
    V5_81,
    V6_7,
    Profile,
    ScriptText,
    profile_of,
    read_package_version,
    read_script_module,
    switched,
)
from lua import build

K = QueueKeys.of("q")
SECRET = "return redis.call('PING')"


def found(**changes: ScriptText | None) -> dict[str, ScriptText]:
    texts = {name: ScriptText(script.keys, f"{SECRET} -- {name}") for name, script in SCRIPTS.items()}
    texts.update({name: text for name, text in changes.items() if text is not None})
    return {name: text for name, text in texts.items() if changes.get(name, text) is not None}


def test_source_of_texts() -> None:
    source = profile_of("theirs", found(another=ScriptText(1, "x")))
    text = f"{SECRET} -- isMaxed"
    assert source.scripts.keys() == SCRIPTS.keys()
    assert STRICT.scripts.keys() == {*SCRIPTS, *OUR_SCRIPTS}
    assert (source.batches, STRICT.batches) == (False, True)
    assert source.scripts["isMaxed"].source == text
    assert source.scripts["isMaxed"].sha1 == hashlib.sha1(text.encode()).hexdigest()
    assert source.label == "theirs"
    assert len(source.digest) == 64
    assert source.digest != STRICT.digest
    assert source.digest == profile_of("other label", found()).digest
    assert source.digest != profile_of("theirs", found(isMaxed=ScriptText(2, "x"))).digest


def test_no_text_is_shown() -> None:
    source = profile_of("theirs", found())
    command = source.applied(is_maxed(K))
    for value in (source, source.scripts["isMaxed"], command, Batch((command,))):
        assert "redis" not in repr(value)
    assert repr(source) == f"Profile('theirs', digest='{source.digest}', scripts={len(SCRIPTS)})"


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
        profile_of("theirs", texts)
    assert SECRET not in str(caught.value)


def test_steps_get_the_scripts_of_their_source() -> None:
    source = profile_of("theirs", found())
    theirs = source.applied(is_maxed(K))
    assert theirs.script is source.scripts["isMaxed"]
    assert theirs.wire()[:2] == ("EVALSHA", source.scripts["isMaxed"].sha1)
    assert (theirs.keys, theirs.args) == (is_maxed(K).keys, is_maxed(K).args)
    plain = get_job(K, "7")
    assert source.applied(plain) is plain
    assert STRICT.applied(is_maxed(K)) == is_maxed(K)
    batch = source.applied(Batch((plain, update_data(K, "7", "{}")), atomic=True))
    assert batch.atomic
    assert [each.script for each in batch.commands] == [None, source.scripts["updateData"]]


def test_scripts_of_others_stay() -> None:
    own: Command[Any] = is_maxed(K)
    assert Profile("empty", {}).applied(own) is own


LIVE = Switches(stalled_exemption="live-scheduler")


def test_a_switch_changes_the_scripts_that_it_is_about() -> None:
    profile = switched("live", LIVE)
    changed = {name for name, script in profile.scripts.items() if script is not STRICT.scripts.get(name, script)}
    assert changed == {"extendLocks", "moveStalledJobsToWait"}
    assert (profile.label, profile.batches, profile.switches) == ("live", True, LIVE)
    assert profile.digest != STRICT.digest
    own = QueueKeys.of("q", switches=LIVE)
    check = move_stalled_jobs_to_wait(own, max_stalled_count=1, now=0, interval_ms=1)
    assert check.keys[-2:] == (K.events, K.repeat)
    applied = profile.applied(check)
    assert applied.script is not None and applied.script.keys == len(applied.keys) == 9
    assert applied.wire()[1] == hashlib.sha1(applied.script.source.encode()).hexdigest()
    plain = update_data(K, "7", "{}")
    assert profile.applied(plain) is plain


def test_commands_go_together_with_the_scripts_of_their_profile() -> None:
    many = Script("addMany", "0" * 40, 11, "own")
    profile = replace(switched("live", LIVE), scripts={**STRICT.scripts, "addMany": many})
    jobs = [add_standard_job(K, prepare(K, NewJob(name), now_ms=1)) for name in ("a", "b")]
    adds = [profile.applied(job) for job in jobs]
    assert adds[0].script == replace(STRICT.scripts["addStandardJob"], together=many)
    assert adds[0].merge is not None and adds[1].merge is not None and adds[0].merge.into is adds[1].merge.into
    assert merged(adds) == replace(merged(jobs), script=many)


def test_what_goes_together_goes_into_the_scripts_of_its_profile() -> None:
    add = add_job(K, prepare(K, NewJob("n", {"a": 1}, JobOptions()), now_ms=7))
    assert add.merge is not None
    assert profile_of("theirs", found()).applied(add).merge is None
    assert STRICT.applied(add) is add
    assert Profile("alone", STRICT.scripts).applied(add).merge is None
    many = STRICT.scripts["addMany"]
    own = Script(name="addMany", sha1="other", keys=many.keys, source="return 1")
    profile = Profile("own", {**STRICT.scripts, "addMany": own}, batches=True)
    applied = profile.applied(add)
    assert add.script is not None and applied.script == replace(add.script, together=own)
    assert (merged([applied, applied]).script, merged([add, add]).script) == (own, many)
    assert merged([applied, applied]).args == merged([add, add]).args
    assert profile.applied(applied) == applied
    assert Profile("none", {}, batches=True).applied(add).merge is None


NAMED = {"strict": STRICT_SWITCHES, "fleet": FLEET_SWITCHES, "6.7": V6_7_SWITCHES, "5.81": V5_81_SWITCHES}


def _turned() -> dict[str, tuple[Switches, str]]:
    """The switches of the profiles, and these with one switch at another value."""
    found = {label: (switches, "") for label, switches in NAMED.items()}
    for label, switches in NAMED.items():
        for field in Switches.__struct_fields__:
            for value in {getattr(other, field) for other in NAMED.values()} - {getattr(switches, field)}:
                turned = msgspec.structs.replace(switches, **{field: value})
                found[f"{label} but {field} {value}"] = turned, field
    return found


TURNED = _turned()


@pytest.fixture(scope="module", autouse=True)
def sources() -> Iterator[None]:
    with build.reading():
        yield


_TURNED_ONCE = [pytest.param(label, marks=pytest.mark.slow) for label in TURNED if label not in NAMED]


@pytest.mark.parametrize("label", [*NAMED, *_TURNED_ONCE])
def test_a_profile_packs_what_the_build_packs(label: str) -> None:
    switches, field = TURNED[label]
    profile = switched(label, switches)
    for name in COMMANDS:
        if not field or field in build.switches(name):
            assert profile.scripts[name].source == build.packaged(name, chosen=switches.chosen), name
            assert profile.scripts[name].keys == build.key_count(name, chosen=switches.chosen), name


def test_profiles_have_the_commands_of_later_versions_too() -> None:
    for profile in (FLEET, V6_7, V5_81):
        assert profile.scripts.keys() == {*SCRIPTS, *OUR_SCRIPTS, *LATER_SCRIPTS}
        assert len(profile.scripts) == len(list(profile.scripts))
        assert profile.batches
    assert {FLEET.label, V6_7.label, V5_81.label} == {"fleet", "6.7", "5.81"}
    assert (FLEET.switches, V6_7.switches, V5_81.switches) == (FLEET_SWITCHES, V6_7_SWITCHES, V5_81_SWITCHES)
    assert not STRICT.scripts.keys() & LATER_SCRIPTS.keys()
    with pytest.raises(KeyError):
        FLEET.scripts["noSuchScript"]
    own = STRICT.scripts["isMaxed"]
    fresh = switched("fresh", FLEET_SWITCHES).scripts
    assert (fresh.get("noSuchScript"), fresh.get("noSuchScript", own), fresh.get("isMaxed")) == (None, own, own)
    first = fresh.get("moveStalledJobsToWait")
    assert first is not None and first.keys == 9 and fresh["moveStalledJobsToWait"] is first


def test_no_switch_is_strict() -> None:
    profile = switched("none", Switches())
    assert {name: profile.scripts[name] for name in STRICT.scripts} == STRICT.scripts
    assert Switches() == STRICT.switches
    assert STRICT.switches.changed == frozenset()
    assert LIVE.changed == {"stalled_exemption live-scheduler"}


def test_what_holds_of_switches() -> None:
    text = Switches(merging_pause=True, age_retention_limit=1000, write_nrjid=False, waiting_layout="v6").chosen
    held = {"merging_pause", "age_retention_limit", "age_retention_limit 1000", "waiting_layout", "waiting_layout v6"}
    assert held <= text
    assert not {"write_nrjid", "write_nrjid False", "waiting_layout v5", "reschedule"} & text
    assert "age_retention_limit" not in Switches().chosen


def test_every_block_is_of_a_value_that_can_be_had() -> None:
    known = frozenset().union(*(each.chosen for each, _ in TURNED.values()))
    for text in (*COMMANDS.values(), *INCLUDES.values()):
        for line in text.splitlines():
            match = build.BOUND.fullmatch(line)
            for field, *values in build.asked(match[2] or "") if match else ():
                assert field not in build.NAMES or ({f"{field} {value}" for value in values} or {field}) <= known


def test_blocks_are_taken_in_blocks() -> None:
    commands = {
        "one": (
            "--- keys: wait\n--- flags: batch\n--- when a x y\n--- keys: meta\n--- end\n--- args: id\n--- include in\n"
            "--- when a\n--- unless b\nx(KEYS.wait)\n--- elsewhen batch\nx(ARGV.id)\n--- else\nnever()\n--- end\n"
            "--- elsewhen d or b or e f\nz()\n--- elsewhen c\nnever()\n--- else\nlast(KEYS.wait)\n--- end\n"
        ),
    }
    includes = {
        "in": "--- when b\n--- include more\n--- else\n--- lazy more: f, g\n--- end\n--- include leaf\nin_()\n",
        "more": "--- include leaf\n--- lazy deep: d\nmore()\n",
        "deep": "--- include leaf\n--- include low\ndeep()\n",
        "low": "low()\n",
        "leaf": "leaf()\n",
    }

    def packed(*chosen: str) -> tuple[int, list[str]]:
        keys, text = Packer(commands, includes, frozenset(chosen)).packed("one")
        return keys, text.splitlines()

    lazy = ["local function load_deep()", "low()", "deep()", "return d", "end"]
    loaded = ["leaf()", "local function load_more()", *lazy, "more()", "return f, g", "end", "in_()"]
    assert packed() == (1, [*loaded, "last(KEYS[1])"])
    assert packed("a", "a y") == (2, [*loaded, "x(KEYS[1])"])
    made = ["leaf()", *lazy, "more()", "in_()"]
    assert packed("b", "c") == (1, [*made, "z()"])
    assert packed("a", "b") == (1, [*made, "x(ARGV[1])"])


@pytest.mark.parametrize(
    ("changed", "rule"),
    [
        ({"stalled_exemption": "none"}, "stalled_exemption: must be 'opts-repeat' or 'live-scheduler' (got 'none')"),
        ({"waiting_layout": "v7"}, "waiting_layout: must be 'v5' or 'adaptive' or 'v6' (got 'v7')"),
        ({"max_priority": 7}, "max_priority: must be 2097152 or 2097151 (got 7)"),
        ({"write_nrjid": 1}, "write_nrjid: must be False or True (got 1)"),
        ({"age_retention_limit": 1}, "age_retention_limit: must be None or 1000 (got 1)"),
    ],
)
def test_what_nothing_does_is_refused(changed: dict[str, Any], rule: str) -> None:
    with pytest.raises(UsageError) as caught:
        Switches(**changed)
    assert str(caught.value) == rule


def test_the_switches_are_those_of_the_specification() -> None:
    text = (Path(__file__).parents[2] / "specs" / "06-later-versions.md").read_text(encoding="utf-8")
    table = text.partition('<a id="sec-8-3"></a>')[2].partition('<a id="sec-8-4"></a>')[0]
    rows = [line.split("|")[1].strip() for line in table.splitlines() if line.startswith("| ")][1:]
    assert len(rows) == len(msgspec.structs.fields(Switches))


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
