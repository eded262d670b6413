import { fdatasyncSync, fstatSync, ftruncateSync, writeSync } from 'node:fs';
import type { FileHandle } from 'node:fs/promises';
import { dirname } from 'node:path';
import { openOwnLog, ownFolder, readUnsharedFile, replaceOwnFile } from '../../lib/private-files.ts';
import { ApiError } from './api-error.ts';
import { now, type ObjectKinds } from './objects.ts';

const REPLY_LIFETIME_SECONDS = 24 * 60 * 60;

interface Reply {
  readonly id: string;
  readonly object: 'reply';
  readonly fingerprint: string;
  readonly created: number;
  readonly body: object;
}

interface StoredKinds extends ObjectKinds {
  reply: Reply;
  port: { readonly id: 'port'; readonly object: 'port'; readonly port: number };
}

type Kind = keyof StoredKinds;
type Stored = StoredKinds[Kind];
type Tables = Map<Kind, Map<string, Stored>>;

export type Change<Result extends Stored = Stored> = readonly [Result, ...Stored[]];

/** Each line of the file is one change, a JSON array of objects. A change is on disk before it becomes visible. */
export class Store {
  readonly #tables: Tables;
  readonly #log: FileHandle;

  private constructor(tables: Tables, log: FileHandle) {
    this.#tables = tables;
    this.#log = log;
  }

  static async open(file: string): Promise<Store> {
    await ownFolder(dirname(file));
    const tables: Tables = new Map();
    for (const change of await readChanges(file)) put(tables, change);
    const replies = tables.get('reply') as Map<string, Reply> | undefined;
    for (const { id, created } of replies?.values() ?? []) if (isExpired(created)) replies?.delete(id);
    const all = [...tables.values()].flatMap((table) => [...table.values()]);
    await replaceOwnFile(file, `${JSON.stringify(all)}\n`);
    return new Store(tables, await openOwnLog(file));
  }

  find<K extends Kind>(kind: K, id: string): StoredKinds[K] | undefined {
    return this.#tables.get(kind)?.get(id) as StoredKinds[K] | undefined;
  }

  get<K extends Kind>(kind: K, id: string, param = 'id'): StoredKinds[K] {
    const found = this.find(kind, id);
    if (found) return found;
    throw new ApiError(404, `No such ${kind}: '${id.slice(0, 200)}'`, { code: 'resource_missing', param });
  }

  all<K extends Kind>(kind: K): StoredKinds[K][] {
    return [...(this.#tables.get(kind)?.values() ?? [])] as StoredKinds[K][];
  }

  /** Adds or replaces objects by id, all or none. Returns the first one. */
  save<First extends Stored>(first: First, ...others: readonly Stored[]): First {
    const { fd } = this.#log;
    const { size } = fstatSync(fd);
    const objects = [first, ...others];
    try {
      writeSync(fd, `${JSON.stringify(objects)}\n`);
      fdatasyncSync(fd);
    } catch (error) {
      ftruncateSync(fd, size);
      throw error;
    }
    put(this.#tables, objects);
    return first;
  }

  /** Saves the result of `work` once per key. A repetition gets the first response; failed calls are not stored. */
  saveOnce(key: string, fingerprint: string, work: () => Change): object {
    const known = this.find('reply', key);
    if (!known || isExpired(known.created)) {
      const [body, ...others] = work();
      return this.save(body, ...others, { id: key, object: 'reply', fingerprint, created: now(), body });
    }
    if (known.fingerprint === fingerprint) return known.body;
    const message = 'Keys for idempotent requests can only be used with the same parameters they were first used with.';
    throw new ApiError(400, message, {}, 'idempotency_error');
  }

  close(): Promise<void> {
    return this.#log.close();
  }
}

const isExpired = (created: number): boolean => created <= now() - REPLY_LIFETIME_SECONDS;

function put(tables: Tables, objects: readonly Stored[]): void {
  for (const stored of objects) {
    const table = tables.get(stored.object) ?? new Map();
    tables.set(stored.object, table.set(stored.id, stored));
  }
}

/** A kill can cut off the last change, which then has no line feed. */
async function readChanges(file: string): Promise<Stored[][]> {
  const text = await readUnsharedFile(file);
  if (text === undefined) return [];
  const lines = text.split('\n');
  if (lines.length > 1) lines.pop();
  try {
    return lines.map((line) => JSON.parse(line));
  } catch {
    throw new Error(
      `The file of the local checkout, ${file}, is damaged. Remove it to start without its earlier payments.`,
    );
  }
}
