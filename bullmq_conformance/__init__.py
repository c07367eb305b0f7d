"""Say, case by case, where an implementation differs from BullMQ of a named version.

`bullmq-conformance scripts` runs a folder of Lua against the golden vectors, `bullmq-conformance client` a program that
reads requests as JSON lines against this library's own client, in the profile of that version.
"""

from importlib.util import find_spec

if _missing := [name for name in ("click", "hiredis", "hypothesis") if find_spec(name) is None]:
    raise ModuleNotFoundError(
        f"bullmq_conformance needs click, hiredis and hypothesis ({_missing[0]} is missing): "
        "pip install 'bullmq-protocol[conformance]'",
        name=_missing[0],
    )
