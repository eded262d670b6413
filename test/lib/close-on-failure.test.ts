import { open } from 'node:fs/promises';
import { devNull } from 'node:os';
import { test } from 'tap';
import { closeOnFailure } from '../../src/lib/close-on-failure.ts';

const CLOSED = -1;

test('a file is closed if its setup fails, and stays open if it succeeds', async (t) => {
  const file = await open(devNull);
  t.equal(await closeOnFailure(file, async () => 'done'), 'done');
  t.not(file.fd, CLOSED);
  const setup = () => Promise.reject(new Error('setup failed'));
  await t.rejects(closeOnFailure(file, setup), { message: 'setup failed' });
  t.equal(file.fd, CLOSED);
});
