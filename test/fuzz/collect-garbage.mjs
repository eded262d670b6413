// Loaded into a gateway before its program: on SIGWINCH it collects garbage, and prints what is left in bytes.
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';

setFlagsFromString('--expose-gc');
const collect = runInNewContext('gc');

process.on('SIGWINCH', () => {
  collect();
  setImmediate(() => {
    collect();
    const { heapUsed, external } = process.memoryUsage();
    console.log(`LEFT ${JSON.stringify({ heapUsed, external })} LEFT`);
  });
});
