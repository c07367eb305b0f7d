"""`bullmq-ctl`: look at queues and administer them from a shell. On threads: `pip install 'bullmq-protocol[cli]'`.

`program` has the group of commands, the options that all have, and the exit codes; `session` holds the connection;
`show` and `asking` are what people see; `about_queues`, `about_jobs`, `about_workers`, `top` and `exporter` the
commands; `entry` begins.
"""
