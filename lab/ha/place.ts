import { chmod, chown, mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { freePort } from '../../src/sandbox/free-port.ts';
import { serverAccount } from '../../src/sandbox/postgres/account.ts';
import type { Owner } from '../../test/support/child.ts';
import { databaseDirectory } from '../../test/support/database-directory.ts';
import { missingProgram } from '../../test/support/missing-program.ts';
import { projectFile } from '../../test/support/project.ts';

const EXAMPLES = projectFile('ops/ha/');
const PATRONI_BINARIES = '/usr/lib/postgresql/15/bin';

/** The missing program, as a reason to skip. False if all are installed. */
export const withoutPrograms: string | false =
  missingProgram('haproxy', '-v') ??
  missingProgram('socat', '-V') ??
  missingProgram('pgbouncer', '--version') ??
  missingProgram('etcd', '--version') ??
  missingProgram('patroni', '--version') ??
  missingProgram(`${PATRONI_BINARIES}/postgres`, '--version') ??
  false;

export interface Machine {
  readonly name: 'db1' | 'db2' | 'db3';
  readonly address: string;
}

export const MACHINES: readonly Machine[] = [
  { name: 'db1', address: '10.0.0.1' },
  { name: 'db2', address: '10.0.0.2' },
  { name: 'db3', address: '10.0.0.3' },
];

/** Maps the example's machines and folders to free local ports and one folder. */
export class Place {
  readonly folder: string;
  readonly identity: { readonly uid?: number; readonly gid?: number };
  readonly #ports = new Map<string, number>();

  constructor(folder: string, identity: Place['identity']) {
    this.folder = folder;
    this.identity = identity;
  }

  /** The local port for an address and port of the example, such as `10.0.0.1:5432`. */
  async port(documented: string): Promise<number> {
    const known = this.#ports.get(documented);
    if (known !== undefined) return known;
    const port = await freePort();
    this.#ports.set(documented, port);
    return port;
  }

  /**
   * Writes a file of ops/ha with local addresses and folders. @returns its path
   * @param changes replacements made before those of addresses and folders
   */
  async write(
    name: string,
    example: string,
    changes: readonly (readonly [string | RegExp, string])[],
  ): Promise<string> {
    let text = await readFile(new URL(example, EXAMPLES), 'utf8');
    for (const [from, to] of changes) {
      if (text.search(from) === -1) throw new Error(`${example} has no ${from}`);
      text = text.replace(from, to);
    }
    for (const [documented] of text.matchAll(/\b(?:10\.0\.0\.\d+|127\.0\.0\.1):\d+/g)) {
      text = text.replaceAll(
        new RegExp(`\\b${documented.replaceAll('.', '\\.')}\\b`, 'g'),
        `HERE:${await this.port(documented)}`,
      );
    }
    text = text
      .replaceAll('HERE:', '127.0.0.1:')
      .replaceAll(
        /\/(?:var\/lib\/etcd|var\/lib\/postgresql\/15|var\/lib\/postgresql|var\/run\/postgresql|run)\//g,
        `${this.folder}/`,
      )
      .replaceAll(/\/var\/(?:run|log)\/postgresql(?=\n|\/)/g, this.folder)
      .replaceAll('10.0.0.0/24', '127.0.0.1/32');
    return this.file(name, text);
  }

  /** Writes a file that only the server's account may read. */
  async file(name: string, text: string): Promise<string> {
    const path = join(this.folder, name);
    await writeFile(path, text);
    await this.own(path, 0o600);
    return path;
  }

  async directory(name: string): Promise<string> {
    const path = join(this.folder, name);
    await mkdir(path, { recursive: true });
    await this.own(path, 0o700);
    return path;
  }

  async own(path: string, mode: number): Promise<void> {
    await chmod(path, mode);
    const { uid, gid } = this.identity;
    if (uid !== undefined && gid !== undefined) await chown(path, uid, gid);
  }
}

/** Its folder is removed with the owner. */
export async function openPlace(t: Owner): Promise<Place> {
  const folder = await mkdtemp(join(await databaseDirectory(), 'speechgate-ha-'));
  t.teardown(() => rm(folder, { recursive: true, force: true }));
  const place = new Place(folder, (await serverAccount()).identity);
  await place.own(folder, 0o711);
  return place;
}
