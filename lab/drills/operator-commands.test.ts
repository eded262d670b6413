/** Operators' pages name only commands and options that there are: --help takes them all, and refuses any other. */
import { readFile } from 'node:fs/promises';
import { test } from 'tap';
import { blocksOf } from '../../test/support/documentation.ts';
import { projectFile } from '../../test/support/project.ts';
import { speechgate } from '../../test/support/speechgate.ts';

const { scripts } = JSON.parse(await readFile(projectFile('package.json'), 'utf8'));
const LINE = /(node dist\/speechgate\.js|npm run (?:-\S+ )*)\s*([^|>\n]+)/g;

async function commandsOf(page: string): Promise<string[][]> {
  const code = (await blocksOf(page)).filter(({ language }) => language === 'sh').map((block) => block.code);
  return [...code.join('\n').matchAll(LINE)]
    .map(([, , line = '']) => line.match(/"[^"]*"|\S+/g) ?? [])
    .map((words) => words.filter((word) => word !== '--'))
    .filter(([name = '']) => !(name in scripts) || scripts[name].includes('speechgate.js'));
}

test('docs/commands.md and docs/runbook.md: their commands and options exist', async (t) => {
  const pages = await Promise.all(['docs/commands.md', 'docs/runbook.md'].map(commandsOf));
  const commands = new Map(pages.flat().map((words) => [words.join(' '), words]));
  t.ok(commands.size > 15);
  for (const [command, words] of commands) {
    const { code, output } = await speechgate({}, ...words, '--help');
    t.equal(code, 0, `${command}\n${output}`);
  }
});
