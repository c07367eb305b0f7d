"use strict";
// BullMQ on Node, of any version: `NODE_PATH=<folder>/node_modules node conformance/adapters/bullmq.js`, or the folder as argument.
const path = require("node:path");
const readline = require("node:readline");

const modules = process.argv[2];
const load = (name) => require(modules ? path.resolve(modules, name) : name);
const { FlowProducer, Job, Queue, UnrecoverableError, Worker } = load("bullmq");
const { version } = load("bullmq/package.json");

const LOCK_MS = 30_000;
const STATES = ["waiting", "active", "delayed", "prioritized", "waiting-children", "completed", "failed", "paused"];
let connection = null;
let flows = null;
const queues = new Map();
const workers = new Map();
const taken = new Map();
let tokens = 0;

function queue(name) {
  if (!queues.has(name)) queues.set(name, new Queue(name, { connection }));
  return queues.get(name);
}

function worker(name) {
  if (!workers.has(name)) {
    const made = new Worker(name, null, { connection, autorun: false, lockDuration: LOCK_MS });
    made.on("error", (error) => process.stderr.write(`${error.message}\n`));
    workers.set(name, made);
  }
  return workers.get(name);
}

async function stored(name, id) {
  const job = await Job.fromId(queue(name), id);
  if (!job) throw new Error(`no job ${id}`);
  return job;
}

async function held(name, id, token) {
  const job = taken.get(`${name} ${token}`);
  return job && job.id === id ? job : stored(name, id);
}

const ids = ({ job, children }) => ({ id: job.id, children: (children ?? []).map(ids) });
const none = (value) => (value === undefined ? null : value);

const calls = {
  hello: ({ host, port, db }) => {
    connection = { host, port, db, maxRetriesPerRequest: null };
    const can = Object.keys(calls).filter((name) => name !== "hello" && name !== "reset");
    return { client: "BullMQ on Node", version, can };
  },
  reset: async () => {
    await Promise.all([...workers.values(), ...queues.values(), ...(flows ? [flows] : [])].map((each) => each.close()));
    flows = null;
    [queues, workers, taken].forEach((each) => each.clear());
  },
  // The queue's own write to its meta key is done when this returns.
  open: async (a) => {
    await queue(a.queue).waitUntilReady();
    await queue(a.queue).getVersion();
  },
  add: async (a) => (await queue(a.queue).add(a.name, a.data, a.opts)).id,
  add_bulk: async (a) => (await queue(a.queue).addBulk(a.jobs)).map((job) => job.id),
  flow: async (a) => {
    flows ??= new FlowProducer({ connection });
    return ids(await flows.add(a.flow));
  },
  take: async (a) => {
    const token = `${process.pid}:${process.hrtime.bigint()}:${++tokens}`;
    const job = await worker(a.queue).getNextJob(token, { block: false });
    if (!job) return null;
    taken.set(`${a.queue} ${token}`, job);
    return { id: job.id, token, name: job.name, data: job.data };
  },
  finish: async (a) => void (await (await held(a.queue, a.id, a.token)).moveToCompleted(a.value, a.token, false)),
  fail: async (a) => {
    const error = a.fatal ? new UnrecoverableError(a.reason) : new Error(a.reason);
    await (await held(a.queue, a.id, a.token)).moveToFailed(error, a.token, false);
  },
  delay: async (a) => void (await (await held(a.queue, a.id, a.token)).moveToDelayed(a.until, a.token)),
  release: async (a) => void (await (await held(a.queue, a.id, a.token)).moveToWait(a.token)),
  wait_for_children: async (a) => (await held(a.queue, a.id, a.token)).moveToWaitingChildren(a.token),
  extend_lock: async (a) => Boolean(await (await held(a.queue, a.id, a.token)).extendLock(a.token, a.duration)),
  promote: async (a) => void (await (await stored(a.queue, a.id)).promote()),
  retry: async (a) => void (await (await stored(a.queue, a.id)).retry(a.state)),
  change_priority: async (a) =>
    void (await (await stored(a.queue, a.id)).changePriority({ priority: a.priority, lifo: a.lifo })),
  change_delay: async (a) => void (await (await stored(a.queue, a.id)).changeDelay(a.delay)),
  remove: async (a) => Boolean(await queue(a.queue).remove(a.id, { removeChildren: a.remove_children })),
  update_data: async (a) => void (await (await stored(a.queue, a.id)).updateData(a.data)),
  progress: async (a) => void (await (await stored(a.queue, a.id)).updateProgress(a.progress)),
  log: async (a) => (await stored(a.queue, a.id)).log(a.row),
  clear_logs: async (a) => void (await (await stored(a.queue, a.id)).clearLogs(a.keep)),
  remove_parent: async (a) => (await stored(a.queue, a.id)).removeChildDependency(),
  remove_children: async (a) => void (await (await stored(a.queue, a.id)).removeUnprocessedChildren()),
  job: async (a) => {
    const job = await Job.fromId(queue(a.queue), a.id);
    if (!job) return null;
    return {
      name: job.name, data: job.data, progress: job.progress, returnvalue: job.returnvalue,
      failedReason: none(job.failedReason), attemptsMade: job.attemptsMade, attemptsStarted: job.attemptsStarted,
      delay: job.delay, priority: job.priority, timestamp: job.timestamp, processedOn: none(job.processedOn),
      finishedOn: none(job.finishedOn), parentKey: none(job.parentKey), stacktraces: job.stacktrace.length,
    };
  },
  state: (a) => queue(a.queue).getJobState(a.id),
  counts: (a) => queue(a.queue).getJobCounts(...STATES),
  priorities: (a) => queue(a.queue).getCountsPerPriority(a.priorities),
  jobs: async (a) => (await queue(a.queue).getJobs(a.states, a.start, a.end, a.asc)).filter(Boolean).map((job) => job.id),
  logs: (a) => queue(a.queue).getJobLogs(a.id),
  dependencies: async (a) => {
    const found = await (await stored(a.queue, a.id)).getDependencies();
    return { processed: found.processed ?? {}, unprocessed: (found.unprocessed ?? []).sort() };
  },
  children_values: async (a) => (await stored(a.queue, a.id)).getChildrenValues(),
  pause: (a) => queue(a.queue).pause(),
  resume: (a) => queue(a.queue).resume(),
  is_paused: (a) => queue(a.queue).isPaused(),
  drain: (a) => queue(a.queue).drain(a.delayed),
  clean: (a) => queue(a.queue).clean(a.grace, a.limit, a.state),
  obliterate: (a) => queue(a.queue).obliterate({ force: a.force }),
  retry_jobs: (a) => queue(a.queue).retryJobs({ state: a.state }),
  promote_jobs: (a) => queue(a.queue).promoteJobs(),
  set_concurrency: async (a) => void (await queue(a.queue).setGlobalConcurrency(a.concurrency)),
  remove_deduplication: async (a) => Boolean(await queue(a.queue).removeDeduplicationKey(a.id)),
  deduplication_job: async (a) => none(await queue(a.queue).getDeduplicationJobId(a.id)),
  upsert_scheduler: async (a) => none((await queue(a.queue).upsertJobScheduler(a.id, a.repeat, a.template))?.id),
  schedulers: (a) => queue(a.queue).getJobSchedulers(),
  remove_scheduler: (a) => queue(a.queue).removeJobScheduler(a.id),
};

(async () => {
  for await (const line of readline.createInterface({ input: process.stdin })) {
    const { n, call, args } = JSON.parse(line);
    let answer;
    try {
      answer = { result: none(await calls[call](args)) };
    } catch (error) {
      answer = { error: String(error?.message), ...(Number.isInteger(error?.code) ? { code: error.code } : {}) };
    }
    process.stdout.write(`${JSON.stringify({ n, ...answer })}\n`);
  }
  await calls.reset();
})();
