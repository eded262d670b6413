import type { Config } from '../settings/config.ts';
import type { Misspelling } from '../settings/misspelt.ts';

/** What is examined, and how. */
export interface Patient {
  readonly config: Config;
  /** Variables that look like settings and are none. */
  readonly misspelt: readonly Misspelling[];
  /** SIGNING_KEYS_FILE. */
  readonly keysFile: string | undefined;
  /** True for the settings of a running sandbox, whose secrets are its own. */
  readonly isSandbox: boolean;
  /** Whether each upstream is asked for a word, which it may have to be paid for. */
  readonly speaks: boolean;
  /** Whether a mail is sent. */
  readonly mails: boolean;
  /** Unix milliseconds by the clock of this machine. */
  readonly now: () => number;
}
