"use strict";
// Adds jobs and asks about queues, as a user of BullMQ would. argv[2]: {"connection", "max_len_events"}.
const { FlowProducer, Queue, UnrecoverableError, Worker } = require("bullmq");
const { say, serve } = require("./lines.js");

const { connection, max_len_events: maxLen } = JSON.parse(process.argv[2]);
const queues = new Map();
let flows = null;

function queue(name) {
  if (!queues.has(name)) {
    const made = new Queue(name, { connection, streams: { events: { maxLen } } });
    made.on("error", (error) => say({ event: "error", message: error.message }));
    queues.set(name, made);
  }
  return queues.get(name);
}

// Jobs are reported by their ids.
function plain(result) {
  return Array.isArray(result) && result.every((each) => each && each.queueQualifiedName) ? result.map((job) => job.id) : result;
}

const calls = {
  // Any method of Queue, or of the Job with this id; `options` is its last argument, if there is one.
  method: async ({ queue: name, id, method, args, options }) => {
    const target = id === undefined ? queue(name) : await queue(name).getJob(id);
    return plain(await target[method](...args, ...(options === undefined ? [] : [options])));
  },
  // The queue's own write to its meta key is done when this returns.
  open: async (args) => {
    await queue(args.queue).waitUntilReady();
    await queue(args.queue).getVersion();
  },
  add: async ({ queue: name, jobs }) => {
    const ids = [];
    for (const job of jobs) ids.push((await queue(name).add(job.name, job.data, job.opts)).id);
    return ids;
  },
  add_bulk: async ({ queue: name, jobs }) => (await queue(name).addBulk(jobs)).map((job) => job.id),
  // Lets a worker in this process finish this many jobs; those whose data says `fatal` fail for good.
  work_off: async ({ queue: name, count, ...options }) => {
    const work = async ({ data }) => {
      if (data.fatal) throw new UnrecoverableError(data.fatal);
      return data.value === undefined ? null : data.value;
    };
    const worker = new Worker(name, work, { connection, ...options });
    await new Promise((resolve) => {
      let left = count;
      const over = () => --left || resolve();
      worker.on("completed", over).on("failed", over);
    });
    await worker.close();
  },
  counts: (args) => queue(args.queue).getJobCounts(...(args.states ?? [])),
  workers: (args) => queue(args.queue).getWorkers(),
  pause: (args) => queue(args.queue).pause(),
  resume: (args) => queue(args.queue).resume(),
  is_paused: (args) => queue(args.queue).isPaused(),
  obliterate: (args) => queue(args.queue).obliterate({ force: !!args.force }),
  remove: (args) => queue(args.queue).remove(args.id),
  state: (args) => queue(args.queue).getJobState(args.id),
  job: async (args) => {
    const job = await queue(args.queue).getJob(args.id);
    if (!job) return null;
    const { logs } = await queue(args.queue).getJobLogs(args.id);
    return {
      id: job.id,
      name: job.name,
      data: job.data,
      opts: job.opts,
      progress: job.progress,
      returnvalue: job.returnvalue,
      failed_reason: job.failedReason ?? null,
      attempts_made: job.attemptsMade,
      attempts_started: job.attemptsStarted,
      delay: job.delay,
      priority: job.priority,
      timestamp: job.timestamp,
      processed_by: job.processedBy ?? null,
      stacktraces: job.stacktrace.length,
      logs,
    };
  },
  flow: async (args) => {
    flows ??= new FlowProducer({ connection });
    return (await flows.add(args.flow)).job.id;
  },
  upsert_scheduler: async (args) => {
    const job = await queue(args.queue).upsertJobScheduler(args.id, args.repeat, args.template);
    return job ? job.id : null;
  },
  schedulers: (args) => queue(args.queue).getJobSchedulers(),
  remove_scheduler: (args) => queue(args.queue).removeJobScheduler(args.id),
  remove_repeatable: (args) => queue(args.queue).removeRepeatable(args.job, args.repeat, args.id),
};

say({ event: "ready" });
serve(calls, async () => {
  await Promise.all([...queues.values()].map((made) => made.close()));
  if (flows) await flows.close();
});
