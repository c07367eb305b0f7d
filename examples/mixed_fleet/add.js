// Node adds a job and waits for what a worker in Python returns: `node add.js [PORT]`.
const { Queue, QueueEvents } = require("bullmq");

const connection = { host: "127.0.0.1", port: Number(process.argv[2] ?? 6379) };

async function main() {
  const queue = new Queue("python-works", { connection });
  const events = new QueueEvents("python-works", { connection });
  await events.waitUntilReady();
  const data = { at: new Date(0), big: (2n ** 64n).toString(), missing: undefined };
  const job = await queue.add("describe", data);
  console.log("Python returned", JSON.stringify(await job.waitUntilFinished(events, 30000)));
  const bad = await queue.add("fail", {}, { attempts: 2 });
  await bad.waitUntilFinished(events, 30000).catch((error) => console.log("Python failed:", error.message));
  await events.close();
  await queue.close();
}

main();
