"use strict";
// The Node side of the bench: BullMQ, used as its documentation shows. argv[2]: {"connection"}.
const { FlowProducer, Queue, Worker } = require("bullmq");
const { say, serve } = require("../../tests/interop/node/lines.js");

const { connection } = JSON.parse(process.argv[2]);
const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
const rss = () => process.memoryUsage().rss / 2 ** 20;

// Seconds on the clock and of this process's CPU.
async function timed(work) {
  const cpu = process.cpuUsage();
  const start = process.hrtime.bigint();
  await work();
  const seconds = Number(process.hrtime.bigint() - start) / 1e9;
  const used = process.cpuUsage(cpu);
  return { seconds, cpu_seconds: (used.user + used.system) / 1e6 };
}

const workers = [];

async function stop() {
  await Promise.all(workers.splice(0).map((worker) => worker.close()));
}

// As bench/processes_app.py does: by the clock that counts this process's time on a CPU, in microseconds.
function compute(us) {
  const taken = () => {
    const { user, system } = process.cpuUsage();
    return user + system;
  };
  for (const end = taken() + us; us && taken() < end; );
}

async function queued(name, work) {
  const queue = new Queue(name, { connection });
  await queue.waitUntilReady();
  try {
    return await work(queue);
  } finally {
    await queue.close();
  }
}

serve(
  {
    add: ({ queue: name, count, at_once: atOnce, bytes, opts }) =>
      queued(name, (queue) =>
        timed(async () => {
          for (let done = 0; done < count; done += atOnce) {
            const adding = [];
            for (let n = done; n < done + atOnce; n++) adding.push(queue.add("job", payload(n, bytes), opts));
            await Promise.all(adding);
          }
        }),
      ),
    bulk: ({ queue: name, count, size, opts }) =>
      queued(name, (queue) =>
        timed(async () => {
          for (let done = 0; done < count; done += size) {
            const jobs = [];
            for (let n = done; n < done + size; n++) jobs.push({ name: "job", data: { n }, opts });
            await queue.addBulk(jobs);
          }
        }),
      ),
    flows: async ({ queue: name, count, children }) => {
      const flows = new FlowProducer({ connection });
      await flows.waitUntilReady();
      const child = (n) => ({ name: "child", queueName: name, data: { n } });
      const result = await timed(async () => {
        for (let n = 0; n < count; n++) {
          await flows.add({ name: "parent", queueName: name, data: { n }, children: Array.from({ length: children }, (_, c) => child(c)) });
        }
      });
      await flows.close();
      return result;
    },
    process: async ({ queue: name, count, concurrency, fails }) => {
      const work = async (job) => {
        if (job.attemptsMade < fails) throw new Error("again");
      };
      const worker = new Worker(name, work, { connection, concurrency, autorun: false });
      await worker.waitUntilReady();
      let completed = 0;
      const result = await timed(
        () =>
          new Promise((resolve, reject) => {
            worker.on("completed", () => ++completed === count && resolve());
            worker.on("error", reject);
            worker.run().catch(reject);
          }),
      );
      await worker.close();
      return result;
    },
    // Of bench.processes: a worker whose handlers compute; `stop` closes it.
    work: async ({ queue: name, concurrency, compute_us: us }) => {
      const worker = new Worker(name, async () => compute(us), { connection, concurrency });
      await worker.waitUntilReady();
      workers.push(worker);
    },
    stop,
    latency: ({ queue: name, count, pause_ms: pause }) =>
      queued(name, async (queue) => {
        let started;
        const worker = new Worker(name, async () => started(process.hrtime.bigint()), { connection });
        await worker.waitUntilReady();
        const ms = [];
        for (let n = 0; n < count; n++) {
          await sleep(pause);
          const start = new Promise((resolve) => (started = resolve));
          const asked = process.hrtime.bigint();
          await queue.add("job", { n });
          ms.push(Number((await start) - asked) / 1e6);
        }
        await worker.close();
        return { ms };
      }),
    memory: ({ queue: name, count, first, size }) =>
      queued(name, async (queue) => {
        let completed = 0;
        let reached = () => {};
        const worker = new Worker(name, async () => {}, { connection, concurrency: 50, removeOnComplete: { count: 0 } });
        worker.on("completed", () => ++completed % size === 0 && reached());
        let early = 0;
        for (let done = size; done <= count; done += size) {
          const all = new Promise((resolve) => (reached = resolve));
          await queue.addBulk(Array.from({ length: size }, (_, n) => ({ name: "job", data: { n } })));
          await all;
          if (done === first) early = rss();
        }
        await worker.close();
        return { early_mb: early, late_mb: rss() };
      }),
  },
  stop,
);
say({ event: "ready" });

function payload(n, bytes) {
  return bytes ? { n, text: "x".repeat(bytes) } : { n };
}
