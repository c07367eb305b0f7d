"use strict";
// A worker of BullMQ. argv[2]: {"connection", "queue", "options"}. A job's data says what happens to it: see jobs.py.
const { Worker, UnrecoverableError, DelayedError } = require("bullmq");
const { say, serve } = require("./lines.js");

const { connection, queue, options } = JSON.parse(process.argv[2]);
const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

async function work(job, token) {
  const data = job.data;
  say({ event: "started", id: job.id, attempt: job.attemptsMade + 1, starts: job.attemptsStarted, at: Date.now() });
  for (const row of data.logs ?? []) await job.log(row);
  if (data.progress !== undefined) await job.updateProgress(data.progress);
  if (data.update !== undefined) await job.updateData({ ...data, ...data.update });
  if (data.work_ms) await sleep(data.work_ms);
  if (data.hangs && job.attemptsStarted <= data.hangs) await new Promise(() => {});
  if (data.postpones && job.attemptsStarted <= data.postpones) {
    await job.moveToDelayed(Date.now() + data.by_ms, token);
    throw new DelayedError();
  }
  if (data.fatal) throw new UnrecoverableError(data.fatal);
  if (data.fails && job.attemptsMade < data.fails) throw new Error(`failure ${job.attemptsMade + 1}`);
  return data.value === undefined ? null : data.value;
}

const worker = new Worker(queue, work, { connection, ...options });
worker.on("completed", (job) => say({ event: "completed", id: job.id, attempts: job.attemptsMade }));
worker.on("failed", (job, error) =>
  say({ event: "failed", id: job.id, attempts: job.attemptsMade, reason: error.message, final: !!job.finishedOn }));
worker.on("stalled", (id) => say({ event: "stalled", id }));
worker.on("error", (error) => say({ event: "error", message: error.message }));
worker.waitUntilReady().then(() => say({ event: "ready" }));

serve(
  {
    pause: () => worker.pause(),
    resume: () => worker.resume(),
  },
  async () => {
    await worker.close();
    say({ event: "closed" });
  },
);
