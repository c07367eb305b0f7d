// Node works on what Python added: `node worker.js [PORT]`, until SIGTERM.
const { Worker } = require("bullmq");

const connection = { host: "127.0.0.1", port: Number(process.argv[2] ?? 6379) };

async function describe(job) {
  if (job.name === "fail") throw new Error(`attempt ${job.attemptsMade + 1}`);
  await job.updateProgress({ half: 50 });
  return { year: new Date(job.data.at).getUTCFullYear(), big: (BigInt(job.data.big) + 1n).toString(), missing: undefined };
}

const worker = new Worker("node-works", describe, { connection });
process.on("SIGTERM", () => worker.close().then(() => process.exit(0)));
