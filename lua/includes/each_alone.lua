-- Call a function for one job of several; an error is that job's: a list of its text, as no reply of a single call is.
local function alone_or_error(job_function, ...)
  local passed, reply = pcall(job_function, ...)
  if passed then
    return reply
  end
  return { type(reply) == 'table' and reply.err or tostring(reply) }
end
