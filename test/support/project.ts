import { fileURLToPath, pathToFileURL } from 'node:url';

/** A file of the project by its path from the root. The test runner starts every test file there. */
export const projectFile = (path: string): URL => new URL(path, pathToFileURL(`${process.cwd()}/`));

export const PROJECT = fileURLToPath(projectFile(''));
