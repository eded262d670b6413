/** Where the MCP server writes: a folder of its own user, by whatever way it is named. */
import assert from 'node:assert/strict';
import { chown, lchown, mkdir, mkdtemp, readdir, realpath, rm, symlink } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'tap';
import { ForeignFileError } from '../../src/lib/private-files.ts';
import { SpeechFolder } from '../../src/mcp/speech-folder.ts';
import { speechgate } from '../support/speechgate.ts';

const NOBODY = 65_534;
const skip = process.geteuid?.() !== 0 && 'only root may give files away';

test("another user's folder, or a link that another user has planted, is not written to", { skip }, async (t) => {
  const root = await realpath(await mkdtemp(join(tmpdir(), 'speechgate-folder-')));
  t.teardown(() => rm(root, { recursive: true, force: true }));
  const [own, foreign, planted, mine] = ['own', 'foreign', 'planted', 'mine'].map((name) => join(root, name)) as [
    string,
    string,
    string,
    string,
  ];
  await mkdir(own);
  await mkdir(foreign);
  await chown(foreign, NOBODY, NOBODY);
  await symlink(own, planted);
  await lchown(planted, NOBODY, NOBODY);
  await symlink(own, mine);
  for (const path of [foreign, planted]) {
    await assert.rejects(SpeechFolder.open(path), ForeignFileError, path);
    const { code, err } = await speechgate({}, 'mcp', '--folder', path);
    assert.deepEqual([code, err.trim().split('\n').length], [2, 1], err);
    assert.match(err, /is another user's, or a link of theirs/);
  }
  assert.equal((await SpeechFolder.open(mine)).path, own);
  await assert.rejects(SpeechFolder.open(join(root, 'none')));
  assert.deepEqual((await readdir(root)).sort(), ['foreign', 'mine', 'own', 'planted'], 'none is made');
});
