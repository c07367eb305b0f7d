'use strict';

// A page in headless Chromium: node browser.js PROGRAM ORIGIN. Each line of standard input is a list of calls, each on
// what the one before returned, the first on the page: [["getByRole", "main"], ["innerText"]]. The answer is a line, too.
const readline = require('node:readline');
const { chromium } = require('playwright-core');

const [executablePath, origin] = process.argv.slice(2);
const args = [
  '--no-sandbox',
  '--disable-gpu',
  '--disable-quic',
  '--no-first-run',
  '--disable-background-networking',
  '--disable-component-update',
  '--disable-sync',
];
const failures = [];

async function main() {
  // A profile of its own, new and empty, is what `launch` gives it.
  const browser = await chromium.launch({ executablePath, args, headless: true });
  const page = await browser.newPage({ viewport: { width: 1600, height: 1200 }, baseURL: origin, locale: 'en-US' });
  page.setDefaultTimeout(20000);
  // Fonts and the like from elsewhere.
  await page.route((url) => url.origin !== origin, (route) => route.abort());
  page.on('pageerror', (error) => failures.push(String(error)));
  page.on('response', (response) => {
    if (response.status() >= 400) failures.push(`${response.status()} ${response.url()}`);
  });
  const answer = (found) => process.stdout.write(`${JSON.stringify(found)}\n`);
  answer({ value: browser.version() });
  for await (const line of readline.createInterface({ input: process.stdin })) {
    try {
      let at = page;
      for (const [name, ...given] of JSON.parse(line)) {
        at = name === 'failures' ? failures : await at[name](...given);
      }
      answer({ value: at === undefined || typeof at !== 'object' || Array.isArray(at) ? at ?? null : null });
    } catch (error) {
      answer({ error: String(error) });
    }
  }
  await browser.close();
}

main().then(() => process.exit(0));
