import assert from 'node:assert/strict';
import { readFile } from 'node:fs/promises';
import type { Test } from 'tap';
import { readConfig } from '../../src/config/config.ts';
import { type Child, startCommand } from './child.ts';
import { projectFile } from './project.ts';

/** What stands between two lines of ``` in a document. */
export interface Block {
  /** Such as sh; what is printed is text. */
  readonly language: string;
  readonly code: string;
}

const FENCED = /^```(\w*)\n(.*?)^```$/gms;

/** The blocks of a document of the project, such as README.md, in their order; of one `##` section if it is named. */
export async function blocksOf(document: string, section?: string): Promise<Block[]> {
  const whole = await readFile(projectFile(document), 'utf8');
  const text = section === undefined ? whole : whole.split(/^## /m).find((part) => part.startsWith(`${section}\n`));
  if (text === undefined) throw new Error(`${document} has no section "${section}"`);
  return [...text.matchAll(FENCED)].map(([, language = '', code = '']) => ({ language, code: code.trim() }));
}

/** What output that is shown so looks like: … stands for anything in a line, and on a line of its own for any lines. */
const shownAs = (shown: string): RegExp =>
  new RegExp(
    shown
      .split('\n')
      .map((line) => (line === '…' ? '(?:.*\n)*?' : `^${line.split('…').map(literally).join('.*')}$\n?`))
      .join(''),
    'm',
  );

const literally = (text: string): string => text.replace(/[.*+?^${}()|[\]\\]/g, '\\$&');

export const shell = (t: Test, cwd: string, command: string, env: Record<string, string> = {}): Child =>
  startCommand(t, ['sh', '-euc', command], { cwd, env, isGroup: true });

export async function run(t: Test, cwd: string, command: string, env: Record<string, string> = {}): Promise<string> {
  const child = shell(t, cwd, command, env);
  assert.equal(await child.ended(), 0, `${command}\n${child.output()}`);
  return child.output().replaceAll('\r\n', '\n');
}

/** Runs blocks in their order. @param shown what was printed before: a block of text must be in it by then */
export async function runBlocks(
  t: Test,
  blocks: readonly Block[],
  { folder, env, shown = '' }: { folder: string; env?: Record<string, string>; shown?: string },
): Promise<void> {
  let printed = shown;
  for (const { language, code } of blocks) {
    await t.test(`${language}: ${code.split('\n')[0]}`, async (t) => {
      if (language === 'sh') printed += await run(t, folder, code, env);
      else if (language === 'text') assert.match(printed, shownAs(code));
      else if (language === 'ini') await areSettings(code);
      else assert.fail(`nobody knows what to do with a block of ${language}`);
    });
  }
}

async function areSettings(code: string): Promise<void> {
  const page = await readFile(projectFile('docs/operate.md'), 'utf8');
  for (const line of code.split('\n')) {
    const [name] = line.split('=', 1);
    assert.ok(page.includes(`\`${name}\``), `docs/operate.md does not name ${name}`);
    const { misspelt } = readConfig({ [name as string]: '…' });
    assert.deepEqual(misspelt, []);
  }
}
