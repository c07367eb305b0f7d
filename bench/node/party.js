"use strict";
// The Node side of the bench: BullMQ, used as its documentation shows. argv[2]: {"connection"}.
const { Queue, Worker } = require("bullmq");
const { say, serve } = require("../../tests/interop/node/lines.js");

const { connection } = JSON.parse(process.argv[2]);

// Seconds on the clock and of this process's CPU.
async function timed(work) {
  const cpu = process.cpuUsage();
  const start = process.hrtime.bigint();
  await work();
  const seconds = Number(process.hrtime.bigint() - start) / 1e9;
  const used = process.cpuUsage(cpu);
  return { seconds, cpu_seconds: (used.user + used.system) / 1e6 };
}

serve(
  {
    add: async ({ queue: name, count, at_once: atOnce }) => {
      const queue = new Queue(name, { connection });
      await queue.waitUntilReady();
      const result = await timed(async () => {
        for (let done = 0; done < count; done += atOnce) {
          const adding = [];
          for (let n = done; n < done + atOnce; n++) adding.push(queue.add("job", { n }));
          await Promise.all(adding);
        }
      });
      await queue.close();
      return result;
    },
    process: async ({ queue: name, count, concurrency }) => {
      const worker = new Worker(name, async () => {}, { connection, concurrency, autorun: false });
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
  },
  () => {},
);
say({ event: "ready" });
