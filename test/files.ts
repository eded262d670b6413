/**
 * `node build/test/files.js FILE …`: runs test files one after the other. A test with a file's name loads it, and the tests
 * of the file follow.
 */
import { resolve } from 'node:path';
import { pathToFileURL } from 'node:url';
import { t } from 'tap';

for (const file of process.argv.slice(2)) {
  await t.test(file, { buffered: false }, async () => {
    t.jobs = 1;
    const { href } = pathToFileURL(resolve(file));
    await import(href);
  });
}
