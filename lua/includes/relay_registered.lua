--- needs: KEYS.nodes
--- include call
--- include relay_keys

-- specs/06-later-versions.md#sec-4-14
local function is_registered(node)
  return call('ZSCORE', KEYS.nodes, node) and call('EXISTS', record_of(node)) == 1
end
