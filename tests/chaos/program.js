"use strict";
// A producer or a worker of BullMQ, as program.py is one of ours: the same load (load.py), the same ledger (ledger.py).
const fs = require("node:fs");
const { Queue, Worker } = require("bullmq");

const config = JSON.parse(process.argv[2]);
const { load, name } = config;
const connection = { host: config.host, port: config.port, maxRetriesPerRequest: null };
const book = fs.openSync(config.ledger, "a");
const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
const note = (...fields) =>
  fs.writeSync(book, [Date.now(), ...fields.map((field) => String(field).replace(/[ \n]/g, "_"))].join(" ") + "\n");
const complain = (error) => process.stderr.write(`${Date.now()} ${error.message}\n`);
let over = false;
let beat = Date.now();
setInterval(() => {
  const late = Date.now() - beat - 100;
  if (late > 300) note("late", late);
  beat = Date.now();
}, 100).unref();

// Repeatable dice: mulberry32 over a hash of the seed.
function dice(seed) {
  let state = [...seed].reduce((hash, letter) => Math.imul(hash ^ letter.charCodeAt(0), 16777619), 2166136261);
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let t = Math.imul(state ^ (state >>> 15), 1 | state);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
  };
}

async function produce(lane, queues) {
  const roll = dice(`${config.seed} ${lane}`);
  const whole = (low, high) => low + Math.floor(roll() * (high - low));
  let count = 0;
  const make = (where) => {
    count += 1;
    const size = roll();
    const data = { work_ms: size < 0.03 ? whole(1000, 4000) : size < 0.7 ? whole(0, 180) : 0, fails: 0 };
    if (roll() < 0.08) data.fails = [1, 1, 2, 3][whole(0, 4)];
    const opts = { attempts: load.attempts, backoff: { type: "fixed", delay: load.retry_ms } };
    const kind = roll();
    if (kind < 0.05) opts.delay = whole(1, 1500);
    else if (kind < 0.1) opts.priority = whole(1, 10);
    else if (kind < 0.12) delete opts.backoff;
    if (where === "lean") opts.removeOnComplete = true;
    return { name: `${lane}.${count}`, data, opts };
  };
  let open = Object.keys(queues);
  const hasRoom = async (queue) => {
    const counts = await queue.getJobCounts("waiting", "prioritized", "delayed");
    return Object.values(counts).reduce((sum, each) => sum + each, 0) <= load.room;
  };
  const awaitRoom = async () => {
    while (!over) {
      open = [];
      for (const [where, queue] of Object.entries(queues)) if (await hasRoom(queue)) open.push(where);
      if (open.length) return;
      await sleep(50);
    }
    open = Object.keys(queues);
  };
  // With maxRetriesPerRequest null the client repeats on its own; what it throws is an error reply.
  const add = async (where, job) => {
    note("try", where, job.name);
    try {
      const { id } = await queues[where].add(job.name, job.data, job.opts);
      note("ack", where, job.name, id);
    } catch (error) {
      note(error.message.includes("losed") ? "unsure" : "not", where, job.name, error.message.slice(0, 100));
      await sleep(whole(20, 100));
    }
  };
  const addSafely = async (job) => {
    note("try", "kept", job.name);
    for (;;) {
      try {
        const { id } = await queues.kept.add(job.name, job.data, { ...job.opts, jobId: `own-${job.name}` });
        note("ack", "kept", job.name, id);
        return;
      } catch {
        if (over) return note("unsure", "kept", job.name);
        await sleep(whole(20, 200));
      }
    }
  };
  for (let turn = 0; !over; turn += 1) {
    if ((Date.now() / 1000) % load.period_s < load.sparse_s) await sleep((0.5 + roll()) * load.rest_s * 1000);
    if (turn % 5 === 0) await awaitRoom();
    const where = open[whole(0, open.length)];
    if (where === "kept" && roll() < 0.3) await addSafely(make(where));
    else await add(where, make(where));
  }
}

async function main() {
  const ended = new Promise((resolve) => process.stdin.on("end", resolve).resume());
  if (config.role === "worker") {
    const workers = Object.entries(load.concurrency).map(([queue, concurrency]) => {
      const handler = async (job) => {
        note("start", queue, job.id, job.name, job.attemptsStarted, job.attemptsMade);
        await sleep(job.data.work_ms);
        if (job.attemptsMade < job.data.fails) throw new Error("as told");
        return `done:${job.name}`;
      };
      const options = { concurrency, lockDuration: config.lock_ms, stalledInterval: config.stalled_ms, name };
      const worker = new Worker(queue, handler, { connection, ...options });
      worker.on("completed", (job) => note("done", queue, job.id, job.name));
      worker.on("failed", (job, error) => {
        if (job) note("failed", queue, job.id, job.name, job.finishedOn ? 1 : 0, error.message);
      });
      worker.on("error", complain);
      return worker;
    });
    await ended;
    await Promise.all(workers.map((worker) => worker.close()));
  } else {
    const queues = {};
    for (const queue of Object.keys(load.concurrency)) {
      queues[queue] = new Queue(queue, { connection, streams: { events: { maxLen: load.max_len_events } } });
      queues[queue].on("error", complain);
    }
    const lanes = Array.from({ length: load.lanes }, (_, lane) => produce(`${name}.${lane}`, queues));
    await ended;
    over = true;
    await Promise.all(lanes);
    await Promise.all(Object.values(queues).map((queue) => queue.close()));
  }
  note("end");
}

main();
