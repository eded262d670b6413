import { type Child, type Owner, startCommand } from '../../../test/support/child.ts';
import { missingProgram } from '../../../test/support/missing-program.ts';
import type { Part, PartName } from './world.ts';

/** Characters of output that are kept. */
const KEPT_OUTPUT = 65_536;
/** The kernel kills the program when this process ends. */
const WITH_PARENT = missingProgram('setpriv', '--version') ? [] : ['setpriv', '--pdeathsig', 'KILL', '--'];

export interface ProcessOptions {
  readonly name: PartName;
  readonly owner: Owner;
  readonly command: readonly string[];
  readonly env: Readonly<Record<string, string>>;
  /** Resolves when the program accepts requests. */
  readonly ready: (child: Child) => Promise<unknown>;
}

export class ProcessPart implements Part {
  readonly name: PartName;
  readonly #options: ProcessOptions;
  #child: Child | undefined;

  constructor(options: ProcessOptions) {
    this.name = options.name;
    this.#options = options;
  }

  get isRunning(): boolean {
    const { exitCode, signalCode } = this.#child?.process ?? { exitCode: 0, signalCode: null };
    return exitCode === null && signalCode === null;
  }

  async start(): Promise<void> {
    if (this.isRunning) return;
    const { owner, command, env, ready } = this.#options;
    const child = startCommand(owner, [...WITH_PARENT, ...command], { env, keptOutput: KEPT_OUTPUT });
    this.#child = child;
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

  async #end(signal: NodeJS.Signals): Promise<number | null> {
    const child = this.#child;
    if (!child || !this.isRunning) return null;
    return child.stop(signal);
  }
}
