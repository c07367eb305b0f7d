"""Workers in child processes, one per core: the whole worker runs there, so a crash takes down nothing else.

`python -m examples.child_processes [URL]`. The parent adds the jobs, and ends its children with SIGTERM, which
`run_workers` takes as the wish to end in good order.
"""

import multiprocessing
import os
import sys
import time

from bullmq_sync import Job, Queue, QueueEvents, Worker, run_workers

CHILDREN = 2
JOBS = 20


def process(job: Job[int]) -> int:
    """Work for a while; return who did it."""
    time.sleep(0.02)
    return os.getpid()


def child(url: str) -> None:
    run_workers(Worker("squares", process, url, data_type=int))


def main(url: str) -> None:
    # Spawned, not forked: a copy of a process with threads and open connections is no sound one.
    context = multiprocessing.get_context("spawn")
    children = [context.Process(target=child, args=(url,)) for _ in range(CHILDREN)]
    for each in children:
        each.start()
    try:
        with Queue("squares", url, data_type=int) as queue, QueueEvents("squares", url) as events:
            while queue.get_workers_count() < CHILDREN:
                if any(each.exitcode is not None for each in children):
                    raise SystemExit("a child ended before it began to work; it said why")
                time.sleep(0.05)
            jobs = [queue.add("square", number) for number in range(JOBS)]
            workers = {job.wait_until_finished(events, timeout=60_000) for job in jobs}
    finally:
        for each in children:
            each.terminate()
        for each in children:
            each.join()
    ended = all(each.exitcode == 0 for each in children)
    print(f"{JOBS} jobs done by {len(workers)} children, which ended {'in good order' if ended else 'badly'}")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "redis://localhost")
