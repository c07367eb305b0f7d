'use strict';

// The jobs of tests/support/board.py, made and processed by BullMQ: node make.js URL PREFIX QUEUE
const { FlowProducer, Queue, Worker } = require('bullmq');

const [url, prefix, name] = process.argv.slice(2);
const options = { connection: { url, maxRetriesPerRequest: null }, prefix };

async function run(job) {
  if (job.name === 'fails') {
    throw new Error('no such address');
  }
  await job.updateProgress(40);
  await job.log('looked up');
  await job.log('sent');
  return { sent: job.data.to };
}

async function main() {
  const queue = new Queue(name, options);
  for (const to of ['ada', 'grace', 'barbara']) {
    await queue.add('works', { to });
  }
  await queue.add('fails', { to: 'nobody' }, { attempts: 2 });
  const worker = new Worker(name, run, options);
  await new Promise((resolve) => {
    let ended = 0;
    const count = (job) => {
      ended += job.finishedOn ? 1 : 0;
      if (ended === 4) resolve();
    };
    worker.on('completed', count);
    worker.on('failed', count);
  });
  await worker.close();
  await queue.add('later', { to: 'eve' }, { delay: 3600000, backoff: { type: 'exponential', delay: 500 }, attempts: 3 });
  await queue.add('urgent', { to: 'mary' }, { priority: 3, removeOnComplete: { count: 5 } });
  await queue.add('once', { to: 'joan' }, { deduplication: { id: 'joan' } });
  await queue.upsertJobScheduler(
    'nightly',
    { pattern: '0 3 1 1 *', tz: 'UTC' },
    { name: 'night', data: { to: 'all' }, opts: { attempts: 2 } },
  );
  const flows = new FlowProducer(options);
  await flows.add({
    name: 'book',
    queueName: name,
    data: { title: 'b' },
    opts: { jobId: 'book-a' },
    children: [
      { name: 'page', queueName: name, data: { number: 1 }, opts: { jobId: 'page-a' } },
      { name: 'page', queueName: name, data: { number: 2 }, opts: { jobId: 'page-b', failParentOnFailure: true } },
    ],
  });
  await Promise.all([flows.close(), queue.close()]);
}

main().then(() => process.exit(0));
