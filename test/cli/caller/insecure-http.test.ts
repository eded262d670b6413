import assert from 'node:assert/strict';
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'tap';
import { startCatalogServer } from '../../support/catalog-server.ts';
import { speechgate } from '../../support/speechgate.ts';

test('commands use http elsewhere than on this machine only where that was allowed', async (t) => {
  const folder = await mkdtemp(join(tmpdir(), 'speechgate-insecure-'));
  t.teardown(() => rm(folder, { recursive: true, force: true }));
  const env = { SPEECHGATE_CONFIG_DIR: folder };
  const { port } = new URL(await startCatalogServer(t));
  // It leads to this machine, and is not known to.
  const url = `http://0.0.0.0:${port}`;

  for (const [run, name] of [
    [speechgate(env, 'connect', url), 'connect'],
    [speechgate({ ...env, SPEECHGATE_URL: url }, 'models'), 'models'],
    [speechgate({ ...env, SPEECHGATE_URL: url, SPEECHGATE_ACCOUNT: crypto.randomUUID() }, 'balance'), 'balance'],
    [speechgate({ ...env, SPEECHGATE_URL: url }, 'top-up'), 'top-up'],
  ] as const) {
    const { code, err } = await run;
    assert.equal(code, 2, name);
    assert.match(err, /is not encrypted.*Nothing was sent.*--insecure/, name);
  }
  const allowed = await speechgate({ ...env, SPEECHGATE_URL: url, SPEECHGATE_INSECURE: 'true' }, 'models');
  assert.equal(allowed.code, 0, allowed.err);

  const connected = await speechgate(env, 'connect', url, '--insecure');
  assert.equal(connected.code, 0, connected.err);
  assert.deepEqual(JSON.parse(await readFile(join(folder, 'config.json'), 'utf8')).insecure, { [url]: true });
  assert.equal((await speechgate(env, 'models')).code, 0);
});
