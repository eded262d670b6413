import { readFileSync } from 'node:fs';
import { type Child, type Owner, startCommand } from '../../test/support/child.ts';
import { missingProgram } from '../../test/support/missing-program.ts';
import type { Part, PartName } from './world.ts';

/** Characters of a program's output that are kept. */
const KEPT_OUTPUT = 65_536;
/** Has the kernel end a program with this process, however that ends. */
const WITH_PARENT = missingProgram('setpriv', '--version') ? [] : ['setpriv', '--pdeathsig', 'KILL', '--'];

export interface ProcessOptions {
  readonly name: PartName;
  readonly owner: Owner;
  readonly command: readonly string[];
  readonly env: Readonly<Record<string, string>>;
  /** Resolves when it serves. */
  readonly ready: (child: Child) => Promise<unknown>;
  /** Told the process id of each life when it has ended. */
  readonly onEnd?: (pid: number) => unknown;
}

/** A part that is one process. */
export class ProcessPart implements Part {
  readonly name: PartName;
  readonly #options: ProcessOptions;
  #child: Child | undefined;
  /** Of the lives before this one. */
  #former = '';

  constructor(options: ProcessOptions) {
    this.name = options.name;
    this.#options = options;
  }

  get isRunning(): boolean {
    const { exitCode, signalCode } = this.#child?.process ?? { exitCode: 0, signalCode: null };
    return exitCode === null && signalCode === null;
  }

  get isFrozen(): boolean {
    if (!this.isRunning) return false;
    // The state follows the name, which is in brackets.
    const stat = readFileSync(`/proc/${this.#child?.process.pid}/stat`, 'utf8');
    return stat.slice(stat.lastIndexOf(')') + 2).startsWith('T');
  }

  async start(env: Readonly<Record<string, string>> = {}): Promise<void> {
    if (this.isRunning) return;
    this.#former = this.output();
    const { owner, command, ready, onEnd } = this.#options;
    const child = startCommand(owner, [...WITH_PARENT, ...command], {
      env: { ...this.#options.env, ...env },
      keptOutput: KEPT_OUTPUT,
    });
    this.#child = child;
    child.process.once('exit', () => onEnd?.(child.process.pid as number));
    await ready(child);
  }

  kill(): Promise<void> {
    return this.#end('SIGKILL').then(() => undefined);
  }

  stop(): Promise<number | null> {
    return this.#end('SIGTERM');
  }

  async freeze(): Promise<void> {
    if (this.isRunning) this.#child?.process.kill('SIGSTOP');
  }

  async thaw(): Promise<void> {
    if (this.isRunning) this.#child?.process.kill('SIGCONT');
  }

  async ended(): Promise<void> {
    await this.#child?.ended();
  }

  output(): string {
    return (this.#former + (this.#child?.output() ?? '')).slice(-KEPT_OUTPUT);
  }

  async #end(signal: NodeJS.Signals): Promise<number | null> {
    const child = this.#child;
    if (!child || !this.isRunning) return null;
    return child.stop(signal);
  }
}
