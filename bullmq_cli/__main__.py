"""`python -m bullmq_cli`: the same as `bullmq-worker`."""

from bullmq_cli.entry import main

if __name__ == "__main__":
    main()
