// Follows the files of a program from the import on. Given to one by NODE_OPTIONS, it prints each FileHandle that is still open
// when the program ends, with the stack that opened it.
import fs, { writeSync } from 'node:fs';
import { syncBuiltinESMExports } from 'node:module';

const { open } = fs.promises;
const opened = [];

fs.promises.open = async function tracked(path, ...more) {
  const { stack } = new Error();
  const handle = await open(path, ...more);
  opened.push({ handle, path, stack });
  return handle;
};
syncBuiltinESMExports();

/** @returns {string[]} a closed handle has no descriptor */
export const openFiles = () =>
  opened
    .filter(({ handle }) => handle.fd >= 0)
    .map(({ path, stack }) => `Open FileHandle: ${path}\n${stack.split('\n').slice(2).join('\n')}`);

process.on('exit', () => {
  for (const line of openFiles()) writeSync(2, `${line}\n`);
});
