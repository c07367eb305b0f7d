"""Letters: a Flask application under gunicorn, whose processes are forks of one that has loaded it.

`gunicorn -c python:examples.flask_gunicorn examples.flask_app:app`, and beside it
`bullmq-worker examples.flask_app:worker`. The server of the queue is that of `BULLMQ_URL`.
"""

import os
from typing import Any

from flask import Flask, Response, jsonify, request

from bullmq_protocol import JobFailedError, WaitTimeout
from bullmq_sync import Job, Queue, QueueEvents, Worker

PATIENCE_MS = 5_000

# A queue opens nothing before its first call. In the child of a fork it connects anew, also where the parent has used
# it; so it may be made here, for all threads of all processes.
queue = Queue[Any]("letters")
# That runs a thread, which a fork does not copy: each process starts one (`post_fork` in flask_gunicorn.py).
events = QueueEvents("letters")


def send(job: Job[dict[str, str]]) -> str:
    """Send a letter."""
    if "@" not in job.data["to"]:
        raise ValueError("no address")
    return f"sent to {job.data['to']}"


worker = Worker[dict[str, str]]("letters", send)
app = Flask(__name__)


@app.after_request
def sign(response: Response) -> Response:
    """Say which process has answered."""
    response.headers["X-Process"] = str(os.getpid())
    return response


@app.post("/letters")
def create() -> Any:
    """Add a job; say where to look for it."""
    job = queue.add("send", {"to": request.get_json()["to"]})
    return jsonify(id=job.id), 202, {"Location": f"/letters/{job.id}"}


@app.get("/letters/<job_id>")
def show(job_id: str) -> Any:
    """Wait for the end of a job, for five seconds."""
    job = queue.get_job(job_id)
    if job is None:
        return jsonify(error="no such letter"), 404
    try:
        return jsonify(state="completed", result=job.wait_until_finished(events, PATIENCE_MS))
    except JobFailedError as error:
        return jsonify(state="failed", reason=error.reason)
    except WaitTimeout:
        return jsonify(state=job.get_state())
