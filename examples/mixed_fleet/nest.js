// NestJS on both sides: works on what Python added, adds a job and waits for what Python returns: `node nest.js [PORT]`.
// In TypeScript the calls of decorators below are `@Processor("node-works")` and `@Module({ ... })`.
require("reflect-metadata");
const { Module } = require("@nestjs/common");
const { NestFactory } = require("@nestjs/core");
const { BullModule, Processor, WorkerHost, getQueueToken } = require("@nestjs/bullmq");
const { QueueEvents } = require("bullmq");

const connection = { host: "127.0.0.1", port: Number(process.argv[2] ?? 6379) };

class Describe extends WorkerHost {
  async process(job) {
    if (job.name === "fail") throw new Error(`attempt ${job.attemptsMade + 1}`);
    await job.updateProgress({ half: 50 });
    return { year: new Date(job.data.at).getUTCFullYear(), big: (BigInt(job.data.big) + 1n).toString() };
  }
}
Processor("node-works")(Describe);

class Application {}
Module({
  imports: [BullModule.forRoot({ connection }), BullModule.registerQueue({ name: "python-works" })],
  providers: [Describe],
})(Application);

async function main() {
  const application = await NestFactory.createApplicationContext(Application, { logger: false });
  process.on("SIGTERM", () => application.close().then(() => process.exit(0)));
  const events = new QueueEvents("python-works", { connection });
  await events.waitUntilReady();
  const queue = application.get(getQueueToken("python-works"));
  const job = await queue.add("describe", { at: new Date(0), big: (2n ** 64n).toString() });
  console.log("Python returned", JSON.stringify(await job.waitUntilFinished(events, 30000)));
  await events.close();
}

main();
