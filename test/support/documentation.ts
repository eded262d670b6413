import { readFile } from 'node:fs/promises';

/** What stands between two lines of ``` in a document. */
export interface Block {
  /** Such as sh; what is printed is text. */
  readonly language: string;
  readonly code: string;
}

const FENCED = /^```(\w*)\n(.*?)^```$/gms;

/** The blocks of a document of the project, such as README.md, in their order. */
export async function blocksOf(document: string): Promise<Block[]> {
  const text = await readFile(new URL(`../../${document}`, import.meta.url), 'utf8');
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
