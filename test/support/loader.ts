import { register } from 'node:module';

/** Speeds up the start of every test file; loaded after tsx, so that it is asked first. */
register('./loader-hooks.ts', import.meta.url);

/**
 * tap has every process that a test starts load a module which follows what it loads, for coverage that nobody asks for.
 * That doubles the time of its start, and no user's process has it: this gives Node's own functions back.
 * @see https://github.com/cfware/process-on-spawn
 */
const tapOnSpawn = (globalThis as Record<symbol, unknown>)[Symbol.for('process-on-spawn@*:singletonId')];
(tapOnSpawn as { unwrap(): void } | undefined)?.unwrap();
