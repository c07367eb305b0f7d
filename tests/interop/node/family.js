"use strict";
// Adds and reads flows, waits for jobs, reads metrics, publishes events. argv[2]: {"connection"}.
const { FlowProducer, Queue, QueueEvents, QueueEventsProducer } = require("bullmq");
const { say, serve } = require("./lines.js");

const { connection } = JSON.parse(process.argv[2]);
const flows = new FlowProducer({ connection });
const open = [flows];
const made = new Map();

function of(Kind, name, options) {
  const key = `${Kind.name} ${name}`;
  if (!made.has(key)) {
    made.set(key, new Kind(name, { connection, ...options }));
    open.push(made.get(key));
  }
  return made.get(key);
}

function ids({ job, children }) {
  return { id: job.id, children: (children ?? []).map(ids) };
}

function names(node) {
  if (!node) return null;
  const { job, children } = node;
  return { name: job.name, id: job.id, queue: job.queueQualifiedName, children: (children ?? []).map(names) };
}

serve(
  {
    // `defaults` maps names of queues to default options.
    flow: async ({ flow, defaults }) => {
      const queuesOptions = {};
      for (const name of Object.keys(defaults ?? {})) queuesOptions[name] = { defaultJobOptions: defaults[name] };
      return ids(await flows.add(flow, { queuesOptions }));
    },
    flows: async (args) => (await flows.addBulk(args.flows)).map(ids),
    // A root with this many children; answers with the milliseconds that adding takes.
    wide: async ({ parents, queue, count }) => {
      const children = Array.from({ length: count }, (_, n) => ({ name: "c", queueName: queue, data: { n } }));
      const begin = performance.now();
      const { job } = await flows.add({ name: "p", queueName: parents, data: {}, children });
      return { id: job.id, ms: performance.now() - begin };
    },
    tree: async ({ id, queue, depth, width }) =>
      names(await flows.getFlow({ id, queueName: queue, depth: depth ?? 10, maxChildren: width ?? 20 })),
    watch: async ({ queue }) => {
      await of(QueueEvents, queue).waitUntilReady();
    },
    wait: async ({ queue, id, limit }) => {
      const job = await of(Queue, queue).getJob(id);
      return job.waitUntilFinished(of(QueueEvents, queue), limit);
    },
    metrics: async ({ queue, kind, start, end }) => {
      const { meta, data, count } = await of(Queue, queue).getMetrics(kind, start, end);
      return { total: meta.count, prev_at: meta.prevTS, prev_total: meta.prevCount, data, count };
    },
    publish: ({ queue, event, fields }) => of(QueueEventsProducer, queue).publishEvent({ eventName: event, ...fields }),
  },
  () => Promise.all(open.map((each) => each.close())),
);
flows.waitUntilReady().then(() => say({ event: "ready" }));
