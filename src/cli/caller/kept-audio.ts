import { createReadStream } from 'node:fs';
import { readdir, rm } from 'node:fs/promises';
import { join, resolve } from 'node:path';
import { Readable } from 'node:stream';
import type { WholeAudio } from '../../budget/kept-speech.ts';
import { ownFolder, ownSubfolder, replaceOwnFile } from '../../lib/private-files.ts';
import { openAudioFile } from './audio-file.ts';
import type { Resumed } from './resume-purchase.ts';

const FOLDER = 'audio';
const EXTENSIONS = { 'audio/mpeg': '.mp3', 'audio/wav': '.wav' } as const;

/** Audio that was paid for and that its program could not be given. */
export class KeptAudio {
  readonly #folder: string;

  /** @param folder of the settings */
  constructor(folder: string) {
    this.#folder = folder;
  }

  async keep(identifier: string, { contentType, bytes }: WholeAudio): Promise<void> {
    await ownFolder(this.#folder);
    const folder = await ownSubfolder(join(this.#folder, FOLDER));
    await replaceOwnFile(join(folder, fileNameOf(identifier, EXTENSIONS[contentType])), bytes);
  }

  /** The identifiers. */
  async list(): Promise<readonly string[]> {
    return (await this.#files()).map(({ identifier }) => identifier);
  }

  /** Moves the audio to a file. @param out one named after the identifier, in the working directory, when it is left out */
  async writeTo(out: string | undefined, identifier: string): Promise<Resumed> {
    const found = (await this.#files()).find((file) => file.identifier === identifier);
    if (!found) throw new Error(`The audio of ${identifier} was taken meanwhile.`);
    const file = out ?? resolve(found.name);
    const target = await openAudioFile(file);
    try {
      const bytes = await target.write(Readable.toWeb(createReadStream(found.path)) as ReadableStream<Uint8Array>);
      await rm(found.path);
      const { contentType } = found;
      return { outcome: 'bought', identifier, file, bytes, contentType, line: `${file}: ${bytes} bytes, paid before` };
    } finally {
      await target.close();
    }
  }

  async #files() {
    const folder = join(this.#folder, FOLDER);
    const names = await readdir(folder).catch(() => []);
    return Object.entries(EXTENSIONS).flatMap(([contentType, extension]) =>
      names
        .filter((name) => name.endsWith(extension))
        .map((name) => ({
          name,
          path: join(folder, name),
          contentType,
          identifier: decodeURIComponent(name.slice(0, -extension.length)),
        })),
    );
  }
}

/** An identifier can be any text. */
export const fileNameOf = (identifier: string, suffix: string): string =>
  `${encodeURIComponent(identifier).replaceAll('.', '%2E')}${suffix}`;
