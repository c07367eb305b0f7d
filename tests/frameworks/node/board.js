'use strict';

// bull-board over queues: node board.js SERVER PREFIX PORT QUEUE...
// SERVER is a URL, or the path of a unix socket. It prints the port it listens at, and ends with its standard input.
const { createBullBoard } = require('@bull-board/api');
const { BullMQAdapter } = require('@bull-board/api/bullMQAdapter');
const { ExpressAdapter } = require('@bull-board/express');
const { Queue } = require('bullmq');
const express = require('express');

const [server, prefix, port, ...names] = process.argv.slice(2);
const connection = server.startsWith('/') ? { path: server } : { url: server };
const adapter = new ExpressAdapter();
createBullBoard({
  queues: names.map((name) => new BullMQAdapter(new Queue(name, { connection, prefix }))),
  serverAdapter: adapter,
});
const app = express();
app.use('/', adapter.getRouter());
const listening = app.listen(Number(port), '127.0.0.1', () => {
  process.stdout.write(`${listening.address().port}\n`);
});
process.stdin.on('end', () => process.exit(0)).resume();
