"use strict";
// Uses BullMQ with its OpenTelemetry adapter, and tells which spans that made. argv[2]: {"connection"}.
const { context, propagation, trace } = require("@opentelemetry/api");
const { AsyncLocalStorageContextManager } = require("@opentelemetry/context-async-hooks");
const { W3CTraceContextPropagator } = require("@opentelemetry/core");
const { BasicTracerProvider, InMemorySpanExporter, SimpleSpanProcessor } = require("@opentelemetry/sdk-trace-base");
const { FlowProducer, Queue, Worker } = require("bullmq");
const { BullMQOtel } = require("bullmq-otel");
const { say, serve } = require("./lines.js");

const { connection } = JSON.parse(process.argv[2]);
const exporter = new InMemorySpanExporter();
const provider = new BasicTracerProvider({ spanProcessors: [new SimpleSpanProcessor(exporter)] });
context.setGlobalContextManager(new AsyncLocalStorageContextManager().enable());
propagation.setGlobalPropagator(new W3CTraceContextPropagator());
trace.setGlobalTracerProvider(provider);
const telemetry = new BullMQOtel("tests");
const queues = new Map();

function queue(name) {
  if (!queues.has(name)) queues.set(name, new Queue(name, { connection, telemetry }));
  return queues.get(name);
}

function plain(span) {
  return {
    name: span.name,
    kind: span.kind,
    trace: span.spanContext().traceId,
    id: span.spanContext().spanId,
    parent: span.parentSpanId ?? null,
    attributes: span.attributes,
    events: span.events.map(({ name, attributes }) => ({ name, attributes })),
    status: span.status.code,
  };
}

const calls = {
  method: async ({ queue: name, method, args }) => {
    const result = await queue(name)[method](...args);
    return result && result.id !== undefined ? result.id : null;
  },
  close: async ({ queue: name }) => {
    await queue(name).close();
    queues.delete(name);
  },
  flow: async ({ flow, bulk }) => {
    const flows = new FlowProducer({ connection, telemetry });
    await (bulk ? flows.addBulk(bulk) : flows.add(flow));
    await flows.close();
  },
  // Works off this many attempts. A job whose data says `fail` raises; one that says `next` adds a job there.
  work: async ({ queue: name, attempts, options }) => {
    const process = async ({ data }) => {
      if (data.fail) throw new Error(data.fail);
      if (data.next) await queue(data.next).add("follow", {});
      return { done: true };
    };
    const worker = new Worker(name, process, { connection, telemetry, name: "w", ...options });
    await new Promise((resolve) => {
      let left = attempts;
      const over = () => --left || resolve();
      worker.on("completed", over).on("failed", over);
    });
    await worker.pause();
    worker.resume();
    await worker.close();
  },
  // Takes one job by hand, and ends it.
  manual: async ({ queue: name, error }) => {
    const worker = new Worker(name, null, { connection, telemetry, name: "w" });
    const job = await worker.getNextJob("token", { block: false });
    if (error) await job.moveToFailed(new Error(error), "token", false);
    else await job.moveToCompleted({ done: true }, "token", false);
    await worker.close();
  },
  rate_limit: async ({ queue: name }) => {
    const worker = new Worker(name, null, { connection, telemetry, name: "w" });
    await worker.rateLimit(1);
    await worker.close();
  },
  // The spans that have ended since the last call.
  spans: () => {
    const spans = exporter.getFinishedSpans().map(plain);
    exporter.reset();
    return spans;
  },
};

say({ event: "ready" });
serve(calls, async () => {
  await Promise.all([...queues.values()].map((made) => made.close()));
  // A worker that was resumed leaves the timer of its stalled checks behind.
  process.exit(0);
});
