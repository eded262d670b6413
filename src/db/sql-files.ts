import { readdir, readFile } from 'node:fs/promises';

const FOLDER = new URL('../../db/', import.meta.url);

export interface SqlFile {
  /** Without its ending. */
  readonly name: string;
  readonly text: string;
}

/** The files of a folder of db/, which is beside src/ and dist/, in the order of their names. */
export async function readSqlFiles(folder: 'audit' | 'migrations'): Promise<SqlFile[]> {
  const files = (await readdir(new URL(`${folder}/`, FOLDER))).filter((file) => file.endsWith('.sql')).sort();
  return Promise.all(
    files.map(async (file) => ({
      name: file.slice(0, -'.sql'.length),
      text: await readFile(new URL(`${folder}/${file}`, FOLDER), 'utf8'),
    })),
  );
}
