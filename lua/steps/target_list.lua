--- step: paused, wait, set_aside

-- The list for new work, as target. paused: the field of meta, false if it is absent. call has to be there.
--- when waiting_layout adaptive
-- specs/06-later-versions.md#l1: the list that is empty is left empty
local target = wait
if paused and (call('EXISTS', set_aside) == 1 or call('EXISTS', wait) == 0) then
  --@set-aside
  target = set_aside
end
--- elsewhen waiting_layout v6
local target = wait
--- else
-- specs/02-worker-path.md#w1
local target = paused and set_aside or wait
--- end
