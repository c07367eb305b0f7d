// Writes {name: {keys, content}} of every script of the installed bullmq package to the file given.
// Usage: node dump_scripts.js <node_modules> <target>
'use strict';
const fs = require('fs');
const path = require('path');

const [modules, target] = process.argv.slice(2);
const entry = require.resolve('bullmq', { paths: [path.dirname(path.resolve(modules))] });
const scripts = require(path.join(path.dirname(entry), 'scripts'));
const found = {};
for (const script of Object.values(scripts)) {
  if (script && typeof script.content === 'string') {
    found[script.name] = { keys: script.keys, content: script.content };
  }
}
fs.writeFileSync(target, JSON.stringify(found));
