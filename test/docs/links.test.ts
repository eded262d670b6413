/** Links between documents lead to files and headings that are there. */
import { existsSync } from 'node:fs';
import { readdir, readFile } from 'node:fs/promises';
import { test } from 'tap';
import { projectFile } from '../support/project.ts';

const PROJECT = projectFile('');
const LINK = /\]\((?!https?:)([^)#\s]*)(?:#([^)\s]+))?\)/g;

const namesIn = async (folder: string): Promise<string[]> =>
  (await readdir(new URL(folder, PROJECT), { recursive: folder !== '' }))
    .filter((name) => name.endsWith('.md') && !name.includes('node_modules'))
    .map((name) => `${folder}${name.replaceAll('\\', '/')}`);
const documents = (
  await Promise.all(['', 'client/', 'docs/', 'examples/catalogs/', 'lab/', 'lab/attacks/'].map(namesIn))
).flat();

const read = (url: URL): Promise<string> => readFile(url, 'utf8');

/** As GitHub makes them of headings. */
const anchorsIn = (text: string): Set<string> =>
  new Set(
    [...text.matchAll(/^#+ (.+)$/gm)].map(([, heading = '']) =>
      heading
        .toLowerCase()
        .replace(/[^\p{L}\p{N}\s_-]/gu, '')
        .replaceAll(' ', '-'),
    ),
  );

for (const document of documents) {
  test(`${document}: its links are valid`, async (t) => {
    const page = new URL(document, PROJECT);
    for (const [link, path = '', anchor] of (await read(page)).matchAll(LINK)) {
      const target = path === '' ? page : new URL(path, page);
      t.ok(existsSync(target), link);
      if (anchor !== undefined) t.ok(anchorsIn(await read(target)).has(anchor), link);
    }
  });
}
