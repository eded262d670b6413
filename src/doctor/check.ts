/** How a check has ended. A fault will lose requests or money, or does already; a warning may one day. */
export type State = 'ok' | 'warning' | 'fault' | 'skipped';

export interface Finding {
  readonly state: State;
  /** What was found; of what was skipped, why. Holds no secret. */
  readonly message: string;
  /** What to do about a fault or a warning. */
  readonly fix?: string;
}

/** One question to the configuration and its live parts. It changes nothing that stays. */
export interface Check {
  /** In lower case with hyphens; docs/doctor.md has a section of that name. */
  readonly name: string;
  /** Which one of several, such as a model or a node. */
  readonly about?: string;
  /** Milliseconds that it may take, where that is more than others may. */
  readonly limitMs?: number;
  run(): Promise<Finding>;
}

/** The checks of one area, and how what they share is given up. */
export interface Area {
  readonly checks: readonly Check[];
  close?(): Promise<void>;
}

export const ok = (message: string): Finding => ({ state: 'ok', message });
export const warning = (message: string, fix: string): Finding => ({ state: 'warning', message, fix });
export const fault = (message: string, fix: string): Finding => ({ state: 'fault', message, fix });
export const skipped = (message: string): Finding => ({ state: 'skipped', message });

/** Checks of what the settings leave off: none of them is run, and each says why. */
export const off = (names: readonly string[], reason: string): Area => ({
  checks: names.map((name) => ({ name, run: async () => skipped(reason) })),
});
