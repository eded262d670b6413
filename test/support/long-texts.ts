import { readFile } from 'node:fs/promises';
import type { Test } from 'tap';
import { DEFAULT_UPSTREAM } from '../../src/config/catalog-upstreams.ts';
import { frameLength, frameSeconds } from '../../src/speech/mpeg-frame.ts';
import { catalogFile } from './catalog-file.ts';
import { projectFile } from './project.ts';

/** The built-in catalog, whose models take long texts and whose upstream takes few characters at once. */
export async function longCatalog(
  t: Pick<Test, 'teardown'>,
  maxRequestCharacters: number,
  {
    servers = [],
    upstreams = [{ name: DEFAULT_UPSTREAM, maxRequestCharacters }],
  }: { servers?: readonly object[]; upstreams?: readonly object[] } = {},
): Promise<string> {
  const catalog = JSON.parse(await readFile(projectFile('src/config/catalog-default.json'), 'utf8'));
  const models = catalog.models.map((model: object) => ({ ...model, maxInputCharacters: 500_000, upstreams }));
  return catalogFile(t, { ...catalog, upstreams: servers, models });
}

/** Sentences of which no two are the same. */
export const longText = (characters: number): string => {
  let text = '';
  for (let line = 1; text.length < characters; line++) text += `This is sentence number ${line} of a long book. `;
  return `${text.slice(0, characters - 1).trimEnd()}.`.padEnd(characters, '!');
};

/** The playing time of an MP3 of frames only. */
export function secondsOf(audio: Uint8Array): number {
  let seconds = 0;
  for (let at = 0, length = frameLength(audio); length !== undefined; length = frameLength(audio, at)) {
    seconds += frameSeconds(audio, at);
    at += length;
  }
  return seconds;
}
