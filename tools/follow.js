"use strict";
// Calls much of what BullMQ's classes can do, so that MONITOR shows how its scripts are called.
// Usage: NODE_PATH=<node_modules> node follow.js <port>. Prints the steps that failed, as JSON.
const bullmq = require("bullmq");

const connection = { host: "127.0.0.1", port: Number(process.argv[2]), maxRetriesPerRequest: null };
const failed = [];
const q = new bullmq.Queue("q", { connection });
const other = new bullmq.Queue("other", { connection });
const sleep = (ms) => new Promise((done) => setTimeout(done, ms));

// A method that this version does not have is a step that fails.
async function step(name, run) {
  try {
    await run();
  } catch {
    failed.push(name);
  }
}

// Works until as many jobs have ended, at most three seconds.
async function work(count, process, options = {}) {
  let left = count;
  const worker = new bullmq.Worker("q", process, { connection, drainDelay: 1, metrics: { maxDataPoints: 10 }, ...options });
  worker.on("error", () => {});
  await new Promise((done) => {
    const over = () => --left <= 0 && done();
    worker.on("completed", over).on("failed", over);
    setTimeout(done, 3000);
  });
  await worker.close();
}

// One worker takes all of them: a job reports over its connection.
const manual = new bullmq.Worker("q", null, { connection });
const take = (token) => manual.getNextJob(token, { block: false });

async function adding() {
  await step("add", () => q.add("a", { n: 1 }));
  await step("add lifo", () => q.add("a", {}, { lifo: true, removeOnComplete: { age: 1, count: 1 }, attempts: 2 }));
  await step("add delayed", () => q.add("a", {}, { delay: 60000 }));
  await step("add prioritized", () => q.add("a", {}, { priority: 3 }));
  for (const rule of [{}, { ttl: 60000 }, { ttl: 60000, extend: true, replace: true }, { keepLastIfActive: true }]) {
    await step("add deduplicated", () => q.add("a", {}, { delay: 1000, deduplication: { id: "d", ...rule } }));
  }
  await step("addBulk", () => q.addBulk([{ name: "a", data: {} }, { name: "b", data: {}, opts: { priority: 1 } }]));
  await step("flow", async () => {
    const flows = new bullmq.FlowProducer({ connection });
    const children = [{ name: "c", queueName: "other", opts: { jobId: "child", failParentOnFailure: true } }, { name: "d", queueName: "other" }];
    await flows.add({ name: "p", queueName: "q", opts: { jobId: "parent" }, children });
    await flows.close();
  });
  await step("repeat", () => q.add("r", {}, { repeat: { every: 60000 } }));
  await step("removeRepeatable", () => q.removeRepeatable("r", { every: 60000 }));
  await step("scheduler", () => q.upsertJobScheduler("s", { every: 50 }, { name: "s", data: { a: 1 } }));
  await step("cron", () => q.upsertJobScheduler("t", { pattern: "0 0 1 1 *", tz: "UTC" }, { name: "t" }));
}

async function working() {
  await step("work", () => work(4, async () => sleep(20), { lockDuration: 1000, lockRenewTime: 10, stalledInterval: 50 }));
  await step("limited", () => work(1, async () => 1, { limiter: { max: 100, duration: 10 } }));
  for (const backoff of [undefined, { type: "fixed", delay: 10 }]) {
    await step("retry", async () => {
      await q.add("f", {}, { attempts: 2, backoff, lifo: true });
      await work(2, async () => { throw new Error("no"); });
    });
  }
  await step("take", async () => {
    await q.add("m", {}, { lifo: true });
    const job = await take("token");
    await job.extendLock("token", 30000);
    await job.moveToDelayed(Date.now() + 50000, "token");
    await job.promote();
  });
  await step("wait", async () => { await q.add("m", {}, { lifo: true }); await (await take("u")).moveToWait("u"); });
  await step("wait for children", async () => { await q.add("m", {}, { lifo: true }); await (await take("v")).moveToWaitingChildren("v", {}); });
  await step("finish", async () => { await q.add("m", {}, { lifo: true }); await (await take("x")).moveToCompleted(1, "x", true); });
  await step("fail", async () => { await q.add("m", {}, { lifo: true }); await (await take("y")).moveToFailed(new Error("no"), "y", false); });
}

async function jobs() {
  const job = await q.add("j", {}, { delay: 60000 });
  for (const [method, ...args] of [["updateData", { a: 2 }], ["updateProgress", 5], ["log", "line"], ["changeDelay", 5000],
    ["getState"], ["isCompleted"], ["isWaiting"], ["isWaitingChildren"], ["changePriority", { priority: 5 }],
    ["removeDeduplicationKey"], ["removeDeduplicationKey", "d"], ["promote"], ["changePriority", { priority: 0 }], ["remove"]]) {
    await step(`job.${method}`, () => job[method](...args));
  }
  await step("job.retry", async () => {
    const [gone] = await q.getFailed();
    await gone.retry("failed");
  });
  await step("dependencies", async () => {
    const parent = await bullmq.Job.fromId(q, "parent");
    await parent.getDependenciesCount();
    await parent.getDependencies();
    await (await bullmq.Job.fromId(other, "child")).removeChildDependency();
    await parent.removeUnprocessedChildren();
  });
  await step("finished", async () => {
    const events = new bullmq.QueueEvents("q", { connection });
    const [done] = await q.getCompleted();
    await done.waitUntilFinished(events, 100);
    await events.close();
  });
}

async function administering() {
  for (const [method, ...args] of [["getJobs", ["waiting", "delayed"]], ["getJobCounts"], ["getCountsPerPriority", [0, 3]], ["getMetrics", "completed"],
    ["getRateLimitTtl"], ["isMaxed"], ["getJobScheduler", "s"], ["getJobSchedulers"], ["removeJobScheduler", "s"], ["setGlobalConcurrency", 3],
    ["pause"], ["resume"], ["retryJobs"], ["promoteJobs"], ["removeOrphanedJobs"], ["clean", 0, 10, "completed"], ["drain", true],
    ["pause"], ["obliterate", { force: true }]]) {
    await step(`queue.${method}`, () => q[method](...args));
  }
}

(async () => {
  for (const part of [adding, working, jobs, administering]) await step(part.name, part);
  await Promise.all([manual.close(), q.close(), other.close()]);
  process.stdout.write(JSON.stringify(failed));
  process.exit(0);
})();
