"use strict";
// A queue and a worker of BullMQ where servers are several, over ioredis. argv[2]: {"cluster": [places]} or
// {"sentinels": [places], "service"}, and "prefix", "added", "worked": the names of the queues it adds to and works on.
const { Queue, Worker } = require("bullmq");
const Redis = require("ioredis");
const { say, serve } = require("./lines.js");

const { cluster, sentinels, service, prefix, added, worked } = JSON.parse(process.argv[2]);
const open = () =>
  cluster
    ? new Redis.Cluster(cluster, { redisOptions: { maxRetriesPerRequest: null } })
    : new Redis({ sentinels, name: service, maxRetriesPerRequest: null });
const connections = [open(), open()];
const queue = new Queue(added, { connection: connections[0], prefix });
const worker = new Worker(worked, async (job) => ({ by: "node", got: job.data }), { connection: connections[1], prefix });
for (const each of [queue, worker, ...connections]) each.on("error", () => {});
worker.waitUntilReady().then(() => say({ event: "ready" }));

serve(
  {
    add: async ({ data }) => (await queue.add("from node", data)).id,
    read: async ({ id }) => {
      const job = await queue.getJob(id);
      return { state: await job.getState(), value: job.returnvalue };
    },
  },
  async () => {
    await worker.close();
    await queue.close();
    for (const each of connections) each.disconnect();
  },
);
