import { randomBytes, randomUUID } from 'node:crypto';
import { link, lstat, open, rename, rm, stat } from 'node:fs/promises';
import { extname, join } from 'node:path';
import { followOwnLinks, ownFolder, syncFolder } from '../../lib/private-files.ts';
import { ToolError } from './results.ts';

const EXTENSIONS = { 'audio/mpeg': '.mp3', 'audio/wav': '.wav' } as const;
const MAX_NAME_BYTES = 200;
/** Path separators, Windows drives and streams, and control characters. */
// biome-ignore lint/suspicious/noControlCharactersInRegex: these are the refused characters.
const FORBIDDEN = /[\x00-\x1f\x7f/\\:*?"<>|]/;

/** Device names of Windows, with any extension. */
const DEVICE = /^(con|prn|aux|nul|(com|lpt)[0-9¹²³])(\.|$)/i;

type AudioType = keyof typeof EXTENSIONS;

export interface PlannedFile {
  write(audio: Uint8Array, contentType: AudioType): Promise<string>;
  close(): Promise<void>;
}

/** The only folder that is written to. File names can't leave it, and links in it are not followed. */
export class SpeechFolder {
  readonly path: string;
  readonly #identity: string;

  private constructor(path: string, identity: string) {
    this.path = path;
    this.#identity = identity;
  }

  /** @param path an existing folder; a link of this user is followed once. @throws ForeignFileError */
  static async open(path: string): Promise<SpeechFolder> {
    await stat(path);
    const folder = await ownFolder(await followOwnLinks(path));
    const identity = await identityOf(folder);
    if (identity === undefined) throw new Error(`${path} is not a folder. Name an existing folder.`);
    return new SpeechFolder(folder, identity);
  }

  /** Checks before the payment that the file can be written. @throws ToolError */
  async plan(name: string | undefined, overwrite: boolean): Promise<PlannedFile> {
    const stem = name === undefined ? `speech-${randomBytes(4).toString('hex')}` : stemOf(name, this.path);
    if ((await identityOf(this.path)) !== this.#identity) {
      throw new ToolError(
        `The audio folder ${this.path} was replaced by another folder. Ask your user to restart this server. Nothing was bought.`,
      );
    }
    await this.#assertFree(`${stem}.mp3`, overwrite);
    const temporary = join(this.path, `.${randomUUID()}.part`);
    const file = await open(temporary, 'wx').catch((error) => {
      throw new ToolError(
        `The audio folder ${this.path} is not writable (${error.code}). Ask your user to fix that. Nothing was bought.`,
      );
    });
    return {
      write: async (audio, contentType) => {
        await file.writeFile(audio);
        await file.sync();
        return this.#moveIntoPlace(temporary, stem, EXTENSIONS[contentType], overwrite);
      },
      close: async () => {
        await file.close();
        await rm(temporary, { force: true });
      },
    };
  }

  async #assertFree(name: string, overwrite: boolean): Promise<void> {
    const existing = await lstat(join(this.path, name)).catch(() => undefined);
    if (!existing || (overwrite && existing.isFile())) return;
    const way = existing.isFile() ? 'Choose another name, or pass overwrite: true' : 'Choose another name';
    throw new ToolError(`The file ${name} already exists. ${way}. Nothing was bought.`);
  }

  /** Adds a number to the name if another file took it during the purchase, so that paid audio is never lost. */
  async #moveIntoPlace(temporary: string, stem: string, extension: string, overwrite: boolean): Promise<string> {
    for (let count = 0; ; count++) {
      const path = join(this.path, `${stem}${count === 0 ? '' : `-${count}`}${extension}`);
      const mayReplace = overwrite && count === 0 && extension === EXTENSIONS['audio/mpeg'];
      const isMoved = await (mayReplace ? rename(temporary, path) : linkOrRename(temporary, path)).then(
        () => true,
        (error) => {
          if (!TAKEN.includes(error.code) || count > MAX_TRIES) throw error;
          return false;
        },
      );
      if (!isMoved) continue;
      await syncFolder(this.path);
      return path;
    }
  }
}

const TAKEN = ['EEXIST', 'EISDIR', 'ENOTEMPTY'];
const MAX_TRIES = 100;

/** Fails if the name exists, even as a link. Falls back to a rename on file systems without hard links. */
async function linkOrRename(temporary: string, path: string): Promise<void> {
  await link(temporary, path).catch(async (error) => {
    if (error.code === 'EEXIST') throw error;
    if (await lstat(path).catch(() => undefined)) throw Object.assign(new Error(path), { code: 'EEXIST' });
    await rename(temporary, path);
  });
}

function stemOf(name: string, folder: string): string {
  const stem = name.replace(/\.mp3$/i, '');
  const isUsable =
    stem !== '' && !stem.startsWith('.') && !FORBIDDEN.test(stem) && !DEVICE.test(stem) && stem === stem.trim();
  if (!isUsable || Buffer.byteLength(stem) > MAX_NAME_BYTES) {
    throw new ToolError(
      `file must be a file name without folders, such as hello.mp3, which is written to ${folder}. Nothing was bought.`,
    );
  }
  if (stem !== name || extname(name) === '') return stem;
  throw new ToolError(`file must end in .mp3, such as ${stem}.mp3. Nothing was bought.`);
}

/** Undefined if there is no folder; a link does not count. */
async function identityOf(folder: string): Promise<string | undefined> {
  const existing = await lstat(folder, { bigint: true }).catch(() => undefined);
  return existing?.isDirectory() ? `${existing.dev} ${existing.ino}` : undefined;
}
