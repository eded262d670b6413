import { mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import pg from 'pg';
import type { Test } from 'tap';
import { migrate } from '../../src/db/migrate.ts';
import { freePort } from '../../src/sandbox/free-port.ts';
import { type Child, startCommand } from '../../test/support/child.ts';
import { missingProgram } from '../../test/support/missing-program.ts';
import { temporaryFolder } from '../../test/support/temporary-folder.ts';

/** Where Debian has PostgreSQL's server programs, which it puts into no path. */
const BIN = '/usr/lib/postgresql/15/bin';

/** Why tests with PostgreSQL's own programs are skipped; false where they are installed. */
export const withoutPostgres: string | false =
  missingProgram(join(BIN, 'pg_basebackup'), '--version') ??
  missingProgram(join(BIN, 'postgres'), '--version') ??
  false;

/** PostgreSQL refuses to run as root. */
const AS_NOBODY = process.getuid?.() === 0 ? ['setpriv', '--reuid=65534', '--regid=65534', '--clear-groups', '--'] : [];

/** Debian's server with these settings beside its defaults, in a folder of its own, with a database of the service. */
export async function startDebianPostgres(t: Test, settings: (folder: string) => string) {
  const folder = await temporaryFolder(t);
  const data = join(folder, 'data');
  await startCommand(
    t,
    ['chown', AS_NOBODY.length > 0 ? '65534:65534' : String(process.getuid?.()), folder],
    {},
  ).ended();
  /** Runs a command of a shell as the one who runs the server; tells what it has printed. */
  const run = async (command: string, env: Record<string, string> = {}): Promise<string> => {
    const path = `${BIN}:${process.env.PATH}`;
    const child: Child = startCommand(t, [...AS_NOBODY, 'sh', '-euc', command], {
      cwd: '/',
      env: { LC_ALL: 'C', ...env, PATH: path },
    });
    const code = await child.ended();
    if (code !== 0) throw new Error(`${command}\nended with ${code}:\n${child.output()}`);
    return child.output();
  };
  t.teardown(() => run(`for data in ${folder}/*; do pg_ctl --pgdata="$data" --mode=immediate stop || true; done`));
  const port = await freePort();
  await run(`initdb --pgdata=${data} --username=speechgate --auth=trust --no-sync`);
  const own = [`port = ${port}`, "listen_addresses = '127.0.0.1'", "unix_socket_directories = ''", 'fsync = off'];
  await mkdir(data, { recursive: true });
  await writeFile(join(data, 'speechgate.conf'), `${[...own, settings(folder)].join('\n')}\n`, { mode: 0o644 });
  await run(`echo "include 'speechgate.conf'" >> ${data}/postgresql.conf`);
  await run(`pg_ctl --pgdata=${data} --log=${folder}/log --wait start`);
  const url = `postgres://speechgate@127.0.0.1:${port}/speechgate`;
  await withDatabase(`postgres://speechgate@127.0.0.1:${port}/postgres`, 'create database speechgate');
  await migrate(url);
  return { folder, data, url, run };
}

async function withDatabase(url: string, statement: string): Promise<void> {
  const client = new pg.Client(url);
  await client.connect();
  await client.query(statement).finally(() => client.end());
}
