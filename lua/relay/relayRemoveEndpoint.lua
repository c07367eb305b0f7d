--- keys: nodes (not used)
--- args: base, node, endpoint
--- include relay_index

-- specs/06-later-versions.md#sec-4-14
local members = beginning_with('n|' .. ARGV.node .. '|' .. ARGV.endpoint .. '|')
drop(members)
return #members
