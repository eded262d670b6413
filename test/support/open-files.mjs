// Given to a program by NODE_OPTIONS: prints each FileHandle that is still open when the program ends, with the stack that opened it.
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

process.on('exit', () => {
  for (const { handle, path, stack } of opened) {
    // A closed handle has no descriptor.
    if (handle.fd >= 0) writeSync(2, `Open FileHandle: ${path}\n${stack.split('\n').slice(2).join('\n')}\n`);
  }
});
