import { readdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { createLogger } from '../../src/observability/logger.ts';
import { until } from '../support/until.ts';

// Writes so many lines under a name, and ends in the way that it is told.
// With a folder and a number of writers, it begins when so many have come there, and pauses between its lines.
const [name = '', count, end, meeting, writers] = process.argv.slice(2);
const log = createLogger('info').child({ name });
if (meeting) {
  writeFileSync(join(meeting, name), '');
  await until(() => readdirSync(meeting).length === Number(writers));
}
for (let number = 0; number < Number(count); number++) {
  log.info({ number }, 'x'.repeat((number * 37) % 400));
  if (number % 5 === 0 && meeting) await nextTurn();
}

switch (end) {
  case 'exit':
    process.exit(3);
    break;
  case 'throw':
    setImmediate(() => {
      throw new Error('nobody catches this');
    });
    break;
  case 'stay':
    setInterval(() => {}, 1_000);
    break;
  case 'tick':
    setInterval(() => log.info({ number: -1 }, 'tick'), 5);
    break;
}
