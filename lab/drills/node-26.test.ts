/**
 * On Node.js 26 a FileHandle that is left to the garbage collector ends its program. Here each command with each option, the
 * bridge, the MCP server and the service run on it, with a collection each second.
 */
import { test } from 'tap';
import { startCommand } from '../../test/support/child.ts';
import { installNode } from './install-node.ts';

const COLLECT = '--expose-gc --import=data:text/javascript,setInterval(gc,1000).unref()';
const LEAK = "import { open } from 'node:fs/promises'; open('/dev/null'); setTimeout(() => {}, 5000);";
const FILES = [
  'lab/drills/every-option.test.ts',
  'test/callers/bridge/requests.test.ts',
  'test/callers/mcp/server.test.ts',
  'test/callers/cli/state.test.ts',
  'test/jobs/audio.test.ts',
  'test/lib/private-files.test.ts',
  'test/payments/look-up.test.ts',
  'test/speech/store/file-store.test.ts',
];

test('no program leaves a FileHandle to the garbage collector', async (t) => {
  const node = await installNode(t, 26);
  const env = { NODE_OPTIONS: COLLECT };

  const leaking = startCommand(t, [node, '--input-type=module', '--eval', LEAK], { env });
  t.equal(await leaking.ended(), 1, 'what is looked for ends a program');
  t.match(leaking.output(), /ERR_INVALID_STATE/);

  // One after the other: where a collection each second meets a busy machine, connections to the database time out.
  for (const file of FILES) {
    await t.test(file, async (t) => {
      const run = startCommand(t, [node, 'build/test/run.js', '--timeout=3000', file], { env });
      const code = await run.ended();
      console.error(run.output());
      t.equal(code, 0);
      t.notMatch(run.output(), /ERR_INVALID_STATE|garbage collection/);
    });
  }
});
