import assert from 'node:assert/strict';
import { readdir } from 'node:fs/promises';
import { fileURLToPath } from 'node:url';
import { test } from 'tap';
import { compileSabotaged, SABOTAGES, type SabotageName, weaken } from '../../soak/sabotage.ts';
import { testDatabase } from '../support/database.ts';

const PROJECT = fileURLToPath(new URL('../..', import.meta.url));

for (const name of Object.keys(SABOTAGES) as SabotageName[]) {
  test(`the fault "${name}" can be put into the service as it is`, async (t) => {
    const service = await compileSabotaged(PROJECT, name);
    t.teardown(service.remove);
    assert.ok((await readdir(service.folder)).includes('main.js'));
    await weaken((await testDatabase(t)).url, name);
  });
}
