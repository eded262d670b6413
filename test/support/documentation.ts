import { readFile } from 'node:fs/promises';
import { projectFile } from './project.ts';

/** What stands between two lines of ``` in a document. */
export interface Block {
  /** Such as sh; what is printed is text. */
  readonly language: string;
  readonly code: string;
}

const FENCED = /^```(\w*)\n(.*?)^```$/gms;

/** The blocks of a document of the project, such as README.md, in their order; of one `##` section if it is named. */
export async function blocksOf(document: string, section?: string): Promise<Block[]> {
  const whole = await readFile(projectFile(document), 'utf8');
  const text = section === undefined ? whole : whole.split(/^## /m).find((part) => part.startsWith(`${section}\n`));
  if (text === undefined) throw new Error(`${document} has no section "${section}"`);
  return [...text.matchAll(FENCED)].map(([, language = '', code = '']) => ({ language, code: code.trim() }));
}

/** What output that is shown so looks like: … stands for anything in a line, and on a line of its own for any lines. */
export const shownAs = (shown: string): RegExp =>
  new RegExp(
    shown
      .split('\n')
      .map((line) => (line === '…' ? '(?:.*\n)*?' : `^${line.split('…').map(literally).join('.*')}$\n?`))
      .join(''),
    'm',
  );

const literally = (text: string): string => text.replace(/[.*+?^${}()|[\]\\]/g, '\\$&');
