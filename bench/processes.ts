import { readdirSync, readFileSync } from 'node:fs';

/** What Linux counts a process's time in (USER_HZ). */
const TICK_MS = 10;

interface Stat {
  readonly parent: number;
  /** User and system time of all its threads, and of its children that have ended, in milliseconds. */
  readonly cpuMs: number;
}

/** Undefined when the process has ended. */
function readStat(pid: number): Stat | undefined {
  let text: string;
  try {
    text = readFileSync(`/proc/${pid}/stat`, 'latin1');
  } catch {
    return undefined;
  }
  // The second field, the program's name, may hold anything.
  const fields = text.slice(text.lastIndexOf(')') + 2).split(' ');
  const [user, system, childUser, childSystem] = fields.slice(11, 15).map(Number) as [number, number, number, number];
  return { parent: Number(fields[1]), cpuMs: (user + system + childUser + childSystem) * TICK_MS };
}

/** A process and all below it. */
export function processTree(root: number): number[] {
  const children = new Map<number, number[]>();
  for (const pid of readdirSync('/proc').map(Number).filter(Number.isSafeInteger)) {
    const parent = readStat(pid)?.parent;
    if (parent !== undefined) children.set(parent, [...(children.get(parent) ?? []), pid]);
  }
  const tree = [root];
  for (const pid of tree) tree.push(...(children.get(pid) ?? []));
  return tree;
}

/** CPU time that a process and all below it have used so far, those included that have ended, in milliseconds. */
export const cpuOf = (root: number): number =>
  processTree(root).reduce((sum, pid) => sum + (readStat(pid)?.cpuMs ?? 0), 0);

/** Resident memory of processes, in bytes; what they share counts for each. */
export const memoryOf = (pids: readonly number[]): number => pids.reduce((sum, pid) => sum + readMemory(pid), 0);

function readMemory(pid: number): number {
  try {
    return Number(/^VmRSS:\s+(\d+) kB$/m.exec(readFileSync(`/proc/${pid}/status`, 'latin1'))?.[1] ?? 0) * 1024;
  } catch {
    return 0;
  }
}
