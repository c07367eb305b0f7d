// Answers on stdout what cron-parser 5 makes of the cases on stdin: [{pattern, at, count, tz}].
const { CronExpressionParser } = require("cron-parser");

function runs({ pattern, at, count, tz }) {
  const found = [];
  while (found.length < count) {
    let parsed;
    try {
      parsed = CronExpressionParser.parse(pattern, { tz, currentDate: new Date(at) });
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

const { cases } = JSON.parse(require("fs").readFileSync(0, "utf8"));
process.stdout.write(JSON.stringify({ version: require("cron-parser/package.json").version, results: cases.map(runs) }));
