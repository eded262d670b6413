/** The pages of rules define what code, tests and documents cite as R1, R2, …; both sides are held against each other here. */
import { readdir, readFile } from 'node:fs/promises';
import { test } from 'tap';
import { routes } from '../../src/contract/routes.ts';
import { projectFile } from '../support/project.ts';

const PROJECT = projectFile('');
const PAGES = ['docs/rules.md', 'docs/rules-x402.md'];
const FOLDERS = ['src', 'test', 'lab', 'codegen', 'db', 'docs'];
const FILES = ['openapi.yaml', 'README.md', 'CONTRIBUTING.md'];
const CITATION = /\bR\d+[a-z]?\b/g;

const read = (path: string): Promise<string> => readFile(new URL(path, PROJECT), 'utf8');

async function citingFiles(): Promise<Map<string, ReadonlySet<string>>> {
  const listings = FOLDERS.map(async (folder) => {
    const names = await readdir(new URL(folder, PROJECT), { recursive: true });
    // The bench installs its peers below lab/.
    const own = names.filter((name) => /\.\w+$/.test(name) && !/\bnode_modules\b/.test(name));
    return own.map((name) => `${folder}/${name.replaceAll('\\', '/')}`);
  });
  const paths = (await Promise.all(listings)).flat();
  const texts = [...paths, ...FILES].map(async (path) => {
    return [path, new Set<string>((await read(path)).match(CITATION) ?? [])] as const;
  });
  return new Map(await Promise.all(texts));
}

const texts = await Promise.all(PAGES.map(read));
const pages = texts.map((page) =>
  page
    .split(/^### (?=R\d)/m)
    .slice(1)
    .map((text) => ({ id: text.slice(0, text.indexOf(':')), text })),
);
const rules = pages.flat();
const citations = await citingFiles();
const saysWhyNot = (text: string): boolean => /^Not cited: /m.test(text);

const citedIn = (id: string): string[] =>
  [...citations].filter(([path, ids]) => !PAGES.includes(path) && ids.has(id)).map(([path]) => path);

test('every cited rule is defined on a page of rules', async (t) => {
  const defined = new Set(rules.map(({ id }) => id));
  t.ok(defined.size > 60);
  const unknown = [...citations].flatMap(([path, ids]) =>
    [...ids].filter((id) => !defined.has(id)).map((id) => `${path} cites ${id}`),
  );
  t.strictSame(unknown, []);
});

test('each rule is defined once, in the numeric order of its page', async (t) => {
  for (const page of pages) {
    const ids = page.map(({ id }) => id);
    t.strictSame(
      ids,
      [...ids].sort((a, b) => a.localeCompare(b, 'en', { numeric: true })),
    );
  }
  t.equal(new Set(rules.map(({ id }) => id)).size, rules.length);
});

test('each rule is cited by code or by a test, or says why not', async (t) => {
  const isCited = (id: string) => citedIn(id).some((path) => /^(src|test|codegen)\//.test(path));
  const ids = rules.filter(({ id, text }) => isCited(id) === saysWhyNot(text)).map(({ id }) => id);
  t.strictSame(ids, []);
});

test('each file listed for a rule exists and cites it', async (t) => {
  const broken = rules.flatMap(({ id, text }) => {
    const [, line] = /^At: (.+(?:\n.+)*)/m.exec(text) ?? [];
    if (line === undefined) return saysWhyNot(text) ? [] : [`${id} has no line of files`];
    const files = [...line.matchAll(/`([^`]+)`/g)].map(([, file]) => file as string);
    return files
      .filter((file) => !citations.get(file)?.has(id))
      .map((file) => `${id} is not in ${file}; it is cited in ${citedIn(id).join(', ')}`);
  });
  t.strictSame(broken, []);
});

test('docs/rules.md: its table has each endpoint of the contract', async (t) => {
  const [, table = ''] = /^## Endpoints and records\n(.*?)^## /ms.exec(texts[0] ?? '') ?? [];
  const cells = [...table.matchAll(/^\| (.+?) \|/gm)].map(([, cell]) => cell as string);
  const listed = cells.flatMap((cell) => [...cell.matchAll(/`(\/[^`]*)`/g)].map(([, path]) => path as string));
  const served = new Set(routes.map(({ path }) => path.replaceAll(/:(\w+)/g, '{$1}')));
  t.strictSame(listed.sort(), [...served].sort());
});
