import { readdir, readFile } from 'node:fs/promises';
import { parse, parseAllDocuments } from 'yaml';
import { readConfig } from '../../src/config/config.ts';
import { projectFile } from '../support/project.ts';

const PROJECT = projectFile('');

// biome-ignore lint/suspicious/noExplicitAny: these files have no types; what tests need of them they assert.
export type Document = any;

export const read = (path: string): Promise<string> => readFile(new URL(path, PROJECT), 'utf8');

export const readYaml = async (path: string): Promise<Document> => parse(await read(path), { merge: true });

/** Names and values of `NAME=value` lines, as Docker and systemd read them. */
export const readEnvFile = async (path: string): Promise<Record<string, string>> =>
  Object.fromEntries([...(await read(path)).matchAll(/^([A-Z0-9_]+)=(.*)$/gm)].map(([, name, value]) => [name, value]));

/** The objects of ops/kubernetes by kind and name, such as `Deployment/speechgate-gateway`. */
export async function kubernetesObjects(): Promise<Map<string, Document>> {
  const objects = new Map<string, Document>();
  for (const file of await readdir(new URL('ops/kubernetes/', PROJECT))) {
    if (file === 'kustomization.yaml') continue;
    for (const document of parseAllDocuments(await read(`ops/kubernetes/${file}`))) {
      if (document.errors[0]) throw document.errors[0];
      const object = document.toJS();
      const name = `${object.kind}/${object.metadata.name}`;
      if (objects.has(name)) throw new Error(`${file} has ${name} again`);
      objects.set(name, object);
    }
  }
  return objects;
}

/** A unit of ops/systemd: the values of each key, `Section.Key`, in their order. */
export async function readUnit(name: string): Promise<Map<string, string[]>> {
  const unit = new Map<string, string[]>();
  let section = '';
  for (const line of (await read(`ops/systemd/${name}`)).split('\n')) {
    section = /^\[(\w+)\]$/.exec(line)?.[1] ?? section;
    const [, key, value] = /^(\w+)=(.*)$/.exec(line) ?? [];
    if (key !== undefined) unit.set(`${section}.${key}`, [...(unit.get(`${section}.${key}`) ?? []), value as string]);
  }
  return unit;
}

/** Names of the settings that the service reads, with those of the AWS SDK that docs/operate.md tells. */
export async function knownSettings(): Promise<Set<string>> {
  const known = new Set<string>();
  readConfig(new Proxy({}, { get: (_env, name) => void known.add(String(name)), ownKeys: () => [] }));
  for (const [name] of (await read('docs/operate.md')).matchAll(/\bAWS_\w+/g)) known.add(name);
  return known;
}

/** Instructions of the last stage of the ops/Containerfile by their names. */
export async function imageInstructions(): Promise<Map<string, string[]>> {
  const instructions = new Map<string, string[]>();
  for (const line of (await read('ops/Containerfile')).replaceAll('\\\n', ' ').split('\n')) {
    const [, name, rest] = /^([A-Z]+) (.+)$/.exec(line) ?? [];
    if (name === 'FROM') instructions.clear();
    if (name !== undefined) instructions.set(name, [...(instructions.get(name) ?? []), rest as string]);
  }
  return instructions;
}

/** `NAME=value …` as an object. */
export const assignments = (text: string): Record<string, string> =>
  Object.fromEntries(
    text.split(' ').map((word) => [word.slice(0, word.indexOf('=')), word.slice(word.indexOf('=') + 1)]),
  );
