"use strict";
// A worker of BullMQ that says what it makes of payloads. argv[2]: {"connection", "queue"}. A job's name is an expression
// of `x`, which is its data; the data is its result.
const { Worker } = require("bullmq");
const { say, serve } = require("./lines.js");

const { connection, queue } = JSON.parse(process.argv[2]);

async function work({ id, name, data }) {
  say({ event: "seen", id, type: typeof data, holds: new Function("x", `return ${name}`)(data) });
  return data;
}

const worker = new Worker(queue, work, { connection });
worker.on("error", (error) => say({ event: "error", message: error.message }));
worker.waitUntilReady().then(() => say({ event: "ready" }));
serve({}, () => worker.close());
