"use strict";
// Prints every event of a queue's stream from its beginning, as BullMQ delivers it. argv[2]: {"connection", "queue"}.
const { QueueEvents } = require("bullmq");
const { say, serve } = require("./lines.js");

const { connection, queue } = JSON.parse(process.argv[2]);
const NAMES = [
  "active", "added", "cleaned", "completed", "debounced", "deduplicated", "delayed", "drained", "duplicated", "failed",
  "paused", "progress", "removed", "resumed", "retries-exhausted", "stalled", "waiting", "waiting-children",
];

const events = new QueueEvents(queue, { connection, lastEventId: "0-0", blockingTimeout: 500 });
for (const name of NAMES) {
  events.on(name, (fields) => say({ event: name, fields: typeof fields === "string" ? {} : fields }));
}
events.on("error", (error) => say({ event: "error", message: error.message }));
events.waitUntilReady().then(() => say({ event: "ready" }));

serve({}, () => events.close());
