-- specs/01-data-model-and-adding.md#2.9: the distance between two priorities in the set prioritized.
local PRIORITY_STEP = 4294967296
