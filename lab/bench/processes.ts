import { readdirSync, readFileSync } from 'node:fs';

/** Linux counts CPU time in this unit (USER_HZ). */
const TICK_MS = 10;

interface Stat {
  readonly parent: number;
  /** User and system time of all threads and of children that have exited. */
  readonly cpuMs: number;
}

/** Undefined after the process has exited. */
function readStat(pid: number): Stat | undefined {
  let text: string;
  try {
    text = readFileSync(`/proc/${pid}/stat`, 'latin1');
  } catch {
    return undefined;
  }
  // The second field, the program's name, may contain spaces and parentheses.
  const fields = text.slice(text.lastIndexOf(')') + 2).split(' ');
  const [user, system, childUser, childSystem] = fields.slice(11, 15).map(Number) as [number, number, number, number];
  return { parent: Number(fields[1]), cpuMs: (user + system + childUser + childSystem) * TICK_MS };
}

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

/** CPU time of a process and its descendants, with children that have exited, in milliseconds. */
export const cpuOf = (root: number): number =>
  processTree(root).reduce((sum, pid) => sum + (readStat(pid)?.cpuMs ?? 0), 0);

/** Resident memory in bytes. Shared pages count once for each process. */
export const memoryOf = (pids: readonly number[]): number => pids.reduce((sum, pid) => sum + readMemory(pid), 0);

function readMemory(pid: number): number {
  try {
    return Number(/^VmRSS:\s+(\d+) kB$/m.exec(readFileSync(`/proc/${pid}/status`, 'latin1'))?.[1] ?? 0) * 1024;
  } catch {
    return 0;
  }
}
