import type { Config } from '../../config/config.ts';
import { type Database, openDatabase } from '../../db/database.ts';
import type { Misspelling } from '../../lib/misspelt.ts';

export interface DoctorOptions {
  readonly config: Config;
  readonly misspelt: readonly Misspelling[];
  readonly keysFile: string | undefined;
  readonly isSandbox: boolean;
  /** Whether each upstream synthesizes a word, which may cost money. */
  readonly speaks: boolean;
  readonly now: () => number;
}

export interface DoctorContext extends DoctorOptions {
  readonly db: Database;
  /** Runs `ask` once per name, for all checks that need it. */
  readonly once: <T>(name: string, ask: () => Promise<T>) => Promise<T>;
}

/** A fault loses requests or money, now or later. A warning may do so one day. Neither text contains a secret. */
export interface Finding {
  readonly state: 'ok' | 'warning' | 'fault' | 'skipped';
  readonly message: string;
  readonly fix?: string;
}

/** Changes nothing permanently. */
export interface Check {
  readonly name: string;
  readonly about?: string;
  readonly limitMs?: number;
  /** Skips the check without these. The checks `database` and `schema` report why. */
  readonly needs?: 'database' | 'tables';
  readonly run: (context: DoctorContext) => Finding | Promise<Finding>;
}

export const ok = (message: string): Finding => ({ state: 'ok', message });
export const warning = (message: string, fix: string): Finding => ({ state: 'warning', message, fix });
export const fault = (message: string, fix: string): Finding => ({ state: 'fault', message, fix });
export const skipped = (message: string): Finding => ({ state: 'skipped', message });

/** Skipped checks of a part that the settings turn off. */
export const off = (names: readonly string[], reason: string): Check[] =>
  names.map((name) => ({ name, run: () => skipped(reason) }));

/** Close it with `db.destroy()`. */
export function openContext(options: DoctorOptions): DoctorContext {
  const asked = new Map<string, Promise<unknown>>();
  return {
    ...options,
    db: openDatabase(options.config.databaseUrl, {
      maxConnections: 4,
      namedStatements: options.config.namedStatements,
    }),
    once: <T>(name: string, ask: () => Promise<T>) => {
      const answer = asked.get(name) ?? ask();
      asked.set(name, answer);
      return answer as Promise<T>;
    },
  };
}

/** @throws when the database is unavailable */
export const reachDatabase = ({ db, once }: DoctorContext) =>
  once('database', () => db.selectNoFrom(({ lit }) => lit(1).as('reached')).execute());
