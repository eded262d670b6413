import { readFile } from 'node:fs/promises';
import type { Block } from './documentation.ts';
import { projectFile } from './project.ts';

/** A section of the runbook: what it is called, and its blocks in their order. */
export interface Section {
  readonly name: string;
  readonly text: string;
  readonly blocks: readonly Block[];
}

/** The sections of docs/runbook.md. */
export async function runbook(): Promise<Section[]> {
  const text = await readFile(projectFile('docs/runbook.md'), 'utf8');
  return text
    .split(/^## /m)
    .slice(1)
    .map((section) => ({
      name: section.split('\n', 1)[0] ?? '',
      text: section,
      blocks: [...section.matchAll(/^```(\w+)\n(.*?)^```$/gms)].map(([, language = '', code = '']) => ({
        language,
        code: code.trim(),
      })),
    }));
}
