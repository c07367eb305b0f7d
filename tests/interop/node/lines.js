"use strict";
// JSON lines on stdin and stdout. A program ends in good order when its stdin ends.
const readline = require("node:readline");

function say(line) {
  process.stdout.write(JSON.stringify(line) + "\n");
}

// Answers {"n", "call", "args"} with {"n", "result"} or {"n", "error"}; calls run one after the other. At the end of
// stdin `close` runs.
async function serve(calls, close) {
  const lines = readline.createInterface({ input: process.stdin });
  for await (const line of lines) {
    const { n, call, args } = JSON.parse(line);
    try {
      const result = await calls[call](args ?? {});
      say({ n, result: result === undefined ? null : result });
    } catch (error) {
      say({ n, error: String(error && error.message) });
    }
  }
  await close();
}

module.exports = { say, serve };
