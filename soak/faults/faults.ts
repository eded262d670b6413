import { CHAIN } from './chain.ts';
import { CLOCK } from './clock.ts';
import { DATABASE } from './database.ts';
import type { Fault } from './fault.ts';
import { LINKS } from './links.ts';
import { SIGNALS } from './signals.ts';
import { STANDSTILLS } from './standstills.ts';
import { STEPS } from './steps.ts';

/** All that can break in the world. */
export const FAULTS: readonly Fault[] = [
  ...SIGNALS,
  ...DATABASE,
  ...LINKS,
  ...CHAIN,
  ...CLOCK,
  ...STEPS,
  ...STANDSTILLS,
];
