import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { Test } from 'tap';
import { DEFAULT_UPSTREAM } from '../../src/config/catalog-upstreams.ts';
import { projectFile } from './project.ts';
import { temporaryFolder } from './temporary-folder.ts';

/** A file with this content, or with this value as JSON, for CATALOG_FILE. */
export async function catalogFile(t: Pick<Test, 'teardown'>, content: unknown): Promise<string> {
  const directory = await temporaryFolder(t);
  const file = join(directory, 'catalog.json');
  await writeFile(file, typeof content === 'string' ? content : JSON.stringify(content));
  return file;
}

/** The built-in catalog, with these members in each model. */
export async function catalogWith(t: Pick<Test, 'teardown'>, members: object): Promise<string> {
  const catalog = JSON.parse(await readFile(projectFile('src/config/catalog-default.json'), 'utf8'));
  const models = catalog.models.map((model: object) => ({ ...model, ...members }));
  return catalogFile(t, { ...catalog, models });
}

/** What the upstream `second` costs, in 10^-12 USD per character. */
export const SECOND_COST = 4_000_000n;

/** The built-in catalog, where each model has a second upstream behind that of SPEECH_BASE_URL, with names of its own. */
export async function catalogWithSecond(
  t: Pick<Test, 'teardown'>,
  baseUrl: string,
  more: { readonly silencePercent?: number } = {},
): Promise<string> {
  const builtIn = await readFile(projectFile('src/config/catalog-default.json'), 'utf8');
  const catalog = JSON.parse(builtIn);
  const second = {
    name: 'second',
    model: 'second-model',
    voices: { alloy: 'second-voice' },
    costPicoUsdPerCharacter: Number(SECOND_COST),
  };
  const models = catalog.models.map((model: object) => ({ ...model, upstreams: [{ name: DEFAULT_UPSTREAM }, second] }));
  return catalogFile(t, { ...catalog, ...more, upstreams: [{ name: 'second', baseUrl }], models });
}
