"""The programs of a shell: `bullmq-worker`, which runs workers. Needs `pip install 'bullmq-protocol[cli]'`.

`entry` takes the signals over and does nothing else before; `command` reads options, `load` finds the workers, `serve`
runs them, `processes` runs several processes of them, `probes` answers for their health, and `logs` sets up logging.
"""
