// A scheduler of ours for Node, written from specs/monque.md (sections 5.2, 5.3, 5.5, 5.7 and 5.9) and nothing else: a partner on
// Node's own driver. node partner.js URL DATABASE COLLECTION COUNT: adds COUNT jobs "to-python", then runs COUNT jobs "to-node", each of
// which fails at its first run if its data says so, and shares the jobs "mixed" with others until none of them is active; prints the stored
// documents "to-node" as extended JSON, one a line, and then the ids of the jobs "mixed" that it ran.
const { MongoClient, BSON } = require("mongodb");

const [url, database, name, count] = process.argv.slice(2);
const me = "node-partner";
const unset = { lockedAt: "", claimedBy: "", lastHeartbeat: "" };

async function main() {
  const client = new MongoClient(url);
  const jobs = client.db(database).collection(name);
  for (let n = 0; n < count; n++) {
    const now = new Date();
    const made = { name: "to-python", data: { n, at: now }, status: "pending", nextRunAt: now, failCount: 0, createdAt: now, updatedAt: now };
    if (n % 2) await jobs.insertOne(made);
    else {
      const query = { name: "to-python", uniqueKey: `k${n}`, status: { $in: ["pending", "processing"] } };
      const options = { upsert: true, returnDocument: "after" };
      await jobs.findOneAndUpdate(query, { $setOnInsert: { ...made, uniqueKey: `k${n}` } }, options);
    }
  }
  let done = 0;
  const mixed = [];
  const active = { name: "mixed", status: { $in: ["pending", "processing"] } };
  for (let turn = 0; done < count || (await jobs.countDocuments(active)); turn++) {
    const now = new Date();
    const job = await jobs.findOneAndUpdate(
      { name: turn % 2 ? "mixed" : "to-node", status: "pending", nextRunAt: { $lte: now } },
      { $set: { status: "processing", claimedBy: me, lockedAt: now, lastHeartbeat: now, heartbeatInterval: 30000, updatedAt: now } },
      { sort: { nextRunAt: 1 }, returnDocument: "after" },
    );
    if (!job) {
      await new Promise((resolve) => setTimeout(resolve, 5));
      continue;
    }
    if (job.name === "mixed") mixed.push(String(job._id));
    const mine = { _id: job._id, status: "processing", claimedBy: me };
    if (job.data.fails && job.failCount === 0) {
      const fields = { status: "pending", failCount: job.failCount + 1, failReason: "no", nextRunAt: new Date(Date.now() + 50), updatedAt: new Date() };
      await jobs.findOneAndUpdate(mine, { $set: fields, $unset: unset });
    } else {
      const fields = { status: "completed", updatedAt: new Date() };
      await jobs.findOneAndUpdate(mine, { $set: fields, $unset: { ...unset, failReason: "" } });
      if (job.name === "to-node") done++;
    }
  }
  for await (const each of jobs.find({ name: "to-node" })) console.log(BSON.EJSON.stringify(each, { relaxed: false }));
  console.log(JSON.stringify(mixed));
  await client.close();
}

main();
