"use strict";
// A node of BullMQ's relay. argv[2]: {"connection", "namespace"}. What it gets is said as it comes.
const { Relay } = require("bullmq");
const { say, serve } = require("./lines.js");

const { connection, namespace } = JSON.parse(process.argv[2]);
const relay = new Relay({ connection, namespace });
relay.on("error", (error) => say({ event: "error", message: error.message }));
const subscribed = new Map();

const calls = {
  subscribe: async ({ pattern }) => {
    subscribed.set(pattern, await relay.subscribe(pattern, (message) => say({ event: "message", ...message })));
  },
  unsubscribe: ({ pattern }) => subscribed.get(pattern).unsubscribe(),
  publish: ({ topic, data, options }) => relay.publish(topic, data, options),
  // Any other method of Relay.
  method: ({ method, args }) => relay[method](...args),
};

relay.waitUntilReady().then(() => say({ event: "ready" }));
serve(calls, () => relay.close());
