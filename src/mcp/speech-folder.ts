import { randomBytes, randomUUID } from 'node:crypto';
import { type FileHandle, link, lstat, open, rename, rm, stat } from 'node:fs/promises';
import { extname, join } from 'node:path';
import { followOwnLinks } from '../lib/own-links.ts';
import { ownFolder, syncFolder } from '../lib/private-files.ts';
import { ToolError } from './tool-error.ts';

const EXTENSIONS = { 'audio/mpeg': '.mp3', 'audio/wav': '.wav' } as const;
const MAX_NAME_BYTES = 200;
/** Separators, names of Windows' drives and streams, and what a terminal would obey. */
// biome-ignore lint/suspicious/noControlCharactersInRegex: they are what is refused.
const FORBIDDEN = /[\x00-\x1f\x7f/\\:*?"<>|]/;

/** What Windows takes for a device, whatever follows its first dot. */
const DEVICE = /^(con|prn|aux|nul|(com|lpt)[0-9¹²³])(\.|$)/i;

type AudioType = keyof typeof EXTENSIONS;

/** A file to be: its folder can be written, and its name was free. */
export interface PlannedFile {
  /** Puts the whole audio there at once; tells the path. */
  write(audio: Uint8Array, contentType: AudioType): Promise<string>;
  /** Leaves nothing behind, unless the audio was written. */
  close(): Promise<void>;
}

/** The one folder that speech is written to: names have no way out of it, and links in it are not followed. */
export class SpeechFolder {
  readonly path: string;
  readonly #identity: string;

  private constructor(path: string, identity: string) {
    this.path = path;
    this.#identity = identity;
  }

  /**
   * @param path of a folder that exists; an own link to it is followed once, now
   * @throws ForeignFileError when folder or link are another user's; Error when there is none
   */
  static async open(path: string): Promise<SpeechFolder> {
    await stat(path);
    const folder = await ownFolder(await followOwnLinks(path));
    const identity = await identityOf(folder);
    if (identity === undefined) throw new Error(`${path} is no folder.`);
    return new SpeechFolder(folder, identity);
  }

  /**
   * Makes sure, before anything is paid, that a file can be put there.
   * @param name without folders; one that is free when it is left out
   * @throws ToolError which says what to ask for instead
   */
  async plan(name: string | undefined, overwrite: boolean): Promise<PlannedFile> {
    const stem = name === undefined ? `speech-${randomBytes(4).toString('hex')}` : stemOf(name, this.path);
    if ((await identityOf(this.path)) !== this.#identity) {
      throw new ToolError(
        `${this.path} is not the folder any more that was allowed. Ask your user to restart this server.`,
      );
    }
    await this.#assertFree(`${stem}.mp3`, overwrite);
    const fresh = join(this.path, `.${randomUUID()}.part`);
    const file = await open(fresh, 'wx').catch((error) => {
      throw new ToolError(`${this.path} can't be written (${error.code}). Nothing was bought. Tell your user.`);
    });
    return {
      write: async (audio, contentType) => {
        await writeWhole(file, audio);
        return this.#place(fresh, stem, EXTENSIONS[contentType], overwrite);
      },
      close: async () => {
        await file.close();
        await rm(fresh, { force: true });
      },
    };
  }

  async #assertFree(name: string, overwrite: boolean): Promise<void> {
    const there = await lstat(join(this.path, name)).catch(() => undefined);
    if (!there || (overwrite && there.isFile())) return;
    const way = there.isFile() ? 'Choose another name, or say overwrite: true' : 'Choose another name';
    throw new ToolError(`${name} is there already. Nothing was bought. ${way}.`);
  }

  /** What was paid for gets another name rather than none when its own was taken meanwhile. */
  async #place(fresh: string, stem: string, extension: string, overwrite: boolean): Promise<string> {
    for (let count = 0; ; count++) {
      const path = join(this.path, `${stem}${count === 0 ? '' : `-${count}`}${extension}`);
      const mayReplace = overwrite && count === 0 && extension === EXTENSIONS['audio/mpeg'];
      const isPlaced = await (mayReplace ? rename(fresh, path) : placeNew(fresh, path)).then(
        () => true,
        (error) => {
          if (!TAKEN.includes(error.code) || count > MAX_TRIES) throw error;
          return false;
        },
      );
      if (!isPlaced) continue;
      await syncFolder(this.path);
      return path;
    }
  }
}

const TAKEN = ['EEXIST', 'EISDIR', 'ENOTEMPTY'];
const MAX_TRIES = 100;

/** A second name is given only where there is nothing, not even a link; file systems without them rename. */
async function placeNew(fresh: string, path: string): Promise<void> {
  await link(fresh, path).catch(async (error) => {
    if (error.code === 'EEXIST') throw error;
    if (await lstat(path).catch(() => undefined)) throw Object.assign(new Error(path), { code: 'EEXIST' });
    await rename(fresh, path);
  });
}

/** A name as it was asked for, without its extension. */
function stemOf(name: string, folder: string): string {
  const stem = name.replace(/\.mp3$/i, '');
  const isUsable =
    stem !== '' && !stem.startsWith('.') && !FORBIDDEN.test(stem) && !DEVICE.test(stem) && stem === stem.trim();
  if (!isUsable || Buffer.byteLength(stem) > MAX_NAME_BYTES) {
    throw new ToolError(
      `file takes a plain name such as hello.mp3, without folders; it is written to ${folder}. Nothing was bought.`,
    );
  }
  if (stem !== name || extname(name) === '') return stem;
  throw new ToolError(`file takes a name that ends in .mp3, such as ${stem}.mp3. Nothing was bought.`);
}

/** Undefined when there is no folder; a link is none. */
async function identityOf(folder: string): Promise<string | undefined> {
  const there = await lstat(folder, { bigint: true }).catch(() => undefined);
  return there?.isDirectory() ? `${there.dev} ${there.ino}` : undefined;
}

async function writeWhole(file: FileHandle, audio: Uint8Array): Promise<void> {
  await file.writeFile(audio);
  await file.sync();
}
