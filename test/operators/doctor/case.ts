import type { Test } from 'tap';
import type { Env, Options, Scene } from './scene.ts';

/** How a configuration is made wrong in one point. What it changes of the scene, the test's end undoes. */
export interface Wrong {
  /** Settings that all have, the service and doctor. */
  readonly all?: Env;
  /** Settings of doctor only. */
  readonly own?: Env;
  readonly options?: Options;
}

export interface Case {
  readonly finds: readonly [state: 'fault' | 'warning', check: string, message: RegExp];
  /** Checks that can't be made then. */
  readonly skipped?: readonly string[];
  /** @param places where the service will listen that is started for it, if `all` is given */
  readonly make: (scene: Scene, t: Test, places: Env) => Promise<Wrong> | Wrong;
  /** Why it can't be made on this machine. */
  readonly skip?: string | false;
}

/** By what is wrong. */
export type Cases = Readonly<Record<string, Case>>;

/** Changes the database as its owner until the test ends. */
export const untilTheEnd =
  (change: string, undo: string): Case['make'] =>
  async ({ sql }, t) => {
    t.teardown(() => sql(undo));
    await sql(change);
    return {};
  };

/** Gives a part of the scene other values until the test ends. */
export function withChanged<Part extends object>(t: Test, part: Part, values: Partial<Part>): Wrong {
  const before = Object.fromEntries(Object.keys(values).map((name) => [name, part[name as keyof Part]]));
  t.teardown(() => {
    Object.assign(part, before);
  });
  Object.assign(part, values);
  return {};
}
