--- step: job

-- As arguments of HMGET: the record `stored`.
job, 'name', 'parentKey', 'parent', 'deid', 'atm', 'defa'
