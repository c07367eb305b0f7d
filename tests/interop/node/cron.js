// Answers on stdout what cron-parser makes of the cases on stdin: {zones: {name: [moments]}, cases: [{pattern, at, count, ...options}]}.
const cron = require("cron-parser");
const { IANAZone } = require("luxon");
const { version } = require("cron-parser/package.json");

// The fifth major version has another name for it.
const parse = cron.parseExpression || cron.CronExpressionParser.parse;
const OPTIONS = ["tz", "utc", "nthDayOfWeek", "endDate", "startDate"];

function runs({ pattern, at, count, ...given }) {
  const options = {};
  for (const name of OPTIONS) if (given[name] != null) options[name] = given[name];
  const found = [];
  while (found.length < count) {
    let parsed;
    try {
      parsed = parse(pattern, { ...options, currentDate: new Date(at) });
    } catch (error) {
      return { throws: error.message };
    }
    try {
      at = parsed.next().getTime();
    } catch (error) {
      return { runs: found, none: error.message };
    }
    found.push(at);
  }
  return { runs: found };
}

const { zones, cases } = JSON.parse(require("fs").readFileSync(0, "utf8"));
const offsets = {};
for (const [name, moments] of Object.entries(zones)) {
  const zone = IANAZone.create(name);
  offsets[name] = moments.map((moment) => zone.offset(moment) * 60000);
}
const versions = { cronParser: version, node: process.version, tz: process.versions.tz };
process.stdout.write(JSON.stringify({ versions, offsets, results: cases.map(runs) }));
